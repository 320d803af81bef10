"""Run every `bench_*` module beside this file and print one table: `python -m tests.bench [name ...]`."""

import importlib
import pathlib
import sys


def main(chosen: list[str]) -> int:
    """Print the rows as they come; 1 if a promise is broken."""
    found = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in chosen if f"bench_{name}" not in found]
    if unknown:
        known = ", ".join(stem.removeprefix("bench_") for stem in found)
        print(f"no benchmark {unknown[0]!r}; known: {known}", file=sys.stderr)
        return 2
    print("| what | target | measured | unit | | note |")
    print("|---|---|---|---|---|---|")
    broken = 0
    for stem in found:
        if chosen and stem.removeprefix("bench_") not in chosen:
            continue
        for row in importlib.import_module(f"tests.bench.{stem}").rows():
            broken += not row.passed
            verdict = "ok" if row.passed else "MISSED"
            print(
                f"| {row.name} | {row.target:g} | {row.measured:.3g} | {row.unit} | {verdict} | {row.note} |",
                flush=True,
            )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
