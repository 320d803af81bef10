"""One coordinate step: the best relabelling of one group, with everything else as it is.

A group that others vary over (heads, experts) is relabelled together with them: for every pair of an outer
unit of the target and one of the network the inner assignment is solved first, and its value enters the
outer assignment. Units that may be mixed are rotated onto the target's (Procrustes), and the value of that
rotation enters likewise. Where that is not exactly the maximum (a feature with two inner groups, or with the
group twice) a step is taken only if the true objective rises. Signs are chosen pair by pair, along with the
assignment.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import Arrays, element_of
from symbnn.symmetry.alignment.features.signs import (
    MATRICES,
    SIGNS,
    Parity,
    best_signs,
    matrix_key,
    parity,
    sign_key,
    unflipped,
)
from symbnn.symmetry.alignment.search.assignment import assign
from symbnn.symmetry.alignment.search.cost import (
    DevicePermutations,
    axes_with,
    is_simple,
    moved_feature,
    pair_cost,
    target_at,
)
from symbnn.symmetry.alignment.search.problem import (
    HostPermutations,
    Problem,
    blocks,
    by_parity,
    cost_blocks,
    groups_of,
    having,
    objective,
    restricted,
)
from symbnn.symmetry.group import compose
from symbnn.symmetry.group.matrices import procrustes
from symbnn.symmetry.spec import Group, Leaf, SymmetrySpec


def improve(
    problem: Problem, group: str, permutations: HostPermutations, index: np.ndarray, threshold: np.ndarray
) -> np.ndarray:
    """Best relabelling of a group for the networks at `index`, written to `permutations`.

    Returns by how much their objectives rose: only rises above `threshold` count.
    """
    for name, value in unflipped(problem.spec, problem.num_items).items():
        permutations.setdefault(name, value)
    gained = np.zeros(len(index))
    own = problem.spec.group(group)
    # One unit has no order, but it may be the wrong way round.
    is_settled = own.size < 2 and not own.num_signs and not own.is_linear
    if is_settled or not having(problem, group):
        return gained
    propose = _nested_proposals if _inner_groups(problem.spec, group) else _plain_proposals
    propose = _mixing_proposals if problem.spec.group(group).is_linear else propose
    is_exact = is_simple(problem.spec, problem.leaves, group)
    done = 0
    for rows, step, gain in propose(problem, group, index, permutations):
        here = slice(done, done + len(rows))
        done += len(rows)
        before = {name: value[rows] for name, value in permutations.items()}
        after = follow(problem.spec, step, before)
        if not is_exact:
            gain = objective(problem, rows, after) - objective(problem, rows, before)
        is_better = gain > threshold[here]
        for name in after:
            permutations[name][rows[is_better]] = after[name][is_better]
        gained[here] = np.where(is_better, gain, 0.0)
    return gained


def follow(spec: SymmetrySpec, step: HostPermutations, permutations: HostPermutations) -> HostPermutations:
    """The permutations after a further relabelling of some groups; groups over those move along."""
    if any(set(step) & set(group.over) for group in spec.groups):
        moved = _compose(spec, step, permutations)
        return {name: np.asarray(value) for name, value in moved.items()}
    moved = dict(permutations)
    for name in step.keys() & {group.name for group in spec.groups}:
        order, key = step[name].astype(np.int32), sign_key(name)
        moved[name] = np.take_along_axis(permutations[name], order, axis=-1)
        if key in permutations:
            signs = np.take_along_axis(permutations[key], order[:, None], axis=-1)
            moved[key] = signs * step[key] if key in step else signs
    for key in step.keys() & {matrix_key(group.name) for group in spec.groups}:
        moved[key] = step[key] @ permutations[key]
    return moved


def solve(problem: Problem, cost: jax.Array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Best relabelling `(count, *over, n)` for the first networks, and its gain over the current one."""
    units, each = cost.shape[-1], math.prod(cost.shape[1:-2])
    found = assign(cost.reshape(-1, units, units), count=count * each, solver=problem.solver)
    step = found.reshape(cost.shape[:-1])
    return step[:count], np.asarray(_gain(cost, step), np.float64)[:count]


def _plain_proposals(problem: Problem, group: str, index: np.ndarray, permutations: HostPermutations):
    if problem.spec.group(group).num_signs:
        yield from _signed_proposals(problem, group, index, permutations)
        return
    for rows, cost in cost_blocks(problem, group, index, permutations):
        step, gain = solve(problem, cost, len(rows))
        yield rows, {group: step}, gain


def _mixing_proposals(problem: Problem, group: str, index: np.ndarray, permutations: HostPermutations):
    centred = problem.spec.group(group).centred
    for rows, cost in cost_blocks(problem, group, index, permutations):
        step, gain = _rotation(cost, centred)
        yield rows, {matrix_key(group): np.asarray(step)[: len(rows)]}, np.asarray(gain, float)[: len(rows)]


def _signed_proposals(problem: Problem, group: str, index: np.ndarray, current: DevicePermutations):
    found = by_parity(problem, group)
    parts = [cost_blocks(part, group, index, current) for part in found.values()]
    for together in zip(*parts, strict=True):
        rows, costs = together[0][0], tuple(cost for _, cost in together)
        best, signs = best_signs(tuple(found), costs)
        step, gain = solve(problem, best, len(rows))
        # The gain is over the current labels with the current signs, not with the best ones.
        better = _diagonal(best) - _diagonal(sum(costs[1:], start=costs[0]))
        gain = gain + np.asarray(better, np.float64)[: len(rows)]
        yield rows, {group: step, sign_key(group): chosen_signs(signs, step)}, gain


def chosen_signs(signs: jax.Array, step: np.ndarray) -> np.ndarray:
    """Signs `(count, m, *over, n)` of the pairs of an assignment, from those of all pairs `(m, b, ...)`."""
    count = len(step)
    picked = np.take_along_axis(np.asarray(signs)[:, :count], step[None, ..., None], axis=-1)[..., 0]
    return np.moveaxis(picked, 0, 1)


def _nested_proposals(problem: Problem, group: str, index: np.ndarray, permutations: HostPermutations):
    outer = problem.spec.group(group)
    inner = _inner_groups(problem.spec, group)
    part = restricted(problem, having(problem, group))
    largest = max(other.size for other in inner)
    for rows, size in blocks(problem, group, index, matrices=largest**2):
        total, costs = _nested_costs(
            part.spec, part.leaves, outer, inner, part.targets, part.arrays, rows, permutations
        )
        inner_steps = {}
        for name, by_parities in costs.items():
            if problem.spec.group(name).is_linear:
                overlap = sum(by_parities.values(), start=jnp.zeros(()))
                rotation, value = _rotations(overlap, problem.spec.group(name).centred)
                total = total + value
                inner_steps[matrix_key(name)] = np.asarray(rotation)
                continue
            cost, signs = next(iter(by_parities.values())), None
            if problem.spec.group(name).num_signs:
                cost, signs = best_signs(tuple(by_parities), tuple(by_parities.values()))
            matrices = cost.reshape(-1, *cost.shape[-2:])
            count = size * (len(matrices) // len(rows))
            found = assign(matrices, count=count, solver=problem.solver)
            total = total + _value(matrices, found).reshape(total.shape)
            inner_steps[name] = found.reshape(*total.shape, -1)
            if signs is not None:
                inner_steps[sign_key(name)] = chosen_signs(signs, inner_steps[name])
        step, _ = solve(problem, total, size)
        chosen = {name: _of_pairs(name, found[:size], step) for name, found in inner_steps.items()}
        yield rows[:size], {group: step} | chosen, np.zeros(size)


def _of_pairs(name: str, found: np.ndarray, step: np.ndarray) -> np.ndarray:
    """What was found for the chosen pairs of outer units, `(b, *over, i, i', n)`.

    Signs have an axis more in front, matrices one more behind.
    """
    if name.startswith(MATRICES):
        return np.take_along_axis(found, step[..., None, None, None], axis=-3)[..., 0, :, :]
    step = step[:, None] if name.startswith(SIGNS) else step
    return np.take_along_axis(found, step[..., None, None], axis=-2)[..., 0, :]


@partial(jax.jit, static_argnames=("spec", "leaves", "outer", "inner"))
def _nested_costs(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    outer: Group,
    inner: tuple[Group, ...],
    targets: Arrays,
    arrays: Arrays,
    index: jax.Array,
    permutations: DevicePermutations,
) -> tuple[jax.Array, dict[str, dict[Parity, jax.Array]]]:
    """Costs of outer pairs `(b, *over, i, i')` without inner units; of inner pairs for every outer pair.

    The latter by the parity of the inner group.
    """
    current = {name: value[index] for name, value in permutations.items()}
    shape = (len(index), *spec.shape(outer), outer.size)
    total, costs = jnp.zeros(shape), dict[str, dict[Parity, jax.Array]]()
    for leaf, shared, array in zip(leaves, targets, arrays, strict=True):
        target = target_at(leaf, shared, index)
        moved = moved_feature(spec, leaf, current, array[index])
        present = [group for group in inner if group.name in groups_of(spec, leaf)]
        if not present:
            total = total + pair_cost(spec, leaf, outer, target, moved)
        elif len(present) == 1 and len(axes_with(leaf, present[0].name)) == 1:
            part = _both_cost(leaf, outer, present[0], target, moved)
            same, odd = costs.setdefault(present[0].name, {}), parity(leaf, present[0].name)
            same[odd] = part + same[odd] if odd in same else part
    return total, costs


def _both_cost(leaf: Leaf, outer: Group, inner: Group, target: jax.Array, moved: jax.Array) -> jax.Array:
    """Inner products of (outer, inner) units with (outer, inner) units, `(b, *over, i, i', j, j')`."""
    axes = [factor.group for _, factor in leaf.factors()]
    i, j = axes.index(outer.name), axes.index(inner.name)
    left, right = list(range(len(axes))), list(range(len(axes)))
    right[i], right[j], batch = len(axes), len(axes) + 1, len(axes) + 2
    over = [axes.index(name) for name in outer.over]
    left = [batch, *left] if target.ndim > len(axes) else left
    return jnp.einsum(target, left, moved, [batch, *right], [batch, *over, i, right[i], j, right[j]])


def _inner_groups(spec: SymmetrySpec, group: str) -> tuple[Group, ...]:
    """Groups that vary over this one last and over nothing else than it does: settled with it."""
    outer = spec.group(group)
    return tuple(other for other in spec.groups if other.over == (*outer.over, group))


@partial(jax.jit, static_argnames="centred")
def _rotation(cost: jax.Array, centred: bool) -> tuple[jax.Array, jax.Array]:
    """Best rotation `(b, *over, n, n)` for every network, and its gain over the current one."""
    found, value = procrustes(cost, centred=centred)
    gain = value - jnp.trace(cost, axis1=-2, axis2=-1)
    return found, jnp.sum(gain.reshape(len(cost), -1), axis=-1)


_rotations = jax.jit(lambda cost, centred: procrustes(cost, centred=centred), static_argnums=1)


@jax.jit
def _gain(cost: jax.Array, step: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(cost, step[..., None], axis=-1)[..., 0]
    return jnp.sum((chosen - jnp.diagonal(cost, axis1=-2, axis2=-1)).reshape(len(cost), -1), axis=-1)


@jax.jit
def _diagonal(cost: jax.Array) -> jax.Array:
    return jnp.sum(jnp.diagonal(cost, axis1=-2, axis2=-1).reshape(len(cost), -1), axis=-1)


@jax.jit
def _value(cost: jax.Array, step: jax.Array) -> jax.Array:
    return jnp.sum(jnp.take_along_axis(cost, step[..., None], axis=-1), axis=(-2, -1))


@partial(jax.jit, static_argnames="spec")
def _compose(
    spec: SymmetrySpec, step: DevicePermutations, permutations: DevicePermutations
) -> DevicePermutations:
    def one(one_step: DevicePermutations, current: DevicePermutations) -> DevicePermutations:
        moved = compose(spec, element_of(one_step), element_of(current))
        flipped = {sign_key(name): value.astype(jnp.int8) for name, value in moved.signs.items()}
        mixed = {matrix_key(name): value for name, value in moved.matrices.items()}
        return moved.permutations | flipped | mixed

    return jax.vmap(one)(step, permutations)
