"""Calibration: is what was predicted with confidence q right with frequency q? (arXiv 1706.04599)

    ECE = sum_b n_b/n |accuracy_b - confidence_b|        MCE = max_b |accuracy_b - confidence_b|

Confidence is the largest probability, and the means are over the actual confidences of a bin. Equal-width
bins are [e_b, e_(b+1)) with e = linspace(0, 1, bins + 1) in float32, and confidence exactly 1 has a bin of
its own, as torchmetrics has it. Adaptive bins hold equally many inputs; the first `n mod bins` hold one more.
Classwise: one binary problem per class, averaged; confidence is P(y = c), accuracy the share of that class
(both together: arXiv 1904.01685).
"""

from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn.evaluate.checks import Labels, Probs, checked, labels, probabilities
from symbnn.evaluate.classification import is_most_probable


class Bins(NamedTuple):
    """Sums over the inputs of each bin: merge two by adding them."""

    counts: jax.Array
    confidence: jax.Array
    correct: jax.Array


class ReliabilityCurve(NamedTuple):
    """Per bin: lower edge, number of inputs, mean confidence and accuracy (NaN in an empty bin)."""

    edges: jax.Array
    counts: jax.Array
    confidence: jax.Array
    accuracy: jax.Array


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def ece(probs: Probs, labels: Labels, *, bins: int = 15) -> Float[Array, ""]:
    """Expected calibration error of the most probable class, equal-width bins, L1."""
    return expected_gap(bin_sums(*top_label(probs, labels), bins))


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def mce(probs: Probs, labels: Labels, *, bins: int = 15) -> Float[Array, ""]:
    """Maximum calibration error: the gap of the worst bin that is not empty."""
    return maximum_gap(bin_sums(*top_label(probs, labels), bins))


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def adaptive_ece(probs: Probs, labels: Labels, *, bins: int = 15) -> Float[Array, ""]:
    """Expected calibration error with equally many inputs in each bin."""
    return _adaptive_gap(*top_label(probs, labels), bins)


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def classwise_ece(probs: Probs, labels: Labels, *, bins: int = 15) -> Float[Array, ""]:
    """Mean over classes of the binary calibration error of "is it this class", equal-width bins."""
    return classwise_gap(classwise_sums(probs, labels, bins), probs.shape[0])


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def classwise_adaptive_ece(probs: Probs, labels: Labels, *, bins: int = 15) -> Float[Array, ""]:
    """Mean over classes of the binary calibration error, equally many inputs in each bin."""
    is_class = labels == jnp.arange(probs.shape[1])[:, None]
    return jnp.mean(jax.vmap(partial(_adaptive_gap, bins=bins))(probs.T, is_class))


@checked(probabilities, labels)
@partial(jax.jit, static_argnames="bins")
def reliability_curve(probs: Probs, labels: Labels, *, bins: int = 15) -> ReliabilityCurve:
    """The points of a reliability diagram; the last bin holds confidence exactly 1."""
    sums = bin_sums(*top_label(probs, labels), bins)
    return ReliabilityCurve(
        jnp.asarray(bin_edges(bins)), sums.counts, sums.confidence / sums.counts, sums.correct / sums.counts
    )


def top_label(probs: Probs, labels: Labels) -> tuple[jax.Array, jax.Array]:
    """Confidence in the most probable class, and whether it is the label."""
    return jnp.max(probs, axis=-1), is_most_probable(probs, labels)


def _adaptive_gap(confidence: Float[Array, " n"], correct: Array, bins: int) -> Float[Array, ""]:
    """Sum over bins of equally many inputs of |sum of correct - confidence| / n."""
    count = confidence.shape[0]
    if not 1 <= bins <= count:
        raise ValueError(f"bins: expected between 1 and the {count} inputs, got {bins}")
    sizes = [count // bins + (index < count % bins) for index in range(bins)]
    owner = np.repeat(np.arange(bins), sizes)
    ordered, right = jax.lax.sort_key_val(confidence, jnp.asarray(correct, confidence.dtype))
    right = mean_of_ties(ordered, right)
    return jnp.sum(jnp.abs(jax.ops.segment_sum(right - ordered, owner, num_segments=bins))) / count


def mean_of_ties(ordered: Float[Array, " n"], values: Float[Array, " n"]) -> Float[Array, " n"]:
    """Every value as the mean over the inputs of equal confidence, which have no order among them."""
    group = jnp.cumsum(jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.diff(ordered) != 0]))
    total = partial(
        jax.ops.segment_sum, segment_ids=group, num_segments=len(ordered), indices_are_sorted=True
    )
    return (total(values) / jnp.maximum(total(jnp.ones_like(values)), 1.0))[group]


def bin_edges(bins: int) -> np.ndarray:
    """`bins + 1` edges in float32, rounded as torch does: counted from 0 below the middle, above it from 1.

    A confidence of, say, float32(0.6) lies on an edge of 15 bins: one rounding moves it to another bin.
    """
    if bins < 1:
        raise ValueError(f"bins: expected a positive integer, got {bins}")
    step = float(np.float32(1.0) / np.float32(bins))
    index = np.arange(bins + 1)
    # In float64 and rounded once, which is what a fused multiply-add in float32 gives.
    return np.where(index < (bins + 1) // 2, step * index, 1.0 - step * (bins - index)).astype(np.float32)


def bin_sums(confidence: Float[Array, " n"], correct: Array, bins: int, weights: Array | None = None) -> Bins:
    """Sums over the inputs in each of `bins + 1` bins; an input of weight zero is left out."""
    confidence = confidence.astype(jnp.promote_types(confidence.dtype, jnp.float32))
    weights = jnp.ones_like(confidence) if weights is None else weights
    total = partial(jax.ops.segment_sum, segment_ids=_bin_index(confidence, bins), num_segments=bins + 1)
    return Bins(total(weights), total(weights * confidence), total(weights * correct))


def expected_gap(sums: Bins) -> Float[Array, ""]:
    """sum_b n_b/n |accuracy_b - confidence_b|: the counts of a bin cancel."""
    return jnp.sum(jnp.abs(sums.correct - sums.confidence)) / jnp.sum(sums.counts)


def maximum_gap(sums: Bins) -> Float[Array, ""]:
    """Largest |accuracy_b - confidence_b|; an empty bin has none."""
    return jnp.max(jnp.abs(sums.correct - sums.confidence) / jnp.where(sums.counts > 0, sums.counts, 1.0))


def classwise_sums(
    probs: Probs, labels: Labels, bins: int, weights: Array | None = None
) -> Float[Array, "bins c"]:
    """Sum of p - [y = c] in each bin of each class: all that the classwise error needs, and additive."""
    probs = probs.astype(jnp.promote_types(probs.dtype, jnp.float32))
    rows, classes = jnp.arange(probs.shape[0]), jnp.arange(probs.shape[1])
    weights = jnp.ones_like(probs[:, 0]) if weights is None else weights
    index = _bin_index(probs, bins)
    sums = jnp.zeros((bins + 1, classes.size), probs.dtype).at[index, classes].add(weights[:, None] * probs)
    return sums.at[index[rows, labels], labels].add(-weights)


def classwise_gap(sums: Float[Array, "bins c"], count: int | Array) -> Float[Array, ""]:
    """Mean over classes of sum_b |sum of p - [y = c]| / n."""
    return jnp.mean(jnp.sum(jnp.abs(sums), axis=0)) / count


def _bin_index(confidence: Float[Array, "..."], bins: int) -> Int[Array, "..."]:
    """How many edges above the first a confidence has reached; unrolled to be one vectorised pass."""
    reached = [(confidence >= edge).astype(jnp.int32) for edge in bin_edges(bins)[1:].tolist()]
    return reduce(jnp.add, reached)
