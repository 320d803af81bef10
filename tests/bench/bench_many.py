"""Matching of trained networks against published methods: objective, merged accuracy, processor time.

Perceptrons with LayerNorm on MNIST (`zoo`); MergeMany, Git Re-Basin for pairs and C2M3 are written in
numpy (`published`), with one thread for its products, so that no processor time is lost to waiting threads.
Every method is run on the same networks; ours once before, to be compiled. What the slow ones found is kept
beside the networks, as C2M3 takes up to an hour.

`python -m tests.bench.bench_many` measures everything and writes `results/matching.md`; the largest size only
where it has been measured once before, by `python -m tests.bench.bench_many 512x50`.
"""

import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import threadpoolctl

from symbnn import data, symmetry, tree
from tests.bench import Row, published
from tests.bench.zoo import SEED, Zoo, accuracy, folder, is_kept, zoo

RESULT = pathlib.Path(__file__).parents[2] / "results" / "matching.md"
SIZES = ((16, 5), (16, 50), (64, 10), (512, 5), (512, 50))
PAIRED = ((16, 10), (64, 10), (512, 5))
# Ten minutes of training and an hour of C2M3: measured as a row only where all of it is kept already.
LARGE = 10_000
# Processor seconds below which a method is measured anew, and so many times more; the least counts.
QUICK, REPEATS = 1.0, 4
# What the faster of the published methods does in less than this, ours must do in this: starting some two
# hundred compiled programs takes 30 ms, whatever they compute.
BLINK = 0.1
# Relative differences below this are rounding.
EQUAL = 1e-6

Merge = Callable[[published.Axes, list[published.Network]], list[published.Network]]
PUBLISHED: dict[str, Merge] = {
    "MergeMany": lambda axes, networks: published.merge_many(axes, networks, np.random.default_rng(0)),
    "C2M3": published.universe,
}


class Merged(NamedTuple):
    """What a method made of some networks."""

    accuracy: float
    """Of their mean."""
    objective: float
    """Mean inner product of two of them."""
    seconds: float
    """Processor time."""

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.2f} % ({self.objective:.2f}) {self.seconds:.2f} s"


class Pairs(NamedTuple):
    """Pairs of networks, ours against Git Re-Basin's."""

    gaps: np.ndarray
    """Relative differences of the objectives."""
    ours: float
    theirs: float
    """Processor time of all pairs."""


def rows() -> Iterator[Row]:
    """Many networks at several sizes, then pairs."""
    try:
        zoo(16, 1)
    except data.DataError as error:
        print(f"no rows of trained networks: {error}", flush=True)
        return
    for width, num in SIZES:
        if is_measured(width, num):
            yield many_row(width, num)
    yield pairs_row(512, 5)


def is_measured(width: int, num: int) -> bool:
    """Whether a size is small, or all that takes long is kept; says what to run if not."""
    everything = is_kept(width, slice(num)) and all((name, width, num) in _kept() for name in PUBLISHED)
    if width * num > LARGE and not everything:
        print(f"no row of {num} networks of width {width}: python -m tests.bench.bench_many {width}x{num}")
        return False
    return True


def many_row(width: int, num: int) -> Row:
    """`reference="mean"` against MergeMany and C2M3."""
    found = many(width, num)
    ours = found.pop("ours")
    fastest = min(one.seconds for one in found.values())
    is_higher = all(ours.objective >= (1 - EQUAL) * one.objective for one in found.values())
    what = f"align {num} trained networks of width {width} to their mean"
    note = f"merged accuracy (mean inner product of pairs) processor time: ours {ours}, " + ", ".join(
        f"{name} {one}" for name, one in found.items()
    )
    if fastest < BLINK:
        return Row(what, BLINK, ours.seconds, "s of a core", bool(ours.seconds <= BLINK and is_higher), note)
    ratio = fastest / ours.seconds
    unit = "times the faster of MergeMany and C2M3, processor time"
    return Row(what, 1.0, ratio, unit, bool(ratio >= 1 and is_higher), note)


def pairs_row(width: int, num: int) -> Row:
    """Every pair of some networks against Git Re-Basin's weight matching."""
    found = pairs(width, num)
    ratio, gaps = found.theirs / found.ours, found.gaps
    return Row(
        f"align pairs of trained networks of width {width}",
        3.0,
        ratio,
        "times Git Re-Basin, processor time",
        bool(ratio >= 3 and min(gaps) >= -EQUAL),
        f"objective {100 * min(gaps):+.3f} % to {100 * max(gaps):+.3f} %, on average "
        f"{100 * np.mean(gaps):+.3f} %; higher on {sum(gaps > EQUAL)} of {len(gaps)} pairs, "
        f"lower on {sum(gaps < -EQUAL)}",
    )


def many(width: int, num: int) -> dict[str, Merged]:
    """Every method on the same networks, ours first."""
    found = zoo(width, num)
    axes, networks = published.axes_of(found.spec), published.unstacked(found.networks)
    _ours(found)
    merged = {"ours": _measured(width, lambda: _ours(found))}
    for name, merge in PUBLISHED.items():
        kept = _kept().get((name, width, num))
        if kept is None or kept.seconds < QUICK:
            kept = _measured(width, lambda merge=merge: merge(axes, networks))
            _keep(_kept() | {(name, width, num): kept})
        merged[name] = kept
    return merged


def pairs(width: int, num: int) -> Pairs:
    """Every pair of some networks, one pair a call."""
    found = zoo(width, num)
    axes, networks = published.axes_of(found.spec), published.unstacked(found.networks)
    ours, theirs, gaps = 0.0, 0.0, []
    for a, b in [(0, 1), *itertools.combinations(range(num), 2)]:
        one, target = tree.take(found.networks, slice(b, b + 1)), tree.take(found.networks, a)
        result, seconds = _processor(
            lambda one=one, target=target: symmetry.align(found.spec, one, reference=target)
        )
        ours += seconds
        random = np.random.default_rng(num * a + b)
        orders, seconds = _processor(
            lambda a=a, b=b, random=random: published.weight_matching(axes, networks[a], networks[b], random)
        )
        theirs += seconds
        value = published.product(axes, networks[a], published.moved(axes, orders, networks[b]))
        gaps.append(result.objective[-1, 0] / value - 1)
        if len(gaps) == 1:
            # The first pair was for the compiler.
            ours, theirs, gaps = 0.0, 0.0, [gaps[0]]
    return Pairs(np.array(gaps[1:]), ours, theirs)


def page(sizes: Iterable[tuple[int, int]]) -> str:
    """Both tables."""
    names = ("ours", *PUBLISHED)
    lines = [
        "# Matching trained networks",
        "",
        "`python -m tests.bench.bench_many` on perceptrons 784-w-w-w-10 with LayerNorm, trained on MNIST "
        "(`tests/bench/zoo.py`). MergeMany, C2M3 and Git Re-Basin are ports in numpy "
        "(`tests/bench/published.py`). Times are of the processor, on all its cores; ours without "
        "compilation, which the first call of a size pays once. The temperatures and block sizes of ours "
        "were chosen on other networks of the same kind (another seed); the ports have no settings.",
        "",
        '## Many networks to their mean (`align(reference="mean")`)',
        "",
        "Accuracy of the mean network in %, mean inner product of two networks, processor seconds.",
        "",
        f"| width, networks | {' | '.join(names)} |",
        f"|{'---|' * (1 + len(names))}",
    ]
    for width, num in sizes:
        found = many(width, num)
        cells = [
            f"{100 * one.accuracy:.2f} ({one.objective:.2f}) {one.seconds:.2f} s" for one in found.values()
        ]
        lines.append(f"| {width}, {num} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "## Pairs (`align` with its default settings, against Git Re-Basin's weight matching)",
        "",
        "| width | pairs | higher | lower | objective, least and mean difference | processor time |",
        "|---|---|---|---|---|---|",
    ]
    for width, num in PAIRED:
        gaps, ours, theirs = pairs(width, num)
        lines.append(
            f"| {width} | {len(gaps)} | {sum(gaps > EQUAL)} | {sum(gaps < -EQUAL)} | "
            f"{100 * min(gaps):+.3f} %, {100 * np.mean(gaps):+.3f} % | "
            f"{1e3 * ours / len(gaps):.0f} ms against {1e3 * theirs / len(gaps):.0f} ms a pair |"
        )
        print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def _ours(found: Zoo) -> list[published.Network]:
    return published.unstacked(symmetry.align(found.spec, found.networks, reference="mean").samples)


def _measured(width: int, merge: Callable[[], list[published.Network]]) -> Merged:
    networks, seconds = _processor(merge)
    if seconds < QUICK:
        seconds = min(seconds, *(_processor(merge)[1] for _ in range(REPEATS)))
    mean = {name: np.mean([one[name] for one in networks], axis=0) for name in networks[0]}
    return Merged(accuracy(width, tree.nested(mean)), published.mean_pair_product(networks), seconds)


def _processor(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the processor time it took on all cores."""
    with threadpoolctl.threadpool_limits(1, "blas"):
        begin = time.process_time()
        result = function()
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])
        return result, time.process_time() - begin


def _kept() -> dict[tuple[str, int, int], Merged]:
    """What published methods found, by method, width and number of networks."""
    path = folder() / f"published_{SEED}.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    return {(name, width, num): Merged(*one) for name, width, num, one in entries}


def _keep(found: dict[tuple[str, int, int], Merged]) -> None:
    path = folder() / f"published_{SEED}.json"
    path.with_suffix(".new").write_text(json.dumps([[*which, list(one)] for which, one in found.items()]))
    os.replace(path.with_suffix(".new"), path)


if __name__ == "__main__":
    asked = tuple((int(width), int(num)) for width, num in (word.split("x") for word in sys.argv[1:]))
    written = page(asked or [size for size in SIZES if is_measured(*size)])
    if not asked:
        RESULT.write_text(written, encoding="utf-8")
