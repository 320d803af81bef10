"""Distances between diagonal Gaussians over weights, given as trees of means and standard deviations.

KL(q || p) = sum_j log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2
W2(q, p)^2 = sum_j (m_q - m_p)^2 + (s_q - s_p)^2
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.symmetry.numerics import length
from symbnn.types import Params

Gaussian = Any
"""A `DiagonalGaussian`, or anything else with trees `mean` and `std`."""


def kl(q: Gaussian, p: Gaussian) -> Float[Array, ""]:
    """KL(q || p) in nats; infinite where one of them knows a weight exactly and the other does not."""
    return _kl(*_checked(q, p))


def wasserstein(q: Gaussian, p: Gaussian) -> Float[Array, ""]:
    """The 2-Wasserstein distance, in units of the weights."""
    return _wasserstein(*_checked(q, p))


@jax.jit
def _kl(mean_q: Params, std_q: Params, mean_p: Params, std_p: Params) -> jax.Array:
    def leaf(mean_q: jax.Array, std_q: jax.Array, mean_p: jax.Array, std_p: jax.Array) -> jax.Array:
        # log r + (r^-2 - 1) / 2 with r = s_p / s_q is second order in log r; expm1 keeps it exact there.
        log_ratio = jnp.log(std_p) - jnp.log(std_q)
        spread = log_ratio + 0.5 * jnp.expm1(-2.0 * log_ratio)
        terms = spread + 0.5 * jnp.square((mean_q - mean_p) / std_p)
        # A weight that both know: no information between them, or no way from one to the other; likewise none
        # from a law that does not know a weight to one that does.
        is_known = (std_q == 0) & (std_p == 0)
        terms = jnp.where((std_p == 0) & (std_q > 0), jnp.inf, terms)
        return jnp.sum(jnp.where(is_known, jnp.where(mean_q == mean_p, 0.0, jnp.inf), terms))

    return jax.tree.reduce(jnp.add, jax.tree.map(leaf, mean_q, std_q, mean_p, std_p))


@jax.jit
def _wasserstein(mean_q: Params, std_q: Params, mean_p: Params, std_p: Params) -> jax.Array:
    parts = jax.tree.map(lambda a, b: length(a - b), (mean_q, std_q), (mean_p, std_p))
    return length(jnp.stack(jax.tree.leaves(parts)))


def _checked(q: Gaussian, p: Gaussian) -> tuple[Params, Params, Params, Params]:
    """The four trees, which have the same leaves of the same shapes."""
    for what, params in (("q.std", q.std), ("p.mean", p.mean), ("p.std", p.std)):
        tree.check_same_shapes(what, params, q.mean)
    return q.mean, q.std, p.mean, p.std
