"""Coordinate descent over groups: one linear assignment at a time, for many networks at once.

Git Re-Basin's weight matching (Ainsworth, Hayase & Srinivasa 2023, algorithm 1), batched over networks. Three
things make it fast: costs that depend on no other group are computed once, a group is visited again only
after a neighbour has changed, and networks that have settled drop out.

The default start settles the groups from input to output, each by the features whose other groups are
settled already. It is worth more than any number of sweeps: from the identity the outgoing weights are noise
at first, and descent ends in a worse optimum.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.act import Element, compose, identity
from symbnn.symmetry.alignment.assignment import Solver, assign
from symbnn.symmetry.alignment.cost import block_cost, inner_product, is_simple, occurrences
from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.spec import Leaf, SymmetrySpec

# A block's cost matrices fill about this much memory: enough work for a call, still in the cache's reach.
BLOCK_BYTES = 16 * 2**20

HostPermutations = dict[str, np.ndarray]


class Problem(NamedTuple):
    """Features of a chunk of networks and the targets they are matched to."""

    spec: SymmetrySpec
    leaves: tuple[Leaf, ...]
    targets: Arrays
    arrays: Arrays
    fixed: dict[str, jax.Array]
    """Costs by group, of the features that have no other group."""
    solver: Solver

    @property
    def num_items(self) -> int:
        """Number of networks."""
        return self.arrays[0].shape[0]


class Descent(NamedTuple):
    """Where the descent of every network ended."""

    permutations: HostPermutations
    objective: np.ndarray
    """Inner product with the targets, `(sweeps + 1, items)`, non-decreasing."""
    converged: np.ndarray


def make_problem(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, *, solver: Solver = "auto"
) -> Problem:
    """Problem with the costs that never change computed once."""
    light = SymmetrySpec(groups=spec.groups, leaves=(), indices=spec.indices)
    problem = Problem(light, leaves, targets, arrays, {}, solver)
    fixed = {}
    for group in light.groups:
        own = [i for i in _having(problem, group.name) if _is_fixed(problem, i, group.name)]
        # Worth keeping when it saves a real multiplication: a bias column costs less than reading the cache.
        if sum(math.prod(leaves[i].shape) for i in own) >= group.size**2:
            start = identity_permutations(light, problem.num_items)
            blocks = [
                _cost(problem, own, None, group.name, index, start)[:size]
                for index, size in _blocks(problem, group.name, np.arange(problem.num_items))
            ]
            fixed[group.name] = jnp.concatenate(blocks)
    return problem._replace(fixed=fixed)


def descend(
    problem: Problem,
    start: HostPermutations,
    *,
    order: Sequence[str],
    max_sweeps: int,
    tolerance: float,
) -> Descent:
    """Sweeps over the groups in `order` until no assignment gains more than `tolerance` relative."""
    items = problem.num_items
    permutations = {name: value.copy() for name, value in start.items()}
    value = np.asarray(
        inner_product(problem.spec, problem.leaves, problem.targets, problem.arrays, _device(permutations)),
        np.float64,
    )
    history = [value]
    is_pending = {name: np.ones(items, bool) for name in order}
    neighbours = {name: _neighbours(problem, name) for name in order}
    for _ in range(max_sweeps):
        value = value.copy()
        for name in order:
            index = np.flatnonzero(is_pending[name])
            is_pending[name][:] = False
            changed, gain = improve(problem, name, permutations, index, tolerance * np.abs(value[index]))
            value[index] += gain
            for neighbour in neighbours[name]:
                if neighbour in is_pending:
                    is_pending[neighbour][index[changed]] = True
        history.append(value)
        if not any(pending.any() for pending in is_pending.values()):
            break
    converged = ~np.any(list(is_pending.values()), axis=0) if is_pending else np.ones(items, bool)
    return Descent(permutations, np.stack(history), converged)


def improve(
    problem: Problem, group: str, permutations: HostPermutations, index: np.ndarray, threshold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Best permutation of one group for the networks at `index`, in place; which changed and by how much."""
    changed, gain = np.zeros(len(index), bool), np.zeros(len(index))
    features = _having(problem, group)
    if problem.spec.group(group).size < 2 or not features:
        return changed, gain
    fixed = problem.fixed.get(group)
    dynamic = features if fixed is None else [i for i in features if not _is_fixed(problem, i, group)]
    device = _device(permutations)
    pending = [
        (rows, size, _cost(problem, dynamic, fixed, group, rows, device))
        for rows, size in _blocks(problem, group, index)
    ]
    done = 0
    for rows, size, cost in pending:
        here = slice(done, done + size)
        done += size
        step, step_gain = _solve(problem, cost[:size])
        proposal = {name: value[rows[:size]] for name, value in permutations.items()}
        _follow(problem.spec, group, proposal, step)
        if not is_simple(problem.spec, problem.leaves, group):
            step_gain = _true_gain(problem, rows[:size], permutations, proposal)
        is_better = step_gain > threshold[here]
        for name, value in proposal.items():
            permutations[name][rows[:size][is_better]] = value[is_better]
        changed[here], gain[here] = is_better, np.where(is_better, step_gain, 0.0)
    return changed, gain


def settle(problem: Problem, order: Sequence[str]) -> HostPermutations:
    """Start: every group in turn by the features whose other groups are settled already."""
    permutations = identity_permutations(problem.spec, problem.num_items)
    settled: set[str] = set()
    everything = np.arange(problem.num_items)
    for name in order:
        group = problem.spec.group(name)
        features = _having(problem, name)
        known = [
            i
            for i in features
            if _groups_of(problem.spec, problem.leaves[i]) - {name, *group.over} <= settled
        ]
        part = _restricted(problem, known or features)
        improve(part, name, permutations, everything, np.full(problem.num_items, -np.inf))
        settled.add(name)
    return permutations


def identity_permutations(spec: SymmetrySpec, items: int) -> HostPermutations:
    """The identity for every network."""
    return {
        group.name: np.broadcast_to(np.arange(group.size, dtype=np.int32), (items, *spec.shape(group))).copy()
        for group in spec.groups
    }


def _restricted(problem: Problem, features: list[int]) -> Problem:
    return problem._replace(
        leaves=tuple(problem.leaves[i] for i in features),
        targets=tuple(problem.targets[i] for i in features),
        arrays=tuple(problem.arrays[i] for i in features),
    )


def _solve(problem: Problem, cost: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Best relabelling of every matrix and its gain, summed over what the group varies over."""
    units = cost.shape[-1]
    step = assign(cost.reshape(-1, units, units), solver=problem.solver).reshape(cost.shape[:-1])
    gain = np.asarray(_gain(cost, jnp.asarray(step)), np.float64)
    return step, gain


@jax.jit
def _gain(cost: jax.Array, step: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(cost, step[..., None], axis=-1)[..., 0]
    return jnp.sum((chosen - jnp.diagonal(cost, axis1=-2, axis2=-1)).reshape(len(cost), -1), axis=-1)


def _true_gain(
    problem: Problem, rows: np.ndarray, before: HostPermutations, after: HostPermutations
) -> np.ndarray:
    arrays = tuple(array[rows] for array in problem.arrays)
    old = {name: value[rows] for name, value in before.items()}
    values = [
        np.asarray(
            inner_product(problem.spec, problem.leaves, problem.targets, arrays, _device(permutations)),
            np.float64,
        )
        for permutations in (old, after)
    ]
    return values[1] - values[0]


def _follow(spec: SymmetrySpec, group: str, permutations: HostPermutations, step: np.ndarray) -> None:
    """Compose the step with the current permutations, in place; groups over this one move along."""
    if not any(group in other.over for other in spec.groups):
        permutations[group] = np.take_along_axis(permutations[group], step.astype(np.int32), axis=-1)
        return
    moved = _compose(spec, group, jnp.asarray(step), _device(permutations))
    permutations.update({name: np.array(value) for name, value in moved.items()})


def _compose(spec: SymmetrySpec, group: str, step: jax.Array, permutations: dict) -> dict:
    def one(one_step: jax.Array, current: dict) -> dict:
        unit = identity(spec).permutations | {group: one_step}
        return compose(spec, Element(unit, {}, {}), Element(current, {}, {})).permutations

    return jax.vmap(one)(step, permutations)


def _cost(
    problem: Problem,
    features: list[int],
    fixed: jax.Array | None,
    group: str,
    index: np.ndarray,
    permutations: dict,
) -> jax.Array:
    part = _restricted(problem, features)
    return block_cost(
        problem.spec, part.leaves, group, part.targets, part.arrays, fixed, jnp.asarray(index), permutations
    )


def _blocks(problem: Problem, group: str, index: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """The index cut into blocks of one size, the last one filled up by repeating: one compilation."""
    matrices = np.prod(problem.spec.shape(problem.spec.group(group)), dtype=int)
    size = 4 * int(matrices) * problem.spec.group(group).size
    length = min(max(1, BLOCK_BYTES // size), problem.num_items)
    return [
        (np.resize(index[start : start + length], length), min(length, len(index) - start))
        for start in range(0, len(index), length)
    ]


def _having(problem: Problem, group: str) -> list[int]:
    return [i for i, leaf in enumerate(problem.leaves) if occurrences(leaf, group)]


def _groups_of(spec: SymmetrySpec, leaf: Leaf) -> set[str]:
    groups = {group.name for group in spec.groups}
    return {factor.group for _, factor in leaf.factors() if factor.group in groups}


def _is_fixed(problem: Problem, feature: int, group: str) -> bool:
    """Whether the feature's cost for the group never changes: no other group in it, and none over it."""
    return _groups_of(problem.spec, problem.leaves[feature]) == {group} and is_simple(
        problem.spec, problem.leaves, group
    )


def _neighbours(problem: Problem, group: str) -> set[str]:
    """Groups whose cost changes with this one's permutation."""
    near = set[str]().union(*(_groups_of(problem.spec, problem.leaves[i]) for i in _having(problem, group)))
    return near if not is_simple(problem.spec, problem.leaves, group) else near - {group}


def _device(permutations: HostPermutations) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in permutations.items()}
