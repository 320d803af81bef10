"""Relaxed elements: matrices that act on features as permutations, signs and rotations do.

Permutations are relaxed to doubly stochastic matrices, rotations of units that may be mixed to matrices whose
singular values are at most one: the convex hulls of both.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.features.signs import (
    Parity,
    best_signs,
    character,
    matrix_key,
    parity,
    sign_key,
)
from symbnn.symmetry.alignment.search.assignment import assign
from symbnn.symmetry.alignment.search.problem import HostPermutations, identity_permutations
from symbnn.symmetry.alignment.search.steps import chosen_signs
from symbnn.symmetry.group.matrices import procrustes
from symbnn.symmetry.spec import Group, Leaf, SymmetrySpec

Relaxed = dict[str, jax.Array]
"""Matrices by group, one for every parity of its features, `(parities, *over, n, n)`: in those that are odd
every permutation matrix has its signs on it."""


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


def relaxed_value(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, relaxed: Relaxed
) -> jax.Array:
    """⟨T, P·x⟩ of one network."""
    return sum(
        (
            jnp.vdot(target, relaxed_act(spec, leaves, relaxed, leaf, array))
            for leaf, target, array in zip(leaves, targets, arrays, strict=True)
        ),
        start=jnp.zeros(()),
    )


def relaxed_slope(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, relaxed: Relaxed
) -> Relaxed:
    """Its gradient in P."""
    return jax.grad(partial(relaxed_value, spec, leaves), argnums=2)(targets, arrays, relaxed)


def parities(leaves: Sequence[Leaf], group: str) -> tuple[Parity, ...]:
    """How the features that have a group flip with it, each once."""
    found = (leaf for leaf in leaves if any(factor.group == group for _, factor in leaf.factors()))
    return tuple(dict.fromkeys(parity(leaf, group) for leaf in found)) or ((),)


def centre(spec: SymmetrySpec, leaves: tuple[Leaf, ...], group: Group, items: int) -> jax.Array:
    """The mean over all permutations and signs, or over all rotations: nothing is left of what is odd."""
    shape = (items, *spec.shape(group), group.size)
    parts = [jnp.full(shape, 0.0 if any(odd) else 1 / group.size) for odd in parities(leaves, group.name)]
    return jnp.stack(parts, axis=1)


def vertices(spec: SymmetrySpec, leaves: tuple[Leaf, ...], moves: HostPermutations) -> Relaxed:
    """Matrices of permutations with signs, and of rotations."""
    found = {}
    for group in spec.groups:
        matrix = jax.nn.one_hot(moves[group.name], group.size)
        signs = jnp.moveaxis(jnp.asarray(moves.get(sign_key(group.name), np.ones((1, 1)))), 1, 0)
        found[group.name] = with_parities(leaves, group, matrix, signs[..., None])
        if group.is_linear:
            found[group.name] = jnp.asarray(moves[matrix_key(group.name)])[:, None] @ found[group.name]
    return found


def with_parities(leaves: Sequence[Leaf], group: Group, matrix: jax.Array, signs: jax.Array) -> jax.Array:
    """A group's matrix for every parity of its features, with the signs of its pairs on the odd ones."""
    parts = [matrix * character(odd, signs) if any(odd) else matrix for odd in parities(leaves, group.name)]
    return jnp.stack(parts, axis=1)


def pair_values(leaves: Sequence[Leaf], group: Group, slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What every pair of units is worth with its best signs, and those signs, generators first."""
    costs = tuple(jnp.moveaxis(slope, 1, 0))
    if group.num_signs:
        return best_signs(parities(leaves, group.name), costs)
    return costs[0], jnp.ones((0, *costs[0].shape), jnp.int8)


def rounded(spec: SymmetrySpec, leaves: tuple[Leaf, ...], relaxed: Relaxed, solver: str) -> HostPermutations:
    """The permutation with signs, or the rotation, that overlaps most with each group's matrices."""
    moves = identity_permutations(spec, len(next(iter(relaxed.values()))))
    for group in spec.groups:
        if group.is_linear:
            rotation, _ = procrustes(jnp.sum(relaxed[group.name], axis=1), centred=group.centred)
            moves[matrix_key(group.name)] = np.array(rotation)
            continue
        best, signs = pair_values(leaves, group, relaxed[group.name])
        step = assign(best.reshape(-1, *best.shape[-2:]), solver=solver).reshape(best.shape[:-1])
        moves[group.name] = step.astype(np.int32)
        if group.num_signs:
            moves[sign_key(group.name)] = chosen_signs(signs, step)
    return moves
