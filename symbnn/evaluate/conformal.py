"""Split conformal prediction: sets that hold the truth with probability 1 - alpha, whatever the model.

    threshold = the ceil((n + 1) (1 - alpha))-th smallest score of a calibration set (infinite if beyond n)
    set(x)    = {y : score(x, y) <= threshold}

Scores: 1 - p_y (`threshold_scores`; Sadinle et al. 2019, the smallest sets), the probability of all classes
at least as probable as y (`adaptive_scores`, APS; Romano et al. 2020, even coverage over easy and hard
inputs), or |y - mean| / std for real targets, whose set is the interval mean +- threshold std.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from symbnn.evaluate.checks import checked, labels, probabilities, scores
from symbnn.evaluate.classification import label_probabilities
from symbnn.types import Key


@checked(scores)
@partial(jax.jit, static_argnames="alpha")
def conformal_threshold(calibration_scores: Float[Array, " n"], *, alpha: float = 0.1) -> Float[Array, ""]:
    """The score below which new scores fall with probability at least 1 - alpha."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha: expected a probability in (0, 1), got {alpha}")
    count = calibration_scores.shape[0]
    # The product may lie a rounding above a whole number.
    rank = math.ceil((count + 1) * (1.0 - alpha) - 1e-9)
    if rank > count:
        return jnp.full((), jnp.inf, calibration_scores.dtype)
    return jnp.sort(calibration_scores)[rank - 1]


@checked(probabilities, labels)
@jax.jit
def threshold_scores(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    """1 - p_y for a calibration set."""
    return 1.0 - label_probabilities(probs, labels)


@checked(probabilities)
@jax.jit
def threshold_sets(probs: Float[Array, "n c"], threshold: Float[Array, ""]) -> Bool[Array, "n c"]:
    """Classes whose probability is at least 1 - threshold."""
    return 1.0 - probs <= threshold


@checked(probabilities, labels)
@jax.jit
def adaptive_scores(
    probs: Float[Array, "n c"], labels: Int[Array, " n"], key: Key | None = None
) -> Float[Array, " n"]:
    """Probability of the classes down to the label; with a key, less a random share of the label's own."""
    return label_probabilities(_adaptive(probs, key), labels)


@checked(probabilities)
@jax.jit
def adaptive_sets(
    probs: Float[Array, "n c"], threshold: Float[Array, ""], key: Key | None = None
) -> Bool[Array, "n c"]:
    """Most probable classes up to the threshold; randomise as the calibration scores were, with a new key."""
    return _adaptive(probs, key) <= threshold


@jax.jit
def set_coverage(sets: Bool[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """Share of labels that are in their set."""
    return jnp.mean(jnp.take_along_axis(sets, labels[:, None], axis=-1), dtype=jnp.float32)


@jax.jit
def set_size(sets: Bool[Array, "n c"]) -> Float[Array, ""]:
    """Mean number of classes in a set."""
    return jnp.mean(jnp.sum(sets, axis=-1), dtype=jnp.float32)


@jax.jit
def residual_scores(
    mean: Float[Array, " n"], std: Float[Array, " n"], targets: Float[Array, " n"]
) -> Float[Array, " n"]:
    """|y - mean| / std for real targets."""
    return jnp.abs(targets - mean) / std


@jax.jit
def residual_interval(
    mean: Float[Array, " n"], std: Float[Array, " n"], threshold: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Lower and upper end of mean +- threshold std."""
    return mean - threshold * std, mean + threshold * std


def _adaptive(probs: Float[Array, "n c"], key: Key | None) -> Float[Array, "n c"]:
    """Score of every class: the probability down to it, minus u times its own with u ~ U(0, 1) per input."""
    order = jnp.argsort(-probs, axis=-1)
    down_to = jnp.cumsum(jnp.take_along_axis(probs, order, axis=-1), axis=-1)
    scores = jnp.take_along_axis(down_to, jnp.argsort(order, axis=-1), axis=-1)
    if key is None:
        return scores
    return scores - jax.random.uniform(key, (probs.shape[0], 1)) * probs
