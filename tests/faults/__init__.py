"""Attempts to break the software: `python -m tests.faults` prints what was tried and what survived."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Fault(NamedTuple):
    """One kind of accident, tried some times."""

    name: str
    tried: int
    survived: int
    note: str


def command(directory: Path, *options: str) -> list[str]:
    """The smallest run of a study that samples, trains, aligns and writes a report."""
    study = [sys.executable, "-m", "experiments.compact_posterior", "debug"]
    return [*study, "--rundir", str(directory), *options]


def environment(cache: Path) -> dict[str, str]:
    """Programs are compiled once for all processes: most of the time of a run this small is compiling."""
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONUNBUFFERED": "1",
    }


def run(directory: Path, cache: Path, *options: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own."""
    return subprocess.run(
        command(directory, *options),
        cwd=ROOT,
        env=environment(cache),
        capture_output=True,
        text=True,
        timeout=600,
        **settings,  # type: ignore[call-overload]
    )


def is_one_clear_line(ended: subprocess.CompletedProcess[str], *words: str) -> bool:
    """Whether a run refused with exit code 1 and one line that holds the words, without a traceback."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    clear = len(lines) == 1 and all(word in lines[0] for word in words)
    return ended.returncode == 1 and clear and "Traceback" not in ended.stderr
