"""Attempts to break the software: `python -m tests.faults` prints what was tried and what survived."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Fault(NamedTuple):
    """One kind of accident, tried some times."""

    name: str
    tried: int
    survived: int
    note: str
