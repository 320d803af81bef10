"""Coordinate descent over groups: one linear assignment at a time, for many networks at once.

Git Re-Basin's weight matching (Ainsworth, Hayase & Srinivasa 2023, algorithm 1), batched over networks. Three
things make it fast: costs that depend on no other group are computed once, a group is visited again only
after a neighbour has changed, and networks that have settled drop out.

The default start settles the groups from input to output, each by the features whose other groups are
settled already. It is worth more than any number of sweeps: from the identity the outgoing weights are noise
at first, and descent ends in a worse optimum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from symbnn.symmetry.alignment.search.cost import is_simple
from symbnn.symmetry.alignment.search.problem import (
    HostPermutations,
    Problem,
    groups_of,
    having,
    identity_permutations,
    objective,
    restricted,
)
from symbnn.symmetry.alignment.search.steps import improve

# Relative gains below this are rounding of float32 sums.
ROUNDING = 1e-6


class Descent(NamedTuple):
    """Where the descent of every network ended."""

    permutations: HostPermutations
    objective: np.ndarray
    """Inner product with the targets, `(sweeps + 1, items)`, non-decreasing."""
    converged: np.ndarray


def descend(
    problem: Problem, start: HostPermutations, *, order: Sequence[str], max_sweeps: int, tolerance: float
) -> Descent:
    """Sweeps over the groups in `order` until no assignment gains more than `tolerance` relative.

    A smaller gain is taken as well, but wakes no neighbours.
    """
    items = problem.num_items
    permutations = {name: value.copy() for name, value in start.items()}
    value = objective(problem, None, permutations)
    history = [value]
    is_pending = {name: np.ones(items, bool) for name in order}
    neighbours = {name: _neighbours(problem, name) for name in order}
    for _ in range(max_sweeps):
        value = value.copy()
        for name in order:
            index = np.flatnonzero(is_pending[name])
            is_pending[name][:] = False
            size = np.abs(value[index])
            gain = improve(problem, name, permutations, index, ROUNDING * size)
            value[index] += gain
            woken = index[gain > max(tolerance, ROUNDING) * size]
            for neighbour in neighbours[name] & is_pending.keys():
                is_pending[neighbour][woken] = True
        history.append(value)
        if not any(pending.any() for pending in is_pending.values()):
            break
    is_open = np.any([np.zeros(items, bool), *is_pending.values()], axis=0)
    return Descent(permutations, np.stack(history), ~is_open)


def settle(problem: Problem, order: Sequence[str]) -> HostPermutations:
    """Start: every group in turn by the features whose other groups are settled already."""
    permutations = identity_permutations(problem.spec, problem.num_items)
    settled: set[str] = set()
    everything = np.arange(problem.num_items)
    always = np.full(problem.num_items, -np.inf)
    for name in order:
        inner = {group.name for group in problem.spec.groups if name in group.over}
        ignored = {name, *problem.spec.group(name).over, *inner}
        features = having(problem, name)
        known = [i for i in features if groups_of(problem.spec, problem.leaves[i]) - ignored <= settled]
        improve(restricted(problem, known or features), name, permutations, everything, always)
        settled.add(name)
    return permutations


def _neighbours(problem: Problem, group: str) -> set[str]:
    """Groups whose cost changes with this one's permutation."""
    near = set[str]().union(*(groups_of(problem.spec, problem.leaves[i]) for i in having(problem, group)))
    return near - {group} if is_simple(problem.spec, problem.leaves, group) else near
