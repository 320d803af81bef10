"""Proper and improper scores of predicted class probabilities.

accuracy = 1/n sum_i [argmax p_i = y_i]            nll   = -1/n sum_i log p_i[y_i]
brier    = 1/n sum_i sum_c (p_i[c] - [y_i = c])^2  (between 0 and 2, not divided by the number of classes)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from symbnn.evaluate.checks import checked, labels, probabilities


@checked(probabilities, labels)
@jax.jit
def accuracy(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """Share of inputs whose most probable class (the first of equals) is the label."""
    return jnp.mean(is_most_probable(probs, labels), dtype=jnp.float32)


@checked(probabilities, labels)
@jax.jit
def nll(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """Mean negative log-probability of the label in nats; infinite if a label was given probability zero."""
    return -jnp.mean(jnp.log(label_probabilities(probs, labels)))


@checked(probabilities, labels)
@jax.jit
def brier(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """Mean squared distance to the one-hot label, summed over classes."""
    at_label = label_probabilities(probs, labels)
    # (p_y - 1)^2 + sum over other classes of p^2, without building the one-hot matrix.
    others = jnp.sum(jnp.square(probs), axis=-1) - jnp.square(at_label)
    return jnp.mean(jnp.square(1.0 - at_label) + others)


def is_most_probable(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Bool[Array, " n"]:
    """Whether each label is the most probable class (the first of equals); never where a number is NaN.

    The same as `argmax(probs) == labels` in one pass that XLA vectorises on CPUs, where its argmax is three
    times slower.
    """
    at_label, classes = label_probabilities(probs, labels)[:, None], jnp.arange(probs.shape[-1])
    is_behind = jnp.where(classes < labels[:, None], probs < at_label, probs <= at_label)
    # The label itself not by comparison: within a larger program XLA may round the two differently.
    return jnp.all(is_behind | (classes == labels[:, None]), axis=-1)


def label_probabilities(probs: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    """Probability given to each label."""
    return jnp.take_along_axis(probs, labels[:, None], axis=-1)[:, 0]
