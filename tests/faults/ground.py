"""Where accidents happen to runs: a folder, programs compiled once, and what undisturbed runs end with."""

import functools
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from safetensors.numpy import load_file

from tests.faults import ROOT, Fault

STUDY = "compact_posterior"
"""It samples, trains, aligns, and writes tables, figures and a report."""
LONGEST = 1800


class Ground(NamedTuple):
    """A folder of runs of one study's `debug` config, `finished` among them."""

    folder: Path
    study: str
    seconds: float
    """How long a run takes, its programs compiled."""

    @property
    def finished(self) -> Path:
        """The undisturbed run."""
        return self.folder / "finished"

    def copy(self, name: str) -> Path:
        """The undisturbed run once more."""
        return Path(shutil.copytree(self.finished, self.folder / name))

    def is_same(self, directory: Path) -> bool:
        """Whether a run ended with the undisturbed run's table and numbers, to the byte, and a report."""
        names = ("table.md", "metrics.jsonl")
        if not all((directory / name).exists() for name in (*names, "report.html")):
            return False
        return all((directory / name).read_bytes() == (self.finished / name).read_bytes() for name in names)

    def run(
        self,
        directory: Path,
        *options: str,
        limit: Callable[[], None] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """A run in a process of its own, which calls `limit` before it begins."""
        return subprocess.run(
            self._command(directory, *options),
            cwd=ROOT,
            env={**self._environment(), **environment},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            preexec_fn=limit,
        )

    def start(self, directory: Path) -> subprocess.Popen[str]:
        """A run that goes on by itself."""
        return subprocess.Popen(
            self._command(directory),
            cwd=ROOT,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def kill_when(self, directory: Path, is_time: Callable[[], bool]) -> None:
        """Start a run and end it with SIGKILL at that time, unless it has ended by itself."""
        process = self.start(directory)
        # The output of such a run is short: it fits the pipe, which nobody reads.
        while process.poll() is None and not is_time():
            time.sleep(0.002)
        process.kill()
        process.communicate()

    def after(self, moments: random.Random) -> Callable[[], bool]:
        """A random moment of a run that begins now."""
        end = time.monotonic() + moments.uniform(0.2, 1.0) * self.seconds
        return lambda: time.monotonic() > end

    def _command(self, directory: Path, *options: str) -> list[str]:
        study = [sys.executable, "-m", f"experiments.{self.study}", "debug"]
        return [*study, "--rundir", str(directory), *options]

    def _environment(self) -> dict[str, str]:
        """Most of the time of a run this small is compiling: cheaply, and once for all processes."""
        return {
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "PYTHONUNBUFFERED": "1",
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
            **os.environ,
        }


@functools.cache
def ground(study: str = STUDY) -> Ground:
    """The ground of a study, made when it is first needed; it goes away with this process."""
    folder = _folder() / study
    new = Ground(folder, study, 0.0)
    # The first run compiles; the second is as long as a run is when it is killed.
    new.run(folder / "first").check_returncode()
    begun = time.monotonic()
    new.run(new.finished).check_returncode()
    return new._replace(seconds=time.monotonic() - begun)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="symbnn-faults-")


def _folder() -> Path:
    return Path(_temporary().name)


def in_pairs(accidents: Sequence[Callable[[], Fault]]) -> Iterator[Fault]:
    """Two accidents at a time, each in processes of its own; reported in their order."""
    with ThreadPoolExecutor(2) as threads:
        yield from threads.map(lambda accident: accident(), accidents)


def contents(directory: Path, *patterns: str) -> dict[str, str]:
    """Checksums of the arrays of every whole file, by name; the order within a header is not fixed."""
    found = {}
    for path in sorted(path for pattern in patterns for path in directory.glob(pattern)):
        digest = hashlib.sha256()
        for name, array in sorted(load_file(path).items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        found[str(path.relative_to(directory))] = digest.hexdigest()
    return found


def is_one_clear_line(ended: subprocess.CompletedProcess[str], *words: str) -> bool:
    """Whether a run refused with exit code 1 and one line that holds the words, without a traceback."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    clear = len(lines) == 1 and all(word in lines[0] for word in words)
    return ended.returncode == 1 and clear and "Traceback" not in ended.stderr
