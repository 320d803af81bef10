"""Fidelity of a predictive distribution to a reference (Izmailov et al. 2021, arXiv 2104.14421, section 4).

    agreement        = 1/n sum_i [argmax p(y | x_i) = argmax q(y | x_i)]
    total variation  = 1/n sum_i 1/2 sum_c |p(c | x_i) - q(c | x_i)|

A reference made of samples disagrees with itself: no method can be asked for more than chain against chain.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.evaluate.checks import checked, member_probabilities, probabilities, same_shape


class Ceiling(NamedTuple):
    """Means over all pairs of chains, and the pairs themselves `(chains, chains)`."""

    agreement: jax.Array
    total_variation: jax.Array
    pairwise_agreement: jax.Array
    pairwise_total_variation: jax.Array


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


@checked(member_probabilities)
@jax.jit
def reference_ceiling(chain_probs: Float[Array, "chains n c"]) -> Ceiling:
    """What each chain's predictive reaches against each other chain's: the noise floor of the reference."""
    chains = chain_probs.shape[0]
    if chains < 2:
        raise ValueError(f"chain_probs: expected at least two chains, got {chains}")

    def against_all(one: jax.Array) -> tuple[jax.Array, jax.Array]:
        same = jax.lax.map(lambda other: agreement(one, other), chain_probs)
        return same, jax.lax.map(lambda other: total_variation(one, other), chain_probs)

    same, variation = jax.lax.map(against_all, chain_probs)
    pairs = chains * (chains - 1)
    off_diagonal = 1.0 - jnp.eye(chains)
    return Ceiling(jnp.sum(same * off_diagonal) / pairs, jnp.sum(variation) / pairs, same, variation)
