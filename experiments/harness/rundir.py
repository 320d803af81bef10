"""The directory of a run: what was asked for, by what code, and one checked artefact per finished stage.

run.json        study, resolved config, seed, command, devices, code, and a record of every finished stage
stages/         one artefact per stage, reused by a second run of the same config
chunks/         parts of unfinished stages, from which a stopped run goes on
metrics.jsonl   every number of the table, one line each
table.md, figures/, report.html
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import configs
from experiments.harness import brought, stages
from experiments.harness.provenance import Code, difference, short, this_code
from experiments.harness.stages import Misplaced, Record
from symbnn import io
from symbnn.io.files import parse_json, replacing, write_text

RUN_FILE = "run.json"


class Run:
    """An open run directory."""

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        self.directory = directory
        self.description = description

    def stage(self, name: str, compute: Callable[[], Any]) -> Any:
        """What the stage computed, as the same classes: from disk if it is whole, else computed and kept."""

        def make() -> tuple[Any, Record]:
            start = time.perf_counter()
            tree = jax.block_until_ready(compute())
            seconds = round(time.perf_counter() - start, 3)
            return tree, Record(seconds, self._commits(name), self.description["versions"])

        return self._kept(name, make)

    def has(self, name: str) -> bool:
        """Whether the stage is kept already."""
        return self._path(name).exists()

    def has_parts(self, name: str) -> bool:
        """Whether an unfinished stage has left something to go on from."""
        parts = self.directory / "chunks" / name
        return parts.is_dir() and any(parts.iterdir())

    def borrow(self, name: str, lender: Path | str, study: str, config: Any) -> Any:
        """A stage of a finished run of `study`, kept here too, with the record of who computed it."""
        return self._kept(name, lambda: lent_stage(lender, study, config, name))

    def chunks(self, name: str) -> io.ChunkStore:
        """Where the stage keeps what it has done so far."""
        self.note_commit(name)
        return io.ChunkStore(self.directory / "chunks" / name)

    def training(self, name: str, part: str = "") -> io.TrainingStore:
        """Where a training of the stage, or one of several, keeps its last epochs."""
        self.note_commit(name)
        return io.TrainingStore(self.directory / "chunks" / name / part)

    def note_commit(self, name: str) -> None:
        """Say that this code computes a part of the stage: its record will name all commits that did."""
        earlier, now = self._worked_on(name), self.description["git_commit"]
        if earlier and earlier[-1] != now:
            self.say(f"{name}: goes on from parts computed at {short(earlier[-1])} (this is {short(now)})")
        self.write(f"chunks/{name}.json", json.dumps(list(dict.fromkeys([*earlier, now]))))

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

    def describe(self) -> None:
        """Write run.json anew."""
        self.write(RUN_FILE, json.dumps(self.description, indent=1) + "\n")

    def _kept(self, name: str, make: Callable[[], tuple[Any, Record]]) -> Any:
        path = self._path(name)
        found = self._read(name, path) if path.exists() else None
        if found is None:
            found = make()
            stages.write(path, name, self.description["run"], found[1], found[0])
            self.say(f"{name}: {found[1].words}")
        tree, record = found
        self.description["stages"][name] = record._asdict()
        self.describe()
        return tree

    def _path(self, name: str) -> Path:
        return self.directory / "stages" / f"{name}.safetensors"

    def _read(self, name: str, path: Path) -> tuple[Any, Record] | None:
        """The stage if it can be reused; a file that cannot is kept under another name."""
        try:
            tree, record = stages.read(path, name, self.description["run"])
        except (io.ArtefactError, Misplaced) as error:
            aside = stages.set_aside(path, "other" if isinstance(error, Misplaced) else "damaged")
            self.say(f"{name}: {error}; kept as {aside.name}; computing it again")
            return None
        words = difference(record.code, Code(self.description["git_commit"], self.description["versions"]))
        self.say(f"{name}: reused{f', {words}' if words else f' (took {record.seconds:.1f} s when it ran)'}")
        return tree, record

    def _commits(self, name: str) -> str | None:
        """The commit that computed the stage; several if it went on from parts of another."""
        commits = list(dict.fromkeys([*self._worked_on(name), self.description["git_commit"]]))
        return commits[0] if len(commits) == 1 else ", then ".join(each or "unknown" for each in commits)

    def _worked_on(self, name: str) -> list[str | None]:
        path = self.directory / "chunks" / f"{name}.json"
        return _parsed(path, lambda found: [short(commit) for commit in found[0:]]) if path.exists() else []


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
        if (directory / RUN_FILE).exists() and not _is_blank(directory):
            before = _read_run(directory)
            _check_same_config(directory, before, description, config)
            # A config that gained a field is still the same run.
            description |= {"run": before["run"], "stages": before["stages"]}
        opened = Run(directory, description)
        opened.describe()
        opened.say(f"run directory: {directory}")
        yield opened


def lent_stage(directory: Path | str, study: str, config: Any, name: str) -> tuple[Any, Record]:
    """A stage of a finished run of `study`, whose config must say the same wherever both say something."""
    directory = Path(directory)
    if not (directory / RUN_FILE).exists():
        raise ValueError(f"{directory} holds no run; expected a finished run of {study}")
    theirs, ours = _settings(_read_run(directory)), _settings(_describe(study, config))
    # A run that does not know them had none.
    theirs = dict.fromkeys(brought.names(config)) | theirs
    for setting in sorted(theirs.keys() & ours.keys()):
        if theirs[setting] != ours[setting]:
            raise ValueError(
                f"{directory} cannot lend its {name}: there {setting} is {theirs[setting]}, "
                f"here {ours[setting]}"
            )
    tree, record = stages.read(directory / "stages" / f"{name}.safetensors", name)
    return tree, record._replace(lender=str(directory))


def _is_blank(directory: Path) -> bool:
    """Whether a run ended there before it computed anything: a damaged run.json is not taken for that."""
    if {path.name for path in directory.iterdir()} - {RUN_FILE, ".lock"}:
        return False
    return not _read_run(directory)["stages"]


def clear(directory: Path) -> None:
    """Delete a run directory; refuse to delete anything else."""
    if not directory.exists():
        return
    if not (directory / RUN_FILE).exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} holds no {RUN_FILE}, so it is not a run; refusing to clear it")
    with _locked(directory):
        shutil.rmtree(directory)


def _check_same_config(
    directory: Path, before: dict[str, Any], description: dict[str, Any], config: Any
) -> None:
    """`ValueError` naming a setting that changed; one that did not exist then had today's default."""
    then, now = _defaults(config) | _settings(before), _settings(description)
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            raise ValueError(
                f"{directory} holds a run of another config: {name} was {then.get(name)} and is now "
                f"{now.get(name)}; choose another --rundir, or --fresh to start over"
            )


def _defaults(config: Any) -> dict[str, Any]:
    """What every setting is where a config does not say otherwise, by its full name."""
    found = {name.replace("-", "_"): field.default for name, field, _ in configs.walk(config)}
    known = {name: value for name, value in found.items() if value is not dataclasses.MISSING}
    return json.loads(json.dumps(known))


def _read_run(directory: Path) -> dict[str, Any]:
    """run.json, checked; `ValueError` if it is damaged or of a version that kept no records of stages."""
    description = _parsed(directory / RUN_FILE, _settings)
    if not {"stages", "run"} <= description.keys():
        raise ValueError(
            f"{directory} holds a run of an older version, whose stages do not say which code computed them "
            "and cannot be read by this one; use --fresh to start over, or another --rundir"
        )
    return _parsed(directory / RUN_FILE, _records)


def _records(description: dict[str, Any]) -> list[Record]:
    found = [Record(**record) for record in description["stages"].values()]
    return [each._replace(seconds=float(each.seconds), versions=dict(each.versions)) for each in found]


def _parsed(path: Path, check: Callable[[Any], Any]) -> Any:
    """JSON that passes the check; what it returns does not matter."""
    try:
        found = parse_json(path.read_bytes())
        check(found)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); use --fresh to start over or another --rundir"
        ) from error
    return found


def _settings(description: dict[str, Any]) -> dict[str, Any]:
    return {"study": description["study"], **_flat(description["config"])}


def _describe(study: str, config: Any) -> dict[str, Any]:
    code = this_code()
    # Through JSON, so that tuples compare equal to what is read back.
    settings = {"study": study, "config": json.loads(json.dumps(dataclasses.asdict(config)))}
    for name, digest in brought.digests(config).items():
        part, _, field = name.partition(".")
        settings["config"][part][field] = digest
    return {
        **settings,
        "seed": getattr(config, "seed", None),
        "command": " ".join(["python", "-m", f"experiments.{study}", *sys.argv[1:]]),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "git_commit": code.commit,
        "versions": code.versions,
        # What a stage's result may depend on besides the code.
        "run": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16],
        "stages": {},
    }


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


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
