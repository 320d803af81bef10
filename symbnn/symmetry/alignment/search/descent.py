"""Coordinate descent over groups: one linear assignment at a time, for many networks at once.

Git Re-Basin's weight matching (Ainsworth, Hayase & Srinivasa 2023, algorithm 1), batched over networks. Three
things make it fast: costs that depend on no other group are computed once, a group is visited again only
after a neighbour has changed, and networks that have settled drop out.

The default start settles the groups from input to output, each by the features whose other groups are
settled already. It is worth more than any number of sweeps: from the identity the outgoing weights are noise
at first, and descent ends in a worse optimum.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys
from symbnn.symmetry.alignment.search.cost import is_simple
from symbnn.symmetry.alignment.search.problem import (
    Chunk,
    HostPermutations,
    Problem,
    Search,
    groups_of,
    having,
    identity_permutations,
    make_problem,
    objective,
    restricted,
)
from symbnn.symmetry.alignment.search.steps import improve
from symbnn.symmetry.group import random_element
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.symmetry.spec.layer_order import depth_order
from symbnn.types import Key

# Restarts run together as long as the repeated features fill no more memory than this.
REPEATED_BYTES = 32 * 2**20
# Relative gains below this are rounding of float32 sums.
ROUNDING = 1e-6
# Sweeps over groups of matrices after the last that gained: each brings them nearer to their optimum.
POLISHING = 10


class Descent(NamedTuple):
    """Where the descent of every network ended."""

    permutations: HostPermutations
    objective: np.ndarray
    """Inner product with the targets, `(sweeps + 1, items)`, non-decreasing."""
    converged: np.ndarray


def by_descent(search: Search, chunk: Chunk) -> Descent:
    """Descent from the start, then from the identity and from random permutations."""
    problem = make_problem(chunk, search.solver)
    order = depth_order(chunk.spec)
    # From permutations that are nearly right the last group moves most, as few weights read it: so it goes
    # first, and those before it are seldom visited twice.
    onwards = order if chunk.start is None else order[::-1]
    run = partial(descend, order=onwards, max_sweeps=search.max_sweeps, tolerance=search.tolerance)
    best = run(problem, settle(problem, order) if chunk.start is None else chunk.start)
    size = sum(array.nbytes for array in jax.tree.leaves((problem.arrays, problem.fixed)))
    together = max(1, REPEATED_BYTES // max(size, 1))
    for begin in range(0, search.restarts, together):
        restarts = range(begin, min(begin + together, search.restarts))
        starts = [
            random_permutations(problem.spec, problem.num_items, search.key, restart)
            if restart
            else identity_permutations(problem.spec, problem.num_items)
            for restart in restarts
        ]
        start = {name: np.concatenate([one[name] for one in starts]) for name in starts[0]}
        ends = run(_repeated(problem, len(starts)), start)
        for number in range(len(starts)):
            best = _better(
                best, _part(ends, slice(number * problem.num_items, (number + 1) * problem.num_items))
            )
    _polish(problem, best.permutations, best.objective[-1], order)
    return best


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


def _polish(
    problem: Problem, permutations: HostPermutations, value: np.ndarray, order: Sequence[str]
) -> None:
    """More steps of rotations and mixtures than the objective can tell apart.

    Near its top the objective is flat: a gain of 1e-6, the rounding of its sums, is 1e-3 in the weights.
    """
    mixed = [name for name in order if problem.spec.group(name).is_linear]
    everything, least = np.arange(problem.num_items), -ROUNDING * np.abs(value)
    for _ in range(POLISHING if len(mixed) > 1 else 0):
        for name in mixed:
            improve(problem, name, permutations, everything, least)


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


def random_permutations(spec: SymmetrySpec, items: int, key: Key | None, number: int) -> HostPermutations:
    """Start: one of many random labellings of every network, unflipped."""
    key = jax.random.fold_in(jax.random.key(0) if key is None else key, number)
    all_keys = jax.random.split(keys.named(key, "start"), items)
    drawn = jax.vmap(lambda one: random_element(spec, one).permutations)(all_keys)
    return identity_permutations(spec, items) | {
        name: np.array(value, np.int32) for name, value in drawn.items()
    }


def joined(results: Sequence[Descent]) -> Descent:
    """Results of several chunks as one; a network that ended early keeps its last objective."""
    sweeps = max(len(result.objective) for result in results)
    return Descent(
        {
            name: np.concatenate([result.permutations[name] for result in results])
            for name in results[0].permutations
        },
        np.concatenate([_extended(result.objective, sweeps) for result in results], axis=1),
        np.concatenate([result.converged for result in results]),
    )


def _extended(objective: np.ndarray, sweeps: int) -> np.ndarray:
    """The history of an objective with its last row repeated up to that many rows."""
    return np.concatenate([objective, np.repeat(objective[-1:], sweeps - len(objective), axis=0)])


def _neighbours(problem: Problem, group: str) -> set[str]:
    """Groups whose cost changes with this one's permutation."""
    near = set[str]().union(*(groups_of(problem.spec, problem.leaves[i]) for i in having(problem, group)))
    return near - {group} if is_simple(problem.spec, problem.leaves, group) else near


def _repeated(problem: Problem, times: int) -> Problem:
    """The same networks several times over: many descents at the price of few calls."""
    again = partial(jax.tree.map, lambda array: jnp.tile(array, (times, *[1] * (array.ndim - 1))))
    return problem._replace(arrays=again(problem.arrays), fixed=again(problem.fixed))


def _part(found: Descent, rows: slice) -> Descent:
    return Descent(
        {name: value[rows] for name, value in found.permutations.items()},
        found.objective[:, rows],
        found.converged[rows],
    )


def _better(a: Descent, b: Descent) -> Descent:
    """For every network the descent that ended higher."""
    is_b = b.objective[-1] > a.objective[-1]
    sweeps = max(len(a.objective), len(b.objective))

    def chosen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(is_b.reshape(-1, *[1] * (x.ndim - 1)), y, x)

    return Descent(
        {name: chosen(value, b.permutations[name]) for name, value in a.permutations.items()},
        np.where(is_b, _extended(b.objective, sweeps), _extended(a.objective, sweeps)),
        chosen(a.converged, b.converged),
    )
