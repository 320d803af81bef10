"""Distances between all pairs of networks, one block of weights at a time.

Thousands of large networks do not fit on a device, but a block of their weights does, and sums of distances
over blocks are distances. Leaves may be arrays in host memory or on disk: only the block at hand is moved.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn import tree
from symbnn.types import Samples


class Distances(NamedTuple):
    """Of all pairs `(networks, networks)`: L1, and squared L2."""

    absolute: jax.Array
    squared: jax.Array


def layer_distances(
    samples_a: Samples, samples_b: Samples, rows_a: Any, rows_b: Any, *, block: int
) -> Iterator[tuple[str, Distances]]:
    """Distances within each layer (leaves that share all but the last name of their path) of the chosen rows.

    The networks are those of `samples_a` at `rows_a`, then those of `samples_b` at `rows_b`.
    """
    layers: dict[str, list[tuple[Any, Any]]] = {}
    others = tree.named_leaves(samples_b)
    for name, leaf in tree.named_leaves(samples_a).items():
        layers.setdefault(name.rpartition("/")[0] or name, []).append((leaf, others[name]))
    for layer, pairs in layers.items():
        yield layer, _finish(_sum(pairs, jnp.asarray(rows_a), jnp.asarray(rows_b), block))


def _sum(pairs: list[tuple[Any, Any]], rows_a: jax.Array, rows_b: jax.Array, block: int) -> Distances:
    networks = rows_a.size + rows_b.size
    total = Distances(jnp.zeros((networks, networks)), jnp.zeros((networks, networks)))
    for pair in pairs:
        flat_a, flat_b = (leaf.reshape(leaf.shape[0], -1) for leaf in pair)
        for start in range(0, flat_a.shape[1], block):
            parts = _columns(flat_a, start, block), _columns(flat_b, start, block)
            total = _accumulate(total, *parts, rows_a, rows_b)
    return total


def _columns(flat: Any, start: int, block: int) -> Any:
    """Columns from `start`, padded to `block` with zeros, which are at no distance: one shape for all."""
    if isinstance(flat, np.ndarray):
        part = flat[:, start : start + block]
        return np.pad(part, ((0, 0), (0, block - part.shape[1])))
    return _device_columns(flat, start, block)


@partial(jax.jit, static_argnums=2)
def _device_columns(flat: jax.Array, start: Any, block: int) -> jax.Array:
    index = start + jnp.arange(block)
    return jnp.where(index < flat.shape[1], jnp.take(flat, index, axis=1, mode="clip"), 0.0)


@partial(jax.jit, donate_argnums=0)
def _accumulate(
    total: Distances,
    part_a: Float[Array, "all_a weights"],
    part_b: Float[Array, "all_b weights"],
    rows_a: Int[Array, " a"],
    rows_b: Int[Array, " b"],
) -> Distances:
    part = jnp.concatenate([part_a[rows_a], part_b[rows_b]]).astype(jnp.float32)
    # Centred, so that |x|^2 + |y|^2 - 2 xy cancels no more digits than it must.
    part = part - jnp.mean(part, axis=0)
    products = jnp.matmul(part, part.T, precision=jax.lax.Precision.HIGHEST)
    norms = jnp.diagonal(products)
    squared = norms[:, None] + norms[None, :] - 2.0 * products
    absolute = jax.lax.map(lambda one: jnp.sum(jnp.abs(part - one), axis=1), part)
    return Distances(total.absolute + absolute, total.squared + squared)


@jax.jit
def _finish(total: Distances) -> Distances:
    """Symmetric, not negative, zero from a network to itself: rounding may have it otherwise."""
    off_diagonal = 1.0 - jnp.eye(total.absolute.shape[0])
    return jax.tree.map(lambda d: jnp.maximum(0.5 * (d + d.T), 0.0) * off_diagonal, total)
