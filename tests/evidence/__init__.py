"""Evidence that the samplers are right: `python -m tests.evidence` writes `results/evidence/README.md`."""

import os
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results" / "evidence"


class Check(NamedTuple):
    """One thing that must hold, with what was measured."""

    name: str
    measured: str
    wanted: str
    passed: bool


class Section(NamedTuple):
    """One part of the page."""

    title: str
    text: str
    """Markdown; figures lie beside the page."""
    checks: list[Check]


def posteriordb() -> Path | None:
    """The folder with the posteriors, or None if `SYMBNN_DATA_DIR` has none."""
    folder = Path(os.environ.get("SYMBNN_DATA_DIR", "")) / "posteriordb"
    return folder if os.environ.get("SYMBNN_DATA_DIR") and folder.is_dir() else None


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
