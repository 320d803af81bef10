"""How far the predictive of a law is from a reference, per input, told from draws of the network's outputs.

Outputs f_ks have axes (components, draws, inputs, outputs); w_k are the weights of the components.

| targets     | loss            | per input                                                                |
|-------------|-----------------|--------------------------------------------------------------------------|
| classes     | `cross_entropy` | -Σ_c p_ref,c log p_c with p = Σ_k w_k mean_s softmax(f_ks)               |
| classes     | `squared`       | Σ_c (p_ref,c - p_c)²                                                     |
| real values | `cross_entropy` | E over y ~ N(m_ref, s_ref²) of -log N(y; m, s²), summed over the outputs |

For real values m and s² are mean and variance of the mixture of all Gaussians N(mean_ks, noise_ks²):

    s² = Σ_k w_k (mean_s noise² + v_k) + Σ_k w_k (m_k - m)²,   v_k the variance of the means of component k

From S draws a component, the squares of m_ref - m and of m_k - m are too large by Σ_k w_k² v_k / S and by
Σ_k w_k (1 - w_k) v_k / S. Both are taken off: else a fit with few draws would shrink the law to hide them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.density import Likelihood

Outputs = Float[Array, "components draws n outputs"]
Weights = Float[Array, " components"]
PerInput = Float[Array, " n"]


def class_loss(
    name: str, weights: Weights, logits: Outputs, reference: Float[Array, "n classes"]
) -> PerInput:
    """Between probabilities."""
    each = jax.nn.log_softmax(logits) + jnp.log(weights)[:, None, None, None]
    log_probs = jax.nn.logsumexp(each, axis=(0, 1)) - jnp.log(logits.shape[1])
    return CLASS_LOSSES[name](reference, log_probs)


def real_loss(
    likelihood: Likelihood, weights: Weights, outputs: Outputs, reference: Float[Array, "n two_k"]
) -> PerInput:
    """Cross-entropy between Gaussians of the same moments; the reference holds means, then stds."""
    assert likelihood.spread is not None
    wanted_mean, wanted_std = jnp.split(reference, 2, axis=-1)
    mean, variance, excess = moments(
        weights, likelihood.predictive(outputs), jnp.square(likelihood.spread(outputs))
    )
    square = jnp.square(wanted_std) + jnp.square(wanted_mean - mean) - excess
    return 0.5 * jnp.sum(jnp.log(2.0 * jnp.pi * variance) + square / variance, axis=-1)


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
REAL_LOSSES = {"cross_entropy": real_loss}
