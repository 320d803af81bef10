"""Matrices that mix units: random ones, those that fix the vector of ones, and the nearest orthogonal one."""

import math

import jax
import jax.numpy as jnp

from symbnn.types import Key

CONDITION = 10.0
"""Of random invertible matrices, at most."""


def random_orthogonal(key: Key, count: int, size: int) -> jax.Array:
    """Haar measure on O(n): the Q of a Gaussian matrix, with R's diagonal positive. Mezzadri (2007)."""
    gaussian = jax.random.normal(key, (count, size, size))
    q, r = jnp.linalg.qr(gaussian)
    return q * jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)[..., None, :]


def random_invertible(key: Key, count: int, size: int) -> jax.Array:
    """U diag(s) V with U, V uniform and log s uniform within a condition number of `CONDITION`."""
    key_left, key_right, key_values = jax.random.split(key, 3)
    reach = math.log(CONDITION) / 2
    values = jnp.exp(jax.random.uniform(key_values, (count, 1, size), minval=-reach, maxval=reach))
    return (random_orthogonal(key_left, count, size) * values) @ random_orthogonal(key_right, count, size)


def procrustes(overlap: jax.Array, *, centred: bool = False) -> tuple[jax.Array, jax.Array]:
    """The orthogonal M that maximises Σ M · overlap, and that maximum; Schönemann (1966).

    With the singular value decomposition U S V of the overlap, M = U V and the maximum is Σ S. `centred` asks
    for matrices that fix the vector of ones.
    """
    if not centred:
        left, values, right = jnp.linalg.svd(overlap, full_matrices=False)
        return left @ right, jnp.sum(values, axis=-1)
    reflection = householder(overlap.shape[-1], overlap.dtype)
    turned = reflection @ overlap @ reflection
    inner, value = procrustes(turned[..., 1:, 1:])
    return fixing_ones(inner), value + turned[..., 0, 0]


def fixing_ones(inner: jax.Array) -> jax.Array:
    """H diag(1, R) H `(..., n, n)` of R `(..., n-1, n-1)`, H the reflection that takes e_1 to 1/√n.

    Every matrix that leaves the vector of ones and its complement alone is of this form.
    """
    size = inner.shape[-1] + 1
    reflection = householder(size, inner.dtype)
    padding = [(0, 0)] * (inner.ndim - 2) + [(1, 0), (1, 0)]
    whole = jnp.pad(inner, padding).at[..., 0, 0].set(1)
    return reflection @ whole @ reflection


def householder(size: int, dtype=jnp.float32) -> jax.Array:
    """The symmetric reflection H with H e_1 = 1/√n."""
    ones = jnp.full(size, 1 / math.sqrt(size), dtype)
    normal = ones.at[0].add(-1)
    length = jnp.sum(normal**2)
    return jnp.eye(size, dtype=dtype) - jnp.outer(normal, normal) * jnp.where(length > 0, 2 / length, 0)
