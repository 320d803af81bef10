"""Speed and memory against their targets: `python -m tests.bench` prints a table."""

from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One measured promise."""

    name: str
    target: float
    measured: float
    unit: str
    passed: bool
    note: str


def peak_memory() -> int:
    """Most bytes that this process ever held. Not `ru_maxrss`: a child starts with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
