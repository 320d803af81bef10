"""Run every `faults_*` module beside this file and print one table: `python -m tests.faults [name ...]`.

A run of all of them is kept in `results/faults.md`.
"""

import importlib
import sys
import time
from pathlib import Path

from tests.faults import ROOT, Fault

FOLDER = Path(__file__).parent
RESULT = ROOT / "results" / "faults.md"
HEADER = ("| accident | tried | survived | what was checked |", "|---|---|---|---|")


def main(chosen: list[str]) -> int:
    """Print the rows as they come; 1 if something did not survive."""
    found = sorted(path.stem.removeprefix("faults_") for path in FOLDER.glob("faults_*.py"))
    unknown = [name for name in chosen if name not in found]
    if unknown:
        print(f"no faults {unknown[0]!r}; known: {', '.join(found)}", file=sys.stderr)
        return 2
    begun = time.monotonic()
    faults: list[Fault] = []
    print("\n".join(HEADER), flush=True)
    for name in chosen or found:
        for fault in importlib.import_module(f"tests.faults.faults_{name}").faults():
            faults.append(fault)
            print(line(fault), flush=True)
    tried, survived = sum(fault.tried for fault in faults), sum(fault.survived for fault in faults)
    minutes = (time.monotonic() - begun) / 60
    summary = f"{survived} of {tried} accidents of {len(faults)} kinds survived, in {minutes:.1f} minutes"
    print(summary)
    if not chosen:
        RESULT.write_text(page(faults, summary), encoding="utf-8")
    return int(survived < tried)


def page(faults: list[Fault], summary: str) -> str:
    """What is kept of a run of all of them."""
    return "\n".join(["# Accidents", "", f"`make faults`: {summary}.", "", *HEADER, *map(line, faults), ""])


def line(fault: Fault) -> str:
    """A row of the table."""
    survived = f"{fault.survived}" if fault.survived == fault.tried else f"**{fault.survived}**"
    return f"| {fault.name} | {fault.tried} | {survived} | {fault.note} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
