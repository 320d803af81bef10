"""Frank-Wolfe over all groups at once (C2M3: Crisostomi, Fumero, Baieri, Bernard & Rodolà 2024).

Permutation matrices are relaxed to doubly stochastic ones. The objective is a polynomial in them; its
gradient is maximised over permutations by one assignment per group, and the step towards that vertex is the
exact maximum of a polynomial of low degree on [0, 1].

For one reference T the objective of a network is ⟨T, P·x⟩.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.search.problem import Chunk, HostPermutations, Search, groups_of, groups_only
from symbnn.symmetry.alignment.search.relaxed import (
    Relaxed,
    centre,
    relaxed_slope,
    relaxed_value,
    rounded,
    vertices,
)
from symbnn.symmetry.spec import Leaf, SymmetrySpec


def to_reference(search: Search, chunk: Chunk) -> HostPermutations:
    """Permutations of every network that maximise ⟨T, P·x⟩, from the centre of the polytope."""
    spec, solver = groups_only(chunk.spec), search.solver
    leaves, targets, arrays = chunk.leaves, chunk.targets, chunk.arrays
    items = arrays[0].shape[0]
    relaxed = {group.name: centre(spec, leaves, group, items) for group in spec.groups}
    steps = jnp.asarray(_nodes(_degree(spec, leaves)))
    value = np.full(items, -np.inf)
    for _ in range(search.max_rounds):
        slope = _slopes(spec, leaves, targets, arrays, relaxed)
        corner = vertices(spec, leaves, rounded(spec, leaves, slope, solver))
        along = np.asarray(_along(spec, leaves, targets, arrays, relaxed, corner, steps), np.float64)
        step, new = _highest(np.asarray(steps, np.float64), along)
        relaxed = _mixed(relaxed, corner, jnp.asarray(step, jnp.float32))
        if np.all(new - value <= search.tolerance * np.abs(new)):
            break
        value = new
    return rounded(spec, leaves, relaxed, solver)


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _slopes(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], targets: Arrays, arrays: Arrays, relaxed: Relaxed
) -> Relaxed:
    return jax.lax.map(lambda both: relaxed_slope(spec, leaves, targets, *both), (arrays, relaxed))


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
            lambda a: relaxed_value(
                spec, leaves, targets, here, jax.tree.map(lambda p, v: p + a * (v - p), start, end)
            ),
            steps,
        )

    return jax.lax.map(one, (arrays, relaxed, corner))


@jax.jit
def _mixed(relaxed: Relaxed, corner: Relaxed, step: jax.Array) -> Relaxed:
    return jax.tree.map(lambda p, v: p + step.reshape(-1, *[1] * (p.ndim - 1)) * (v - p), relaxed, corner)


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
