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
    limit: str = ""
    """What keeps the row from its target (operations, bytes, time of the host), if that was found."""
    floor: float | None = None
    """With that limit, the value that the row must still reach."""

    @property
    def verdict(self) -> str:
        """`ok`, `limited` (missed for a known reason, no worse than the floor) or `missed`."""
        if self.passed:
            return "ok"
        if not self.limit or self.floor is None:
            return "missed"
        is_more_better = self.target > self.measured
        reaches = self.measured >= self.floor if is_more_better else self.measured <= self.floor
        return "limited" if reaches else "missed"


def peak_memory() -> int:
    """Most bytes that this process ever held. Not `ru_maxrss`: a child starts with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
