"""Signs in matching: which way round a unit is, where the network is odd in it (tanh, linear layers).

A group with sign generators s_1, ..., s_m multiplies a feature by the character Π_k s_k^{e_k}, where e is the
feature's parity. With the pair costs of all features of one parity added up, a pair of units is worth

    max over s of Σ_e Π_k s_k^{e_k} · cost_e[i, j],

which is |cost| for one odd generator. All sign patterns of a few generators are tried; more than that are
settled a few at a time, which is exact where no feature is odd in generators of two such blocks.

Signs travel with the permutations of a network, under a name of their own, and so do the matrices of groups
whose units may be mixed.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.group import Element
from symbnn.symmetry.spec import Leaf, SymmetrySpec

Parity = tuple[int, ...]

SIGNS = "signs of "
"""Before the name of a group: where its signs are kept beside its permutation."""

TOGETHER = 6
"""Generators whose patterns are all tried: 64 of them."""


MATRICES = "matrices of "
"""Likewise for its matrices."""


def sign_key(group: str) -> str:
    """Where a group's signs are kept."""
    return SIGNS + group


def matrix_key(group: str) -> str:
    """Where a group's matrices are kept."""
    return MATRICES + group


def element_of(moves: Mapping[str, Any]) -> Element:
    """Permutations, signs and matrices, kept together while matching, as an element."""
    signs, matrices = (
        {name.removeprefix(prefix): value for name, value in moves.items() if name.startswith(prefix)}
        for prefix in (SIGNS, MATRICES)
    )
    permutations = {n: value for n, value in moves.items() if not n.startswith((SIGNS, MATRICES))}
    return Element(permutations, {}, signs, matrices)


def unflipped(spec: SymmetrySpec, items: int) -> dict[str, np.ndarray]:
    """Signs +1, `(items, num_signs, *over, n)`, and identity matrices, for every group that has any."""
    signs = {
        sign_key(group.name): np.ones((items, group.num_signs, *spec.shape(group)), np.int8)
        for group in spec.groups
        if group.num_signs
    }
    return signs | {
        matrix_key(group.name): np.tile(
            np.eye(group.size, dtype=np.float32), (items, *spec.shape(group)[:-1], 1, 1)
        )
        for group in spec.groups
        if group.is_linear
    }


def parity(leaf: Leaf, group: str) -> Parity:
    """By which generators of the group a feature flips. One that has the group twice counts by the first."""
    factor = next((factor for _, factor in leaf.factors() if factor.group == group), None)
    return () if factor is None else tuple(exponent % 2 for exponent in factor.signs)


def without_signs(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
    """The same features, but even in everything: squares and standard deviations."""
    return tuple(
        replace(leaf, axes=tuple((replace(factor, signs=()),) for _, factor in leaf.factors()))
        for leaf in leaves
    )


@partial(jax.jit, static_argnames="parities")
def best_signs(parities: tuple[Parity, ...], costs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """Value of every pair with the best signs, and those signs `(m, ...)`; equal ones are not flipped."""
    stacked = jnp.stack(costs)
    num_signs = max(map(len, parities))
    if not num_signs:
        return jnp.sum(stacked, axis=0), jnp.ones((0, *stacked.shape[1:]), jnp.int8)
    rows = np.array([[*one, *[0] * (num_signs - len(one))] for one in parities], int)
    signs = []
    for start in range(0, num_signs, TOGETHER):
        block = rows[:, start : start + TOGETHER]
        patterns = np.array(list(itertools.product([1, -1], repeat=block.shape[1])), np.int8)
        # Character of every pattern for every parity.
        characters = np.prod(np.where(block[None], patterns[:, None], 1), axis=-1)
        chosen = _best_pattern(jnp.asarray(characters, stacked.dtype), stacked)
        stacked = stacked * jnp.moveaxis(jnp.asarray(characters, stacked.dtype)[chosen], -1, 0)
        signs.append(jnp.moveaxis(jnp.asarray(patterns)[chosen], -1, 0))
    return jnp.sum(stacked, axis=0), jnp.concatenate(signs)


@partial(jax.jit, static_argnames="parities")
def with_signs(parities: tuple[Parity, ...], costs: tuple[jax.Array, ...], signs: jax.Array) -> jax.Array:
    """Value of every pair with given signs `(m, ...)`."""
    return sum(
        (character(one, signs).astype(cost.dtype) * cost for one, cost in zip(parities, costs, strict=True)),
        start=jnp.zeros(()),
    )


def character(parity: Parity, signs: jax.Array) -> jax.Array:
    """Π_k s_k^{e_k} for signs with the generators first."""
    odd = [number for number, exponent in enumerate(parity) if exponent]
    return jnp.prod(signs[np.array(odd, int)], axis=0, dtype=signs.dtype)


def _best_pattern(characters: jax.Array, costs: jax.Array) -> jax.Array:
    """Index of the best pattern for every pair; one pattern at a time, so that memory does not multiply."""

    def better(best: tuple[jax.Array, jax.Array], pattern: tuple[jax.Array, jax.Array]):
        number, row = pattern
        value = jnp.tensordot(row, costs, axes=1)
        is_better = value > best[0]
        return (jnp.where(is_better, value, best[0]), jnp.where(is_better, number, best[1])), None

    first = jnp.tensordot(characters[0], costs, axes=1), jnp.zeros(costs.shape[1:], int)
    (_, chosen), _ = jax.lax.scan(better, first, (jnp.arange(1, len(characters)), characters[1:]))
    return chosen
