"""Run every `evidence_*` module beside this file and write `results/evidence/README.md`.

    python -m tests.evidence [name ...]

Each part leaves its section in `runs/evidence`, and the page is made of all sections that lie there: a run
that was stopped goes on with the names of the parts that are missing.
"""

import importlib
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import matplotlib

from experiments.harness import provenance
from tests.evidence import RESULTS, ROOT, Check, Section, table

FOLDER = Path(__file__).parent
SECTIONS = ROOT / "runs" / "evidence"
PARTS = ("posteriordb", "geweke", "calibration", "exact")
LIBRARIES = ("jax", "blackjax", "numpyro", "numpy", "scipy")


def main(chosen: list[str]) -> int:
    """Run the parts and write the page; 1 if something that must hold does not."""
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        print(f"no evidence {unknown[0]!r}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    matplotlib.use("Agg")
    SECTIONS.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in chosen or PARTS:
        begun = time.process_time()
        section: Section = importlib.import_module(f"tests.evidence.evidence_{name}").section()
        minutes = (time.process_time() - begun) / 60
        kept = {
            **section._asdict(),
            "minutes": minutes,
            "commit": provenance.short(provenance.this_code().commit),
        }
        (SECTIONS / f"{name}.json").write_text(json.dumps(kept, default=bool), encoding="utf-8")
        write_page()
        failed |= not all(check.passed for check in section.checks)
        for check in section.checks:
            print(f"{'ok    ' if check.passed else 'MISSED'} {check.name}: {check.measured} ({check.wanted})")
    print(f"kept in {(RESULTS / 'README.md').relative_to(ROOT)}")
    return int(failed)


def write_page() -> None:
    """The page from all sections that are there."""
    parts = [(SECTIONS / f"{name}.json") for name in PARTS]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in parts if path.exists()]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "README.md").write_text(page(found), encoding="utf-8")


def page(found: list[dict]) -> str:
    """All sections, with what must hold and does or does not first."""
    checks = [Check(*check) for part in found for check in part["checks"]]
    missed = [check for check in checks if not check.passed]
    minutes = sum(part["minutes"] for part in found)
    lines = [
        "# Evidence that the samplers are right",
        "",
        f"`make evidence`, {minutes:.0f} minutes of processor time: {len(checks) - len(missed)} of "
        f"{len(checks)} checks hold{'; missed are' if missed else '.'}",
        "",
        *(f"- {check.name}: {check.measured}, wanted {check.wanted}" for check in missed),
    ]
    for part in found:
        passed = [Check(*check) for check in part["checks"]]
        rows = [
            (check.name, check.measured, check.wanted, "ok" if check.passed else "**missed**")
            for check in passed
        ]
        header = ("what must hold", "measured", "wanted", "")
        measured = f"Measured at {part['commit']} in {part['minutes']:.0f} minutes of processor time."
        lines += ["", f"## {part['title']}", "", part["text"], "", table(header, rows), "", measured]
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return "\n".join([*lines, "", f"Python {platform.python_version()}; {versions}.", ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
