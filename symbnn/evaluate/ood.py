"""Out-of-distribution detection from scores: higher is more out-of-distribution, the positive class.

    AUROC    = P(out > in) + 1/2 P(out = in)                     (Mann-Whitney)
    AUPR     = sum_k (R_k - R_(k-1)) P_k over distinct thresholds: average precision
    FPR@R    = share of in-distribution inputs at or above the highest threshold whose recall is at least R

All three are counts of pairs, computed by binary search in sorted scores: exact with ties, in O(n log n).
The scores here need class probabilities or logits; `mutual_information_score` needs those of the members.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from symbnn.evaluate.checks import checked, finite, probabilities, scores


@checked(scores, scores)
@jax.jit
def auroc(in_scores: Float[Array, " n"], out_scores: Float[Array, " m"]) -> Float[Array, ""]:
    """Probability that an out-of-distribution input scores higher, ties counted half."""
    ordered = jnp.sort(in_scores)
    below = jnp.searchsorted(ordered, out_scores, side="left")
    not_above = jnp.searchsorted(ordered, out_scores, side="right")
    # Halves of whole numbers below 2^24 are exact in float32; their product over all pairs would not be.
    return jnp.mean((below + not_above) / (2 * in_scores.shape[0]))


@checked(scores, scores)
@jax.jit
def aupr(in_scores: Float[Array, " n"], out_scores: Float[Array, " m"]) -> Float[Array, ""]:
    """Average precision with out-of-distribution as the positive class.

    A tie group with g of the m positives raises recall by g/m at one precision: a mean over positives.
    """
    true_positives = _at_least(out_scores, out_scores)
    false_positives = _at_least(in_scores, out_scores)
    return jnp.mean(true_positives / (true_positives + false_positives))


@checked(scores, scores)
@partial(jax.jit, static_argnames="recall")
def fpr_at(
    in_scores: Float[Array, " n"], out_scores: Float[Array, " m"], *, recall: float = 0.95
) -> Float[Array, ""]:
    """False-positive rate at the first threshold that finds at least `recall` of the positives."""
    if not 0.0 < recall <= 1.0:
        raise ValueError(f"recall: expected a share in (0, 1], got {recall}")
    count = out_scores.shape[0]
    needed = int(np.argmax(np.arange(1, count + 1) / count >= recall)) + 1
    threshold = jnp.sort(out_scores)[count - needed]
    return jnp.mean(in_scores >= threshold, dtype=jnp.float32)


@checked(probabilities)
@jax.jit
def max_probability_score(probs: Float[Array, "n c"]) -> Float[Array, " n"]:
    """Minus the largest probability (Hendrycks, Gimpel 2017)."""
    return -jnp.max(probs, axis=-1)


@checked(probabilities)
@jax.jit
def entropy_score(probs: Float[Array, "n c"]) -> Float[Array, " n"]:
    """Entropy of the predictive distribution in nats."""
    return -jnp.sum(xlogy(probs, probs), axis=-1)


@checked(finite)
@jax.jit
def energy_score(logits: Float[Array, "n c"], *, temperature: float | Array = 1.0) -> Float[Array, " n"]:
    """-T log sum_c exp(logit_c / T) (Liu et al. 2020): low where the network has seen data."""
    return -temperature * jax.nn.logsumexp(logits / temperature, axis=-1)


def _at_least(values: Float[Array, " n"], thresholds: Float[Array, " m"]) -> Float[Array, " m"]:
    """How many of the values reach each threshold."""
    below = jnp.searchsorted(jnp.sort(values), thresholds, side="left")
    return (values.shape[0] - below).astype(jnp.float32)
