"""Judging real-valued predictions given as samples or as Gaussian mixtures with equal weights.

    nll   = -1/n sum_i log 1/M sum_m N(y_i; mean_mi, std_mi^2)
    CRPS  = E|X - y| - 1/2 E|X - X'|                                      (Gneiting, Raftery 2007, eq. 20)
    mixture: E|X - y| = 1/M sum_m A(y - mean_m, std_m), E|X - X'| = 1/M^2 sum_ml A(mean_m - mean_l, sqrt(..)),
             A(d, s) = 2 s phi(d/s) + d (2 Phi(d/s) - 1)                  (Grimit et al. 2006)
    calibration = mean over levels q of |share of targets in the central q interval - q|

A target lies in the central q interval exactly if |2 F(y) - 1| <= q, F the predictive distribution function.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from symbnn.evaluate.checks import checked, finite, finite_like, finite_targets, positive_like
from symbnn.symmetry.numerics import length

Members = Float[Array, "members n *k"]
Targets = Float[Array, "n *k"]


@checked(finite, finite_like)
@jax.jit
def rmse(mean: Float[Array, " n *k"], targets: Float[Array, " n *k"]) -> Float[Array, ""]:
    """Root of the mean squared error over all targets."""
    return length(mean - targets) / jnp.sqrt(mean.size)


@checked(finite, positive_like, finite_targets)
@jax.jit
def mixture_nll(means: Members, stds: Members, targets: Targets) -> Float[Array, ""]:
    """Mean negative log-density of the targets under the mixtures, all outputs of an input together."""
    log_density = normal_log_density(targets, means, stds)
    log_density = jnp.sum(log_density, axis=tuple(range(2, log_density.ndim)))
    return -jnp.mean(jax.nn.logsumexp(log_density, axis=0) - jnp.log(means.shape[0]))


@checked(finite, finite_targets)
@partial(jax.jit, static_argnames="fair")
def crps(samples: Members, targets: Targets, *, fair: bool = False) -> Float[Array, ""]:
    """Mean CRPS of the empirical distribution; `fair` is unbiased for the law the samples were drawn from."""
    members = samples.shape[0]
    pairs = members * (members - 1) if fair else members**2
    ordered = jnp.sort(samples, axis=0)
    # sum_ml |x_m - x_l| = 2 sum_i (2 i - M - 1) x_(i): each pair once, without building pairs.
    rank = 2.0 * jnp.arange(1, members + 1) - members - 1.0
    spread = jnp.tensordot(rank, ordered, axes=1) / pairs
    return jnp.mean(jnp.mean(jnp.abs(samples - targets), axis=0) - spread)


@checked(finite, positive_like, finite_targets)
@jax.jit
def mixture_crps(means: Members, stds: Members, targets: Targets) -> Float[Array, ""]:
    """Mean CRPS of Gaussian mixtures in closed form; one member gives the Gaussian's."""

    # Flat, since XLA's loops over a last axis of one output are twenty times slower.
    means, stds, targets = means.reshape(len(means), -1), stds.reshape(len(stds), -1), targets.reshape(-1)

    def against_all(total: jax.Array, member: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        mean, std = member
        return total + jnp.sum(_absolute_moment(means - mean, jnp.hypot(stds, std)), axis=0), None

    pairs, _ = jax.lax.scan(against_all, jnp.zeros_like(targets), (means, stds))
    distance = jnp.mean(_absolute_moment(targets - means, stds), axis=0)
    return jnp.mean(distance - 0.5 * pairs / means.shape[0] ** 2)


@checked(finite, positive_like, finite_targets)
@jax.jit
def mixture_cdf(means: Members, stds: Members, targets: Targets) -> Targets:
    """F(y): the probability integral transform, uniform if the prediction is calibrated."""
    return jnp.mean(norm.cdf(targets, means, stds), axis=0)


@checked(finite)
@partial(jax.jit, static_argnames="levels")
def quantile_calibration(cdf: Targets, *, levels: int = 15) -> Float[Array, ""]:
    """Mean gap between the coverage of central intervals and their level, at levels from 5 % to 95 %."""
    level = jnp.linspace(0.05, 0.95, levels)
    return jnp.mean(jnp.abs(covered(cdf, level) - level))


def covered(cdf: Targets, level: Float[Array, " levels"]) -> Float[Array, " levels"]:
    """Share of the targets in the central interval of each level."""
    return jnp.mean(jnp.abs(2.0 * cdf.reshape(-1, 1) - 1.0) <= level, axis=0)


def normal_log_density(targets: Array, means: Array, stds: Array) -> Array:
    """log N(y; mean, std²) without the variance, which float32 does not hold for a std below 1e-19."""
    return norm.logpdf((targets - means) / stds) - jnp.log(stds)


def _absolute_moment(difference: Array, std: Array) -> Array:
    """E|Z| of Z ~ N(difference, std^2)."""
    scaled = difference / std
    # 2 Phi(z) - 1 = erf(z / sqrt 2): no digits lost near zero, and half of the time.
    return 2.0 * std * norm.pdf(scaled) + difference * erf(scaled * math.sqrt(0.5))
