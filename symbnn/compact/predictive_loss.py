"""How far the predictive of a law is from a reference, per input, told from draws of the network's outputs.

Outputs f_ks have axes (components, draws, inputs, outputs); w_k are the weights of the components.

| targets     | loss            | per input                                                                |
|-------------|-----------------|--------------------------------------------------------------------------|
| classes     | `cross_entropy` | -Σ_c p_ref,c log p_c with p = Σ_k w_k mean_s softmax(f_ks)               |
| classes     | `squared`       | Σ_c (p_ref,c - p_c)²                                                     |
| real values | `cross_entropy` | E over y ~ N(m_ref, s_ref²) of -log Σ_k w_k mean_s p(y given f_ks)       |
| real values | `moments`       | E over y ~ N(m_ref, s_ref²) of -log N(y; m, s²)                          |

Real values are judged output by output and summed. The cross-entropy sees the whole mixture of what single
networks say: their noise and their disagreement cannot stand in for each other, as they can in the moments

    s² = Σ_k w_k (mean_s noise² + v_k) + Σ_k w_k (m_k - m)²,   v_k the variance of the means of component k

From S draws a component, the squares of m_ref - m and of m_k - m are too large by Σ_k w_k² v_k / S and by
Σ_k w_k (1 - w_k) v_k / S. Both are taken off: else a fit with few draws would shrink the law to hide them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from symbnn.density import Likelihood
from symbnn.evaluate.regression import normal_log_density
from symbnn.types import Key

Outputs = Float[Array, "components draws n outputs"]
Weights = Float[Array, " components"]
PerInput = Float[Array, " n"]
NUM_TARGETS = 8
"""Values of the reference that a cross-entropy is averaged over, new ones in every step."""


def class_loss(
    name: str, weights: Weights, logits: Outputs, reference: Float[Array, "n classes"]
) -> PerInput:
    """Between probabilities."""
    each = jax.nn.log_softmax(logits) + jnp.log(weights)[:, None, None, None]
    log_probs = jax.nn.logsumexp(each, axis=(0, 1)) - jnp.log(logits.shape[1])
    return CLASS_LOSSES[name](reference, log_probs)


def real_loss(
    name: str,
    likelihood: Likelihood,
    key: Key,
    weights: Weights,
    outputs: Outputs,
    reference: Float[Array, "n two_k"],
) -> PerInput:
    """Between predictives of real values; the reference holds means, then standard deviations."""
    assert likelihood.spread is not None
    mean, std = jnp.split(reference, 2, axis=-1)
    means, stds = likelihood.predictive(outputs), likelihood.spread(outputs)
    return jnp.sum(REAL_LOSSES[name](key, weights, means, stds, mean, std), axis=-1)


def _cross_entropy(
    key: Key, weights: Weights, means: Outputs, stds: Outputs, wanted_mean: Array, wanted_std: Array
) -> Array:
    """By `NUM_TARGETS` values of the reference for each input, one in each of as many equal shares of it."""
    place = jax.random.uniform(key, (NUM_TARGETS, *wanted_mean.shape))
    share = (jnp.arange(NUM_TARGETS)[:, None, None] + place) / NUM_TARGETS
    # Cut at four standard deviations, so that quantiles stay finite.
    targets = wanted_mean + wanted_std * norm.ppf(jnp.clip(share, 3e-5, 1.0 - 3e-5))
    each = normal_log_density(targets[:, None, None], means, stds) + jnp.log(weights)[:, None, None, None]
    return jnp.log(means.shape[1]) - jnp.mean(jax.nn.logsumexp(each, axis=(1, 2)), axis=0)


def _moments(
    key: Key, weights: Weights, means: Outputs, stds: Outputs, wanted_mean: Array, wanted_std: Array
) -> Array:
    """Between Gaussians of the same moments."""
    mean, variance, excess = moments(weights, means, jnp.square(stds))
    square = jnp.square(wanted_std) + jnp.square(wanted_mean - mean) - excess
    return 0.5 * (jnp.log(2.0 * jnp.pi * variance) + square / variance)


def moments(weights: Weights, means: Outputs, noises: Outputs) -> tuple[Array, Array, Array]:
    """Mean and variance of the mixture without bias, and by how much the square of the mean is too large."""
    num_draws = means.shape[1]
    shares = weights[:, None, None]
    within, of_component = means.var(1, ddof=1), means.mean(1)
    mean = jnp.sum(shares * of_component, axis=0)
    between = jnp.square(of_component - mean) - (1.0 - shares) * within / num_draws
    variance = jnp.sum(shares * (noises.mean(1) + within + between), axis=0)
    return mean, variance, jnp.sum(jnp.square(shares) * within, axis=0) / num_draws


CLASS_LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "cross_entropy": lambda probs, log_probs: -jnp.sum(probs * log_probs, axis=-1),
    "squared": lambda probs, log_probs: jnp.sum(jnp.square(probs - jnp.exp(log_probs)), axis=-1),
}
"""(reference probabilities, log-probabilities) -> one number per input."""
REAL_LOSSES: dict[str, Callable[..., Array]] = {"cross_entropy": _cross_entropy, "moments": _moments}
"""(key, weights, means, stds, reference's mean and std) -> one number per input and output."""
