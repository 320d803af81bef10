"""Distances between permutations: number of transpositions (NoT) and Kendall's τ.

NoT(π) = (units) − (cycles of π, fixed points counted): the least number of pairwise swaps that makes π. Over
several layers: the sum. Xiao, Liu & Bamler, "A compact representation for Bayesian neural networks by
removing permutation symmetry" (2023).
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn.symmetry.group.act import Element
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Key


def number_of_transpositions(
    permutation: Int[Array, "*batch n"] | Int[np.ndarray, "*batch n"] | Mapping | Element,
    *,
    spec: SymmetrySpec | None = None,
) -> Int[Array, "*batch"]:
    """Least number of swaps that makes a permutation; the sum over groups for an element or a dict of them.

    Stacked elements, as `align` returns them, give one number per network. Where all groups vary over others,
    only `spec` tells stacked networks from those: without it the axes that all groups share are kept.
    """
    if isinstance(permutation, Element):
        permutation = permutation.permutations
    if isinstance(permutation, Mapping):
        counts = {name: number_of_transpositions(value) for name, value in permutation.items()}
        over = {name: len(spec.group(name).over) if spec else 0 for name in counts}
        leading = min((count.ndim - over[name] for name, count in counts.items()), default=0)
        sums = [count.sum(tuple(range(leading, count.ndim))) for count in counts.values()]
        return jnp.sum(jnp.stack(sums), axis=0) if sums else jnp.zeros((), int)
    permutation = jnp.asarray(permutation)
    units = permutation.shape[-1]
    labels = jnp.broadcast_to(jnp.arange(units), permutation.shape)
    # A cycle's label is its least member. Jumps double each round, so ⌈log2 n⌉ rounds see whole cycles.
    jump = permutation
    for _ in range(max(units - 1, 0).bit_length()):
        labels = jnp.minimum(labels, jnp.take_along_axis(labels, jump, axis=-1))
        jump = jnp.take_along_axis(jump, jump, axis=-1)
    return jnp.sum(labels != jnp.arange(units), axis=-1)


def random_permutation(key: Key, n: int, *, transpositions: int | Int[Array, ""]) -> Int[Array, " n"]:
    """A random permutation that takes exactly that many swaps.

    With k transpositions, n − k cycles start with one element each; the other k elements go to cycles chosen
    uniformly; the cycles are then filled with randomly ordered units.

    Args:
        key: For the draw.
        n: Number of units.
        transpositions: From 0 to n − 1; may be traced.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    if not isinstance(transpositions, jax.core.Tracer) and not 0 <= transpositions < n:
        raise ValueError(f"transpositions must be in [0, {n - 1}] for {n} units; got {transpositions}")
    key_cycle, key_units = jax.random.split(key)
    cycles = n - transpositions
    position = jnp.arange(n)
    drawn = jax.random.randint(key_cycle, (n,), 0, cycles)
    cycle = jnp.sort(jnp.where(position < cycles, position, drawn))
    first = jnp.searchsorted(cycle, cycle)
    is_last = jnp.append(cycle[1:] != cycle[:-1], True)
    successor = jnp.where(is_last, first, position + 1)
    units = jax.random.permutation(key_units, n)
    return jnp.zeros(n, units.dtype).at[units].set(units[successor])


def kendall_tau(
    order_a: Int[Array, "..."] | Int[np.ndarray, "..."], order_b: Int[Array, "..."] | Int[np.ndarray, "..."]
) -> Float[Array, "..."]:
    """Kendall's τ of two orders of the same units: 1 for equal, −1 for reversed orders.

    An order lists units, best first, as `jnp.argsort` does. Pairs are compared n² at a time.
    """
    if order_a.shape != order_b.shape or order_a.ndim < 1 or order_a.shape[-1] < 2:
        raise ValueError(
            f"both orders must have one shape (..., n) with n >= 2; got {order_a.shape} and {order_b.shape}"
        )
    rank_a, rank_b = jnp.argsort(order_a, axis=-1), jnp.argsort(order_b, axis=-1)

    def direction(rank: jax.Array) -> jax.Array:
        return jnp.sign(rank[..., :, None] - rank[..., None, :])

    units = order_a.shape[-1]
    concordance = jnp.sum(direction(rank_a) * direction(rank_b), axis=(-2, -1))
    return concordance / (units * (units - 1))
