"""Temperature scaling (Guo et al. 2017): one scalar T > 0 that makes softmax(logits / T) likeliest.

In b = 1/T the mean negative log-likelihood f(b) = mean_i logsumexp(b z_i) - b z_i[y_i] is convex, so its
minimum is the root of the rising function

    f'(b)  = mean_i E_i[z] - z_i[y_i]            with E_i, Var_i under softmax(b z_i)
    f''(b) = mean_i Var_i[z]

found by Newton's method kept inside a bracket that halves whenever Newton would leave it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.evaluate.checks import Labels, checked, finite, labels

# Temperatures outside have no use: at 1e-3 every softmax is one-hot, at 1e3 every one is uniform.
LOWEST, HIGHEST = 1e-3, 1e3
# Bisection alone shrinks log(HIGHEST / LOWEST) = 13.8 below float32 resolution in 27 steps.
STEPS = 40


@checked(finite, labels)
@jax.jit
def fit_temperature(logits: Float[Array, "n c"], labels: Labels) -> Float[Array, ""]:
    """The temperature of least NLL, between 1e-3 and 1e3; for a mean of softmaxes pass `log(probs)`."""
    centred = logits - jnp.max(logits, axis=-1, keepdims=True)
    at_label = jnp.take_along_axis(centred, labels[:, None], axis=-1)[:, 0]

    def slopes(inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jax.nn.softmax(inverse * centred)
        mean = jnp.sum(weights * centred, axis=-1)
        variance = jnp.sum(weights * jnp.square(centred - mean[:, None]), axis=-1)
        return jnp.mean(mean - at_label), jnp.mean(variance)

    def step(_: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        low, high, inverse = state
        slope, curvature = slopes(inverse)
        low, high = jnp.where(slope < 0, inverse, low), jnp.where(slope < 0, high, inverse)
        newton = inverse - slope / jnp.maximum(curvature, jnp.finfo(curvature.dtype).tiny)
        # In the logarithm, as a temperature is a scale.
        middle = jnp.sqrt(low * high)
        return low, high, jnp.where((newton > low) & (newton < high), newton, middle)

    bounds = (jnp.asarray(1.0 / HIGHEST, centred.dtype), jnp.asarray(1.0 / LOWEST, centred.dtype))
    return 1.0 / jax.lax.fori_loop(0, STEPS, step, (*bounds, jnp.ones((), centred.dtype)))[2]
