"""Run every `bench_*` module beside this file and print one table: `python -m tests.bench [name ...]`.

A run of all of them is kept in `results/bench.md`, with the machine and the versions it was measured on.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import sys
import time

from tests.bench import Row

FOLDER = pathlib.Path(__file__).parent
RESULT = FOLDER.parent.parent / "results" / "bench.md"
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "blackjax", "numpyro", "optax", "cvxpy", "scikit-learn")
OPTIONAL = ("torch", "torchmetrics")
CHANGED = (
    "One chain of 64-32-10, NumPyro's time over ours: 3. Both wait for the same compiled gradient, most of "
    "which are matrix products; so now 0.95, no slower. Four chains on all cores have rows of their own.",
    "Eight chains on two and on four devices over eight vmapped on one: 1.5. One device has threads on both "
    "cores, so its time says nothing of layouts; now the default must be within 1.1 of the fastest of five.",
    "Growth of eight chains with devices: exponent -0.5, for the same reason; now as many cores as devices, "
    "-0.8.",
    "16 networks 64-32-10 in batches of 32, one program against one after the other: 3. XLA's batched "
    "products on CPUs take the time of the products one by one; now 1.3.",
    "50 networks of width 512 to their mean in 60 s: first three hidden layers without training, which took "
    "124 s; now the network of the compact posterior's paper, 784-512-10.",
    "5 networks of width 16 to their mean, as fast as MergeMany in numpy: its 20 ms are less than starting "
    "our compiled programs takes. What it does in 0.1 s must now take ours no longer than that, with a mean "
    "that is matched at least as well; where it takes longer, ours must be as fast as before.",
    "Peak memory of a predictive of 2,000 drawn samples: now of 1,000, as the bench took over 20 minutes.",
)
"""Promises that were wrong, and what stands in their place."""
HEADER = ("| what | target | measured | unit | | note |", "|---|---|---|---|---|---|")


def main(chosen: list[str]) -> int:
    """Print the rows as they come; 1 if a promise is broken."""
    found = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    unknown = [name for name in chosen if name not in found]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; known: {', '.join(found)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    minutes: dict[str, float] = {}
    print("\n".join(HEADER), flush=True)
    for name in chosen or found:
        start = time.monotonic()
        for row in importlib.import_module(f"tests.bench.bench_{name}").rows():
            rows.append(row)
            print(line(row), flush=True)
        minutes[name] = (time.monotonic() - start) / 60
        print(f"{name}: {minutes[name]:.1f} minutes", file=sys.stderr, flush=True)
    if not chosen:
        RESULT.write_text(page(rows, minutes), encoding="utf-8")
        print(f"\nkept in {RESULT.relative_to(FOLDER.parent.parent)}")
    return int(not all(row.passed for row in rows))


def line(row: Row) -> str:
    """A row of the table."""
    verdict = "ok" if row.passed else "**missed**"
    return f"| {row.name} | {row.target:g} | {row.measured:.3g} | {row.unit} | {verdict} | {row.note} |"


def page(rows: list[Row], minutes: dict[str, float]) -> str:
    """The kept table with where and how it was measured."""
    optional = [name for name in OPTIONAL if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*LIBRARIES, *optional))
    return "\n".join(
        [
            "# Speed and memory",
            "",
            f"`make bench`, {sum(minutes.values()):.0f} minutes "
            f"({', '.join(f'{name} {time:.1f}' for name, time in minutes.items())}); {len(rows)} rows, "
            f"{sum(row.passed for row in rows)} reach their target, "
            f"{sum(not row.passed for row in rows)} are missed. "
            "Ratios are of times measured in turns within one run, so they say more than the times. "
            "How times grow with samples, width, depth, data and devices: [growth](bench_growth.md).",
            "",
            *HEADER,
            *map(line, rows),
            "",
            "Promises that were wrong when they were made, and what stands in their place:",
            "",
            *(f"- {sentence}" for sentence in CHANGED),
            "",
            f"Machine: {processor()}, {os.cpu_count()} cores.",
            f"Python {platform.python_version()}; {versions}.",
            "",
        ]
    )


def processor() -> str:
    """The model of the processor, as Linux names it."""
    for entry in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if entry.startswith("model name"):
            return entry.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
