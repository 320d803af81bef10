"""Matching of trained networks against published methods: objective, merged accuracy, processor time.

Perceptrons with LayerNorm on MNIST (`zoo`); MergeMany, Git Re-Basin for pairs and C2M3 are written in
numpy (`published`), with one thread for its products, so that no processor time is lost to waiting threads.
Every method is run on the same networks, one after the other; ours once before, to be compiled.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import threadpoolctl

from symbnn import data, symmetry, tree
from tests.bench import Row, published
from tests.bench.zoo import Zoo, accuracy, is_kept, zoo

SIZES = ((16, 5), (16, 50), (64, 10), (512, 5), (512, 50))
# Ten minutes of training and an hour of C2M3: measured only where the networks are kept already.
LARGE = 10_000
PAIRED = (512, 5)


class Merged(NamedTuple):
    """What a method made of some networks."""

    accuracy: float
    objective: float
    seconds: float

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.2f} % ({self.objective:.2f}) {self.seconds:.2f} s"


def rows() -> Iterator[Row]:
    """Many networks at several sizes, then pairs."""
    try:
        zoo(16, 1)
    except data.DataError as error:
        print(f"no rows of trained networks: {error}", flush=True)
        return
    for width, num in SIZES:
        if width * num > LARGE and not is_kept(width, num):
            print(f"no row of {num} networks of width {width}: python -m tests.bench.zoo {width} {num}")
            continue
        yield many_row(width, num)
    yield pairs_row(*PAIRED)


def many_row(width: int, num: int) -> Row:
    """`reference="mean"` against MergeMany and C2M3."""
    found = zoo(width, num)
    axes, networks = published.axes_of(found.spec), published.unstacked(found.networks)
    _ours(found)
    ours = _measured(lambda: _ours(found))
    theirs = {"MergeMany": _measured(lambda: published.merge_many(axes, networks, np.random.default_rng(0)))}
    if width * num <= LARGE:
        theirs["C2M3"] = _measured(lambda: published.universe(axes, networks))
    ratio = min(one.seconds for one in theirs.values()) / ours.seconds
    is_higher = all(ours.objective >= one.objective for one in theirs.values())
    return Row(
        f"align {num} trained networks of width {width} to their mean",
        1.0,
        ratio,
        "times the faster of MergeMany and C2M3, processor time",
        bool(ratio >= 1 and is_higher),
        f"merged accuracy (mean inner product of pairs) processor time: ours {ours}, "
        + ", ".join(f"{name} {one}" for name, one in theirs.items()),
    )


def pairs_row(width: int, num: int) -> Row:
    """Every pair of some networks against Git Re-Basin's weight matching."""
    found = zoo(width, num)
    axes, networks = published.axes_of(found.spec), published.unstacked(found.networks)
    first = tree.take(found.networks, slice(1, None))
    symmetry.align(found.spec, first, reference=tree.take(found.networks, 0))
    ours, theirs, gaps = 0.0, 0.0, []
    for a, b in itertools.combinations(range(num), 2):
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
    ratio = theirs / ours
    return Row(
        f"align pairs of trained networks of width {width}",
        3.0,
        ratio,
        "times Git Re-Basin, processor time",
        bool(ratio >= 3 and min(gaps) >= -1e-6),
        f"objective {100 * min(gaps):+.3f} % to {100 * max(gaps):+.3f} %, on average "
        f"{100 * np.mean(gaps):+.3f} %; higher on {sum(gap > 1e-6 for gap in gaps)} of {len(gaps)} pairs, "
        f"lower on {sum(gap < -1e-6 for gap in gaps)}",
    )


def _ours(found: Zoo) -> list[published.Network]:
    return published.unstacked(symmetry.align(found.spec, found.networks, reference="mean").samples)


def _measured(merge: Callable[[], list[published.Network]]) -> Merged:
    networks, seconds = _processor(merge)
    mean: dict[str, dict[str, np.ndarray]] = {}
    for name in networks[0]:
        layer, leaf = name.split("/")
        mean.setdefault(layer, {})[leaf] = np.mean([one[name] for one in networks], axis=0)
    return Merged(accuracy(mean), published.mean_pair_product(networks), seconds)


def _processor(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the processor time it took on all cores."""
    with threadpoolctl.threadpool_limits(1, "blas"):
        begin = time.process_time()
        result = function()
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])
        return result, time.process_time() - begin
