"""Frank-Wolfe over all groups at once (C2M3: Crisostomi, Fumero, Baieri, Bernard & Rodolà 2024).

Permutation matrices are relaxed to doubly stochastic ones. The objective is a polynomial in them; its
gradient is maximised over permutations by one assignment per group, and the step towards that vertex is the
exact maximum of a polynomial of low degree on [0, 1].

For one reference T the objective of a network is ⟨T, P·x⟩. For N networks without a reference it is
½ ‖Σ_s P_s·x_s‖² / N², every network mapped to one common labelling, the universe: going from net a to b
through it is g_b⁻¹ g_a, so permutations around any cycle compose to the identity.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.features.signs import Parity, best_signs, character, parity, sign_key
from symbnn.symmetry.alignment.search.assignment import assign
from symbnn.symmetry.alignment.search.problem import Chunk, HostPermutations, Search, groups_of, groups_only
from symbnn.symmetry.alignment.search.steps import chosen_signs
from symbnn.symmetry.spec import Group, Leaf, SymmetrySpec

Relaxed = dict[str, jax.Array]
"""Doubly stochastic matrices by group, one for every parity of its features, `(parities, *over, n, n)`: in
those that are odd every permutation matrix has its signs on it."""


def to_reference(search: Search, chunk: Chunk) -> HostPermutations:
    """Permutations of every network that maximise ⟨T, P·x⟩, from the centre of the polytope."""
    spec, solver = groups_only(chunk.spec), search.solver
    leaves, targets, arrays = chunk.leaves, chunk.targets, chunk.arrays
    items = arrays[0].shape[0]
    relaxed = {group.name: _centre(spec, leaves, group, items) for group in spec.groups}
    steps = jnp.asarray(_nodes(_degree(spec, leaves)))
    value = np.full(items, -np.inf)
    for _ in range(search.max_rounds):
        slope = _slopes(spec, leaves, targets, arrays, relaxed)
        corner = _vertices(spec, leaves, _rounded(spec, leaves, slope, solver))
        along = np.asarray(_along(spec, leaves, targets, arrays, relaxed, corner, steps), np.float64)
        step, new = _highest(np.asarray(steps, np.float64), along)
        relaxed = _mixed(relaxed, corner, jnp.asarray(step, jnp.float32))
        if np.all(new - value <= search.tolerance * np.abs(new)):
            break
        value = new
    return _rounded(spec, leaves, relaxed, solver)


def to_universe(search: Search, chunk: Chunk) -> HostPermutations:
    """Permutations of every network to a common labelling, from those of the start; targets do not matter."""
    spec, leaves, arrays, solver = groups_only(chunk.spec), chunk.leaves, chunk.arrays, search.solver
    assert chunk.start is not None
    items = arrays[0].shape[0]
    relaxed = _vertices(spec, leaves, chunk.start)
    steps = jnp.asarray(_nodes(2 * _degree(spec, leaves)))
    value = -np.inf
    for _ in range(search.max_rounds):
        mean = _relaxed_mean(spec, leaves, arrays, relaxed)
        slope = _slopes(spec, leaves, mean, arrays, relaxed)
        corner = _vertices(spec, leaves, _rounded(spec, leaves, slope, solver))
        between = (_mixed(relaxed, corner, jnp.full(items, a)) for a in steps)
        along = [_squared(_relaxed_mean(spec, leaves, arrays, mixed)) for mixed in between]
        step, new = _highest(np.asarray(steps, np.float64), np.array([along]))
        relaxed = _mixed(relaxed, corner, jnp.full(items, step[0], jnp.float32))
        if new[0] - value <= search.tolerance * abs(new[0]):
            break
        value = new[0]
    return _rounded(spec, leaves, relaxed, solver)


def relaxed_act(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], relaxed: Relaxed, leaf: Leaf, array: jax.Array
) -> jax.Array:
    """P·x of one feature: every axis multiplied by its group's matrix, outer groups first."""
    names = [factor.group for _, factor in leaf.factors()]
    for group in spec.groups:
        for axis, name in enumerate(names):
            if name == group.name:
                old, new = list(range(len(names))), list(range(len(names)))
                new[axis] = len(names)
                over = [names.index(other) for other in group.over]
                matrix = relaxed[group.name][parities(leaves, name).index(parity(leaf, name))]
                array = jnp.einsum(matrix, [*over, new[axis], axis], array, old, new)
    return array


def _value(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, relaxed: Relaxed
) -> jax.Array:
    return sum(
        (
            jnp.vdot(target, relaxed_act(spec, leaves, relaxed, leaf, array))
            for leaf, target, array in zip(leaves, targets, arrays, strict=True)
        ),
        start=jnp.zeros(()),
    )


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _slopes(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, relaxed: Relaxed
) -> Relaxed:
    slope = jax.grad(partial(_value, spec, leaves), argnums=2)
    return jax.lax.map(lambda both: slope(targets, *both), (arrays, relaxed))


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _along(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    targets: Arrays,
    arrays: Arrays,
    relaxed: Relaxed,
    corner: Relaxed,
    steps: jax.Array,
) -> jax.Array:
    """Objective of every network at every step, `(items, steps)`."""

    def one(item: tuple[Arrays, Relaxed, Relaxed]) -> jax.Array:
        here, start, end = item
        return jax.lax.map(
            lambda a: _value(
                spec, leaves, targets, here, jax.tree.map(lambda p, v: p + a * (v - p), start, end)
            ),
            steps,
        )

    return jax.lax.map(one, (arrays, relaxed, corner))


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _relaxed_mean(spec: SymmetrySpec, leaves: tuple[Leaf, ...], arrays: Arrays, relaxed: Relaxed) -> Arrays:
    def add(sums: Arrays, one: tuple[Arrays, Relaxed]) -> tuple[Arrays, None]:
        moved = (
            relaxed_act(spec, leaves, one[1], leaf, array) for leaf, array in zip(leaves, one[0], strict=True)
        )
        return tuple(total + array for total, array in zip(sums, moved, strict=True)), None

    zeros = tuple(jnp.zeros(array.shape[1:], array.dtype) for array in arrays)
    sums, _ = jax.lax.scan(add, zeros, (arrays, relaxed))
    return tuple(total / len(arrays[0]) for total in sums)


@jax.jit
def _mixed(relaxed: Relaxed, corner: Relaxed, step: jax.Array) -> Relaxed:
    return jax.tree.map(lambda p, v: p + step.reshape(-1, *[1] * (p.ndim - 1)) * (v - p), relaxed, corner)


def _squared(arrays: Arrays) -> float:
    return float(sum(jnp.vdot(array, array) for array in arrays))


def parities(leaves: Sequence[Leaf], group: str) -> tuple[Parity, ...]:
    """How the features that have a group flip with it, each once."""
    found = (leaf for leaf in leaves if any(factor.group == group for _, factor in leaf.factors()))
    return tuple(dict.fromkeys(parity(leaf, group) for leaf in found)) or ((),)


def _centre(spec: SymmetrySpec, leaves: tuple[Leaf, ...], group: Group, items: int) -> jax.Array:
    """The mean over all permutations and signs: nothing is left of what is odd."""
    shape = (items, *spec.shape(group), group.size)
    parts = [jnp.full(shape, 0.0 if any(odd) else 1 / group.size) for odd in parities(leaves, group.name)]
    return jnp.stack(parts, axis=1)


def _vertices(spec: SymmetrySpec, leaves: tuple[Leaf, ...], moves: HostPermutations) -> Relaxed:
    """Matrices of permutations with signs."""
    found = {}
    for group in spec.groups:
        matrix = jax.nn.one_hot(moves[group.name], group.size)
        signs = jnp.moveaxis(jnp.asarray(moves.get(sign_key(group.name), np.ones((1, 1)))), 1, 0)
        parts = [
            matrix * character(odd, signs)[..., None] if any(odd) else matrix
            for odd in parities(leaves, group.name)
        ]
        found[group.name] = jnp.stack(parts, axis=1)
    return found


def _rounded(spec: SymmetrySpec, leaves: tuple[Leaf, ...], relaxed: Relaxed, solver: str) -> HostPermutations:
    """The permutation with signs that overlaps most with each group's matrices."""
    moves: HostPermutations = {}
    for group in spec.groups:
        costs = tuple(jnp.moveaxis(relaxed[group.name], 1, 0))
        best, signs = costs[0], None
        if group.num_signs:
            best, signs = best_signs(parities(leaves, group.name), costs)
        step = assign(best.reshape(-1, *best.shape[-2:]), solver=solver).reshape(best.shape[:-1])
        moves[group.name] = step.astype(np.int32)
        if signs is not None:
            moves[sign_key(group.name)] = chosen_signs(signs, step)
    return moves


def _degree(spec: SymmetrySpec, leaves: Sequence[Leaf]) -> int:
    """Degree of the objective in the step: the most axes with a group that a feature has."""
    return max(sum(factor.group in groups_of(spec, leaf) for _, factor in leaf.factors()) for leaf in leaves)


def _nodes(degree: int) -> np.ndarray:
    """Chebyshev points of [0, 1] with the ends: a polynomial through them is well conditioned."""
    return (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2


def _highest(steps: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where on [0, 1] the polynomial through each row's values is highest, and how high."""
    chosen, value = [], []
    for row in along:
        fitted = np.polynomial.Polynomial.fit(steps, row, len(steps) - 1)
        roots = np.asarray(fitted.deriv().roots(), complex)
        inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1]
        candidates = np.array([0.0, 1.0, *inside])
        heights = np.array([row[0], row[-1], *fitted(np.array(inside))])
        best = int(np.argmax(heights))
        chosen.append(candidates[best])
        value.append(heights[best])
    return np.array(chosen), np.array(value)
