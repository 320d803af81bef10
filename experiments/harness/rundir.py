"""The directory of a run: what was asked for, by what code, and one checked artefact per finished stage.

run.json        study, resolved config, seed, versions, devices, git commit, command; written before anything
stages/         one artefact per stage, reused by a second run of the same config
metrics.jsonl   every number of the table, one line each
table.md, figures/, report.html
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import configs
from symbnn import io
from symbnn.io.files import parse_json, replacing, write_text

RUN_FILE = "run.json"
PACKAGES = ("symbnn", "jax", "jaxlib", "flax", "optax", "blackjax", "numpyro", "numpy", "scipy")


class Run:
    """An open run directory."""

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        self.directory = directory
        self.description = description

    def stage(self, name: str, compute: Callable[[], Any]) -> Any:
        """The stage's tree of arrays: from disk if it is finished and whole, else computed and kept."""
        path = self.directory / "stages" / f"{name}.safetensors"
        # A whole file may still be another stage's, or come from another run.
        origin = {"stage": name, "run": _checksum(self.description)}
        if path.exists():
            try:
                tree, metadata = io.load_tree(path)
                if metadata.items() >= origin.items():
                    self.say(f"{name}: reused (took {float(metadata['seconds']):.1f} s when it ran)")
                    return tree
                self.say(f"{name}: {path} belongs to another stage or run; computing it again")
            except io.ArtefactError as error:
                self.say(f"{name}: {error}; computing it again")
        start = time.perf_counter()
        tree = jax.block_until_ready(compute())
        seconds = time.perf_counter() - start
        io.save_tree(path, tree, {**origin, "seconds": f"{seconds:.3f}"})
        self.say(f"{name}: done in {seconds:.1f} s")
        return tree

    def record_metrics(self, records: list[dict[str, Any]]) -> None:
        """Write `metrics.jsonl` anew: the same run always leaves the same lines."""
        self.write("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))

    def write(self, name: str, text: str) -> Path:
        """A text file of the run, atomically."""
        path = self.directory / name
        write_text(path, text)
        return path

    def figure(self, name: str, figure: Any) -> Path:
        """A figure as PNG in `figures/`."""
        path = self.directory / "figures" / f"{name}.png"
        with replacing(path) as part:
            # No version in the file: the same numbers give the same bytes.
            figure.savefig(part, format="png", dpi=150, metadata={"Software": None})
        return path

    def say(self, text: str) -> None:
        """A line for the user."""
        print(text, flush=True)


@contextlib.contextmanager
def open_run(study: str, config: Any, directory: Path | str) -> Iterator[Run]:
    """Bind a directory to one config, alone: another config or another process there is an error."""
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot make the run directory {directory}: {error.strerror}; choose --rundir"
        ) from error
    with _locked(directory):
        description = _describe(study, config)
        _check_same_config(directory, description)
        write_text(directory / RUN_FILE, json.dumps(description, indent=1) + "\n")
        print(f"run directory: {directory}", flush=True)
        yield Run(directory, description)


def stage_seconds(directory: Path) -> dict[str, float]:
    """How long every finished stage of a run took, in the order they finished."""
    paths = sorted((directory / "stages").glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    return {path.stem: float(io.read_metadata(path)["seconds"]) for path in paths}


def borrowed_stage(directory: Path | str, study: str, config: Any, name: str) -> Any:
    """A stage of a finished run of `study`, whose config must say the same wherever both say something."""
    directory = Path(directory)
    if not (directory / RUN_FILE).exists():
        raise ValueError(f"{directory} holds no run; expected a finished run of {study}")
    theirs, ours = _read_settings(directory), _settings(_describe(study, config))
    for setting in sorted(theirs.keys() & ours.keys()):
        if theirs[setting] != ours[setting]:
            raise ValueError(
                f"{directory} cannot lend its {name}: there {setting} is {theirs[setting]}, "
                f"here {ours[setting]}"
            )
    return io.load_tree(directory / "stages" / f"{name}.safetensors")[0]


def clear(directory: Path) -> None:
    """Delete a run directory; refuse to delete anything else."""
    if not directory.exists():
        return
    if not (directory / RUN_FILE).exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} holds no {RUN_FILE}, so it is not a run; refusing to clear it")
    with _locked(directory):
        shutil.rmtree(directory)


def _check_same_config(directory: Path, description: dict[str, Any]) -> None:
    if not (directory / RUN_FILE).exists():
        return
    before, now = _read_settings(directory), _settings(description)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{directory} holds a run of another config: {name} was {before.get(name)} and is now "
                f"{now.get(name)}; choose another --rundir, or --fresh to start over"
            )


def _read_settings(directory: Path) -> dict[str, Any]:
    path = directory / RUN_FILE
    try:
        return _settings(parse_json(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); use --fresh to start over or another --rundir"
        ) from error


def _settings(description: dict[str, Any]) -> dict[str, Any]:
    return {"study": description["study"], **_flat(description["config"])}


def _describe(study: str, config: Any) -> dict[str, Any]:
    return {
        "study": study,
        # Through JSON, so that tuples compare equal to what is read back.
        "config": json.loads(json.dumps(dataclasses.asdict(config))),
        "seed": getattr(config, "seed", None),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "git_commit": _git_commit(),
        "command": " ".join(["python", "-m", f"experiments.{study}", *sys.argv[1:]]),
    }


def _git_commit() -> str | None:
    """Commit of the code, marked if files differ from it; None outside a checkout."""
    root = Path(configs.__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; the lock dies with it, so a killed run leaves none behind."""
    try:
        handle = (directory / ".lock").open("w")
    except OSError as error:
        raise ValueError(
            f"cannot write to the run directory {directory}: {error.strerror}; choose another --rundir"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another process works in {directory}; wait for it or choose another --rundir"
            ) from None
        yield


def _checksum(description: dict[str, Any]) -> str:
    """Of the study and its config: what a stage's result may depend on besides the code."""
    settings = {name: description[name] for name in ("study", "config")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
