"""Every network matched to the mean of the *others*, round after round; the mean pair product never falls.

With y_s = g_s x_s and S = Σ_s y_s, the mean inner product of two networks, Σ_s ⟨y_s, S − y_s⟩ / N(N − 1), is
raised by matching any one network to the sum of the others. (Matched to a mean that contains it, a network
finds itself, and keeps its labels.) Networks are matched a block at a time, one group after the other; what a
block gains by its changes d_s together is ⟨S, d⟩ + ½ ‖d‖² with d = Σ d_s. Should that be a loss, as when two
networks trade labels, the halves of the block go one after the other.

MergeMany (Ainsworth, Hayase & Srinivasa 2023, algorithm 3) climbs like this, one network at a time.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.means import mean_features, squared_lengths
from symbnn.symmetry.alignment.search import (
    ROUNDING,
    Chunk,
    Descent,
    DevicePermutations,
    HostPermutations,
    Problem,
    Search,
    having,
    improve,
    moved_feature,
    objective,
    plain_problem,
    restricted,
)
from symbnn.symmetry.spec import Leaf, SymmetrySpec
from symbnn.symmetry.spec.layer_order import depth_order

# A block is this share of the networks: half of what a network is matched to stands still meanwhile.
BLOCK_SHARE = 2


def leave_one_out(search: Search, matching: Matching, start: HostPermutations) -> Descent:
    """Rounds over the networks, each matched to the mean of the others, until a round gains too little.

    The objective of a network is its mean inner product with the others. A round visits the networks that
    moved in the last one; when those have settled, all of them.
    """
    num = tree.num_samples(matching.samples)
    permutations = {name: value.copy() for name, value in start.items()}
    if num == 1:
        return Descent(permutations, np.zeros((1, 1)), np.ones(1, bool))
    matching = matching.extracted()
    total = _sum(matching, permutations)
    value = _with_others(matching, permutations, total)
    history, index = [value], np.arange(num)
    for _ in range(search.max_rounds):
        gain, total = _round(search, matching, permutations, index, total, np.abs(value))
        value = _with_others(matching, permutations, total)
        history.append(value)
        enough = max(search.tolerance, ROUNDING) * np.abs(value).sum()
        if (num - 1) * enough >= 2 * gain.sum():
            if len(index) == num:
                return Descent(permutations, np.stack(history), np.ones(num, bool))
            index = np.arange(num)
        else:
            index = np.flatnonzero(gain > 0)
    return Descent(permutations, np.stack(history), np.zeros(num, bool))


def _sum(matching: Matching, permutations: HostPermutations) -> Arrays:
    """Of all networks, each moved by its permutations."""
    num = tree.num_samples(matching.samples)
    return tuple(num * mean for mean in mean_features(matching, permutations))


def _with_others(matching: Matching, permutations: HostPermutations, total: Arrays) -> np.ndarray:
    """Mean inner product of every network with the others, given the sum of all."""
    values = []
    for chunk, arrays in matching.chunks():
        problem = plain_problem(Chunk(matching.spec, matching.features.leaves, total, arrays))
        with_all = objective(problem, None, {name: value[chunk] for name, value in permutations.items()})
        values.append(with_all - np.asarray(squared_lengths(arrays), np.float64))
    return np.concatenate(values) / (tree.num_samples(matching.samples) - 1)


class _Climb(NamedTuple):
    """A chunk of networks while their labels improve; permutations are those of all networks."""

    problem: Problem
    begin: int
    permutations: HostPermutations
    size: np.ndarray
    """Of every network's objective, for what counts as a gain."""


def _round(
    search: Search,
    matching: Matching,
    permutations: HostPermutations,
    index: np.ndarray,
    total: Arrays,
    size: np.ndarray,
) -> tuple[np.ndarray, Arrays]:
    """Every group of the networks at `index` once.

    By how much each of them raised the sum over pairs, and the sum of all networks after that.
    """
    num = tree.num_samples(matching.samples)
    gain = np.zeros(num)
    length = 1 << max(0, -(-num // BLOCK_SHARE) - 1).bit_length()
    for chunk, arrays in matching.chunks():
        chosen = index[(index >= chunk.start) & (index < chunk.stop)]
        problem = plain_problem(Chunk(matching.spec, matching.features.leaves, total, arrays), search.solver)
        climb = _Climb(problem, chunk.start, permutations, (num - 1) * size)
        for group in depth_order(matching.spec):
            features = having(problem, group)
            for begin in range(0, len(chosen) if features else 0, length):
                rows = chosen[begin : begin + length]
                part = tuple(total[i] for i in features)
                part = _raise(climb, group, rows, part, gain)
                total = tuple(
                    part[features.index(i)] if i in features else array for i, array in enumerate(total)
                )
    return gain, total


def _raise(climb: _Climb, group: str, rows: np.ndarray, total: Arrays, gain: np.ndarray) -> Arrays:
    """Relabel a group of the networks at `rows`, together or else by halves; the sum after that."""
    problem = restricted(climb.problem, having(climb.problem, group))
    before = {name: value[rows] for name, value in climb.permutations.items()}
    padded = np.resize(np.arange(len(rows)), 1 << (len(rows) - 1).bit_length())
    start = {name: value[padded] for name, value in before.items()}
    arrays, others = _others(
        problem.spec, problem.leaves, total, problem.arrays, rows[padded] - climb.begin, start
    )
    own = problem._replace(targets=others, arrays=arrays)
    found = improve(own, group, start, np.arange(len(rows)), ROUNDING * climb.size[rows])
    if not found.any():
        return total
    is_real = jnp.asarray(np.arange(len(padded)) < len(rows))
    new, together = _moved_total(problem.spec, problem.leaves, total, own.targets, arrays, start, is_real)
    if len(rows) > 1 and float(together) <= 0:
        for half in np.array_split(rows, 2):
            total = _raise(climb, group, half, total, gain)
        return total
    for name, value in climb.permutations.items():
        value[rows] = start[name][: len(rows)]
    gain[rows] += found
    return new


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _others(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    total: Arrays,
    arrays: Arrays,
    index: jax.Array | np.ndarray,
    permutations: DevicePermutations,
) -> tuple[Arrays, Arrays]:
    """Features of the networks at `index`, and for each of them the sum of all other networks."""
    picked = tuple(array[index] for array in arrays)
    own = (moved_feature(spec, leaf, permutations, array) for leaf, array in zip(leaves, picked, strict=True))
    return picked, tuple(whole - part for whole, part in zip(total, own, strict=True))


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _moved_total(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    total: Arrays,
    others: Arrays,
    arrays: Arrays,
    permutations: DevicePermutations,
    is_real: jax.Array,
) -> tuple[Arrays, jax.Array]:
    """The sum of all networks after some have moved, and what the sum over pairs has gained."""
    new, gain = [], jnp.zeros(())
    for leaf, whole, rest, array in zip(leaves, total, others, arrays, strict=True):
        change = moved_feature(spec, leaf, permutations, array) - (whole - rest)
        change = jnp.tensordot(is_real.astype(change.dtype), change, axes=1)
        new.append(whole + change)
        gain += jnp.vdot(whole, change) + jnp.vdot(change, change) / 2
    return tuple(new), gain
