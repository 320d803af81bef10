"""Speed and memory against their targets: `python -m tests.bench` prints a table."""

from typing import NamedTuple


class Row(NamedTuple):
    """One measured promise."""

    name: str
    target: float
    measured: float
    unit: str
    passed: bool
    note: str
