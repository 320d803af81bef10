"""Keep a finished run's table and figures in `results/`, with the command, seed, time, commits and versions.

`python -m experiments.results runs/compact_posterior/digits` writes `results/compact_posterior/digits/`.
Samples and data stay in the run directory: results hold only what a reader looks at. Of a `debug` run, which
nobody looks at, only the numbers are kept, in `results/debug/`: the tests run every study again and compare.
"""

import json
import shutil
import sys
from pathlib import Path

from experiments.harness.provenance import STAGE_HEADS, short, stage_rows
from experiments.harness.rundir import RUN_FILE
from symbnn.io.files import write_text

DESTINATION = Path("results")
RULE = ("---",) * len(STAGE_HEADS)


def publish(directory: Path, destination: Path = DESTINATION) -> Path:
    """Copy what a reader needs of a finished run; returns where it is."""
    for name in (RUN_FILE, "table.md", "report.html"):
        if not (directory / name).exists():
            raise ValueError(f"{directory} holds no {name}: not a finished run; run the study first")
    described = json.loads((directory / RUN_FILE).read_text())
    if "stages" not in described:
        raise ValueError(f"{directory} does not say which code computed its stages; run the study again")
    if directory.name == "debug":
        kept = destination / "debug" / f"{described['study']}.jsonl"
        write_text(kept, (directory / "metrics.jsonl").read_text())
        return kept
    folder = destination / described["study"] / directory.name
    folder.mkdir(parents=True, exist_ok=True)
    figures = sorted((directory / "figures").glob("*.png"))
    for figure in figures:
        shutil.copyfile(figure, folder / figure.name)
    seconds = sum(record["seconds"] for record in described["stages"].values())
    lines = [
        f"# {described['study']} {directory.name}",
        "",
        f"`{described['command']}`, seed {described['seed']}, {seconds:.0f} s in all on "
        f"{', '.join(sorted(set(described['devices'])))}; the last command ran at commit "
        f"{short(described['git_commit'])}.",
        "",
        ", ".join(f"{package} {version}" for package, version in described["versions"].items()) + ".",
        "",
        *(f"| {' | '.join(row)} |" for row in (STAGE_HEADS, RULE, *stage_rows(described))),
        "",
        (directory / "table.md").read_text(),
        *(f"![{figure.stem}]({figure.name})" for figure in figures),
    ]
    write_text(folder / "README.md", "\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m experiments.results RUN_DIRECTORY")
    try:
        print(f"kept in {publish(Path(sys.argv[1]))}")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
