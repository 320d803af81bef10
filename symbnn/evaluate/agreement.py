"""Fidelity of a predictive distribution to a reference (Izmailov et al. 2021, arXiv 2104.14421, section 4).

agreement        = 1/n sum_i [argmax p(y | x_i) = argmax q(y | x_i)]
total variation  = 1/n sum_i 1/2 sum_c |p(c | x_i) - q(c | x_i)|
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.evaluate.checks import checked, probabilities, same_shape


@checked(probabilities, same_shape)
@jax.jit
def agreement(probs: Float[Array, "n c"], reference: Float[Array, "n c"]) -> Float[Array, ""]:
    """Share of inputs with the same most probable class; of equally probable classes the first counts."""
    return jnp.mean(jnp.argmax(probs, axis=-1) == jnp.argmax(reference, axis=-1), dtype=jnp.float32)


@checked(probabilities, same_shape)
@jax.jit
def total_variation(probs: Float[Array, "n c"], reference: Float[Array, "n c"]) -> Float[Array, ""]:
    """Mean over inputs of half the L1 distance: 0 if equal, 1 if nowhere overlapping."""
    return jnp.mean(0.5 * jnp.sum(jnp.abs(probs - reference), axis=-1))
