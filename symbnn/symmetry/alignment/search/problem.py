"""A matching problem: features of a chunk of networks, the targets, and costs by blocks of networks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.names import lookup
from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.features.signs import Parity, parity, unflipped
from symbnn.symmetry.alignment.search.assignment import SOLVERS
from symbnn.symmetry.alignment.search.cost import (
    DevicePermutations,
    axes_with,
    block_cost,
    inner_product,
    is_simple,
    target_at,
)
from symbnn.symmetry.spec import Leaf, SymmetrySpec
from symbnn.types import Key

# A block's cost matrices fill about this much memory: enough work for a call, still in the cache's reach.
BLOCK_BYTES = 16 * 2**20
# Below this a shorter block saves less than its compilation costs.
SMALL_BLOCK_BYTES = 2**20

HostPermutations = dict[str, np.ndarray]
"""By group; signs are kept beside them (`signs.sign_key`)."""


class Search(NamedTuple):
    """Settings of the search over permutations."""

    restarts: int = 0
    key: Key | None = None
    max_sweeps: int = 100
    max_rounds: int = 50
    tolerance: float = 1e-4
    solver: str = "auto"

    def check(self) -> None:
        """`ValueError` naming the first setting that cannot be."""
        for name, least in (("restarts", 0), ("max_sweeps", 1), ("max_rounds", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} must be at least {least}; got {value}")
        lookup({"auto": None, **SOLVERS}, self.solver, "assignment solver")


class Chunk(NamedTuple):
    """Networks that are matched together, and what to."""

    spec: SymmetrySpec
    leaves: tuple[Leaf, ...]
    """Descriptions of the features."""
    targets: Arrays
    arrays: Arrays
    """Features of the networks, stacked."""
    start: HostPermutations | None = None


class Problem(NamedTuple):
    """Features of a chunk of networks and the targets they are matched to."""

    spec: SymmetrySpec
    """Groups only: cheap to hash, and all that matching needs."""
    leaves: tuple[Leaf, ...]
    targets: Arrays
    """One for all networks, or with a leading axis one for each."""
    arrays: Arrays
    fixed: dict[str, jax.Array]
    """Costs by group, of the features whose cost never changes."""
    solver: str

    @property
    def num_items(self) -> int:
        """Number of networks."""
        return self.arrays[0].shape[0]


def make_problem(chunk: Chunk, solver: str) -> Problem:
    """Problem with the costs that never change computed once."""
    problem = plain_problem(chunk, solver)
    everything = np.arange(problem.num_items)
    fixed = {}
    for group in problem.spec.groups:
        own = _fixed_features(problem, group.name)
        # Worth keeping when it saves a real multiplication: a bias column costs less than reading the cache.
        if sum(math.prod(problem.leaves[i].shape) for i in own) >= group.size**2:
            start = identity_permutations(problem.spec, problem.num_items)
            blocks = cost_blocks(restricted(problem, own), group.name, everything, start)
            fixed[group.name] = jnp.concatenate([cost[: len(rows)] for rows, cost in blocks])
    return problem._replace(fixed=fixed)


def plain_problem(chunk: Chunk, solver: str = "auto") -> Problem:
    """Problem without any cost computed yet."""
    return Problem(groups_only(chunk.spec), chunk.leaves, chunk.targets, chunk.arrays, {}, solver)


def cost_blocks(
    problem: Problem, group: str, index: np.ndarray, permutations: DevicePermutations
) -> Iterator[tuple[np.ndarray, jax.Array]]:
    """Costs of a group in the current labelling, block by block: positions of the networks, costs.

    The last block has more costs than positions: they repeat, so that one shape is compiled. All blocks are
    dispatched before the first is waited for, so the device works while the host assigns.
    """
    fixed = problem.fixed.get(group)
    found = having(problem, group)
    cached = _fixed_features(problem, group) if fixed is not None else []
    part = restricted(problem, [i for i in found if i not in cached])
    odd = parity(problem.leaves[found[0]], group)
    dispatched = [
        (
            rows[:size],
            block_cost(
                part.spec, part.leaves, group, part.targets, part.arrays, fixed, rows, permutations, odd
            ),
        )
        for rows, size in blocks(problem, group, index)
    ]
    yield from dispatched


def by_parity(problem: Problem, group: str) -> dict[Parity, Problem]:
    """The problem taken apart by how its features flip with the group; one part where it has no signs."""
    features: dict[Parity, list[int]] = {}
    for i in having(problem, group):
        features.setdefault(parity(problem.leaves[i], group), []).append(i)
    cached = _fixed_features(problem, group)
    return {
        odd: restricted(problem, found)
        if set(cached) <= set(found)
        else restricted(problem, found)._replace(
            fixed={name: cost for name, cost in problem.fixed.items() if name != group}
        )
        for odd, found in features.items()
    }


def blocks(
    problem: Problem, group: str, index: np.ndarray, *, matrices: int = 1
) -> Iterator[tuple[np.ndarray, int]]:
    """The index cut into blocks of one length, the last one filled up by repeating: few compilations.

    Where a network's costs are large, a last block that would be mostly repetition is a half, a quarter, ...
    of the others.
    """
    size = 4 * matrices * math.prod(problem.spec.shape(problem.spec.group(group)))
    size *= problem.spec.group(group).size
    length = min(max(1, BLOCK_BYTES // size), problem.num_items)
    for start in range(0, len(index), length):
        part = index[start : start + length]
        needed = max(len(part), SMALL_BLOCK_BYTES // size)
        shorter = [length >> halved for halved in range(length.bit_length()) if length >> halved >= needed]
        yield np.resize(part, shorter[-1] if shorter else length), len(part)


def objective(problem: Problem, rows: np.ndarray | None, permutations: HostPermutations) -> np.ndarray:
    """Inner product with the targets, of the networks at `rows` with their permutations."""
    targets, arrays = problem.targets, problem.arrays
    if rows is not None:
        arrays = tuple(array[rows] for array in arrays)
        targets = tuple(target_at(*both, rows) for both in zip(problem.leaves, targets, strict=True))
    value = inner_product(problem.spec, problem.leaves, targets, arrays, permutations)
    return np.asarray(value, np.float64)


def restricted(problem: Problem, features: Sequence[int]) -> Problem:
    """The same problem with only those features."""
    return problem._replace(
        leaves=tuple(problem.leaves[i] for i in features),
        targets=tuple(problem.targets[i] for i in features),
        arrays=tuple(problem.arrays[i] for i in features),
    )


def having(problem: Problem, group: str) -> list[int]:
    """Features that carry the group."""
    return [i for i, leaf in enumerate(problem.leaves) if axes_with(leaf, group)]


def groups_only(spec: SymmetrySpec) -> SymmetrySpec:
    """The spec without its leaves and scales: matching mixes units by orthogonal matrices at most."""
    groups = tuple(
        replace(group, num_scales=0, kind="orthogonal" if group.is_linear else group.kind)
        for group in spec.groups
    )
    return SymmetrySpec(groups=groups, leaves=(), indices=spec.indices)


def groups_of(spec: SymmetrySpec, leaf: Leaf) -> set[str]:
    """Groups on the axes of a feature."""
    groups = {group.name for group in spec.groups}
    return {factor.group for _, factor in leaf.factors() if factor.group in groups}


def identity_permutations(spec: SymmetrySpec, items: int) -> HostPermutations:
    """The identity for every network, signs with it."""
    return {
        group.name: np.tile(np.arange(group.size, dtype=np.int32), (items, *spec.shape(group)[:-1], 1))
        for group in spec.groups
    } | unflipped(spec, items)


def _fixed_features(problem: Problem, group: str) -> list[int]:
    """Features whose cost for the group never changes, those that flip like the first of them."""
    found = [i for i in having(problem, group) if _is_fixed(problem, i, group)]
    return [i for i in found if parity(problem.leaves[i], group) == parity(problem.leaves[found[0]], group)]


def _is_fixed(problem: Problem, feature: int, group: str) -> bool:
    """Whether the feature's cost for the group never changes: no other group in it, and none over it."""
    return groups_of(problem.spec, problem.leaves[feature]) == {group} and is_simple(
        problem.spec, problem.leaves, group
    )
