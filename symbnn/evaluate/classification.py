"""Scores of predicted class probabilities, against labels or against a reference's (arXiv 2104.14421).

accuracy = 1/n sum_i [argmax p_i = y_i]            nll   = -1/n sum_i log p_i[y_i]
brier    = 1/n sum_i sum_c (p_i[c] - [y_i = c])^2  (between 0 and 2, not divided by the number of classes)

agreement       = 1/n sum_i [argmax p_i = argmax q_i]
total variation = 1/n sum_i 1/2 sum_c |p_i[c] - q_i[c]|
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from symbnn.evaluate.checks import Labels, Probs, checked, labels, probabilities, same_shape


@checked(probabilities, labels)
@jax.jit
def accuracy(probs: Probs, labels: Labels) -> Float[Array, ""]:
    """Share of inputs whose most probable class (the first of equals) is the label."""
    return jnp.mean(is_most_probable(probs, labels), dtype=jnp.float32)


@checked(probabilities, labels)
@jax.jit
def nll(probs: Probs, labels: Labels) -> Float[Array, ""]:
    """Mean negative log-probability of the label in nats; infinite if a label was given probability zero."""
    return -jnp.mean(jnp.log(label_probabilities(probs, labels)))


@checked(probabilities, labels)
@jax.jit
def brier(probs: Probs, labels: Labels) -> Float[Array, ""]:
    """Mean squared distance to the one-hot label, summed over classes."""
    at_label = label_probabilities(probs, labels)
    # (p_y - 1)^2 + sum over other classes of p^2, without building the one-hot matrix.
    others = jnp.sum(jnp.square(probs), axis=-1) - jnp.square(at_label)
    return jnp.mean(jnp.square(1.0 - at_label) + others)


@checked(probabilities, same_shape)
@jax.jit
def agreement(probs: Probs, reference: Probs) -> Float[Array, ""]:
    """Share of inputs with the same most probable class; of equally probable classes the first counts."""
    return jnp.mean(jnp.argmax(probs, axis=-1) == jnp.argmax(reference, axis=-1), dtype=jnp.float32)


@checked(probabilities, same_shape)
@jax.jit
def total_variation(probs: Probs, reference: Probs) -> Float[Array, ""]:
    """Mean over inputs of half the L1 distance: 0 if equal, 1 if nowhere overlapping."""
    return jnp.mean(0.5 * jnp.sum(jnp.abs(probs - reference), axis=-1))


def is_most_probable(probs: Probs, labels: Labels) -> Bool[Array, " n"]:
    """Whether each label is the most probable class (the first of equals); never where a number is NaN.

    The same as `argmax(probs) == labels` in one pass that XLA vectorises on CPUs, where its argmax is three
    times slower.
    """
    at_label, classes = label_probabilities(probs, labels)[:, None], jnp.arange(probs.shape[-1])
    is_behind = jnp.where(classes < labels[:, None], probs < at_label, probs <= at_label)
    # The label itself not by comparison: within a larger program XLA may round the two differently.
    return jnp.all(is_behind | (classes == labels[:, None]), axis=-1)


def label_probabilities(probs: Probs, labels: Labels) -> Float[Array, " n"]:
    """Probability given to each label."""
    return jnp.take_along_axis(probs, labels[:, None], axis=-1)[:, 0]
