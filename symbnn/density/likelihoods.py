"""Likelihoods: what the outputs of a network say about the targets.

| name              | outputs                        | log p(y | outputs)                      |
|-------------------|--------------------------------|---------------------------------------|
| `categorical`     | logits (n, c), (n, places, c)  | Σ_places log softmax(outputs)[y]      |
| `bernoulli`       | logits (n, k)                  | Σ_k log sigmoid(±outputs_k)           |
| `gaussian`        | means (n, k)                   | Σ_k log N(y_k; mean_k, noise²)        |
| `heteroscedastic` | means and numbers s (n, 2k)    | Σ_k log N(y_k; mean_k, scale(s_k)²)   |
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from symbnn.names import lookup

LOG_TWO_PI = math.log(2.0 * math.pi)
MANY_EXAMPLES = 256


class Likelihood(NamedTuple):
    """A family p(target | outputs)."""

    name: str
    """With its settings: two likelihoods of one name are the same function."""
    log_prob: Callable[[Array, Array], Array]
    """(outputs, targets) -> (n,)."""
    predictive: Callable[[Array], Array]
    """Outputs -> mean of the target: probabilities (n, c), or means (n, k)."""
    sample: Callable[[Array, Array], Array]
    """(key, outputs) -> targets drawn from the family."""
    num_outputs: Callable[[Any], int | None]
    """Outputs that the network must have for these targets; None if any number will do."""
    has_labels: bool
    """Targets are class labels (n,) or (n, places), not real values (n, k)."""
    spread: Callable[[Array], Array] | None = None
    """Outputs -> standard deviation of a real-valued target (n, k); None where `predictive` says it all."""
    noise: float | None = None
    """The standard deviation of all targets, where that is one known number."""
    bounds: tuple[float, float] | None = None
    """The least and the largest value that a target may have; None if any will do."""


def categorical() -> Likelihood:
    """Softmax over classes; targets are labels (n,), or (n, places): the places of a sequence add up."""

    def log_prob(logits: Float[Array, "n *places c"], labels: Num[Array, " n *places"]) -> Float[Array, " n"]:
        # Few classes are added faster along the first axis than along the last, unless examples are few, too.
        axis, num_classes = 0 if len(logits) >= MANY_EXAMPLES else -1, logits.shape[-1]
        logits = jnp.moveaxis(logits, -1, axis)
        # A product with a one-hot array instead of an indexed read: the gradient of the read is a scatter.
        classes = jnp.arange(num_classes).reshape(-1, *[1] * labels.ndim)
        hot = jnp.expand_dims(labels, axis) == jnp.moveaxis(classes, 0, axis)
        each = jnp.sum(jnp.where(hot, logits, 0.0), axis=axis) - jax.nn.logsumexp(logits, axis=axis)
        return jnp.sum(each, axis=range(1, each.ndim))

    def predictive(logits: Float[Array, "*n c"]) -> Float[Array, "*n c"]:
        if logits.shape[-1] == 1:
            raise ValueError(
                "the network has one output, and the softmax of one is always 1: for a regression give "
                "likelihood=density.gaussian(noise), for one class or not density.bernoulli()"
            )
        return jax.nn.softmax(logits, axis=-1)

    return Likelihood(
        name="categorical()",
        log_prob=log_prob,
        predictive=predictive,
        sample=jax.random.categorical,
        num_outputs=lambda labels: None,
        has_labels=True,
    )


def bernoulli() -> Likelihood:
    """Independent 0/1 targets (n, k)."""

    def log_prob(logits: Float[Array, "n k"], targets: Num[Array, "n k"]) -> Float[Array, " n"]:
        return jnp.sum(targets * logits - jax.nn.softplus(logits), axis=-1)

    return Likelihood(
        name="bernoulli()",
        log_prob=log_prob,
        predictive=jax.nn.sigmoid,
        sample=lambda key, logits: jax.random.bernoulli(key, jax.nn.sigmoid(logits)).astype(logits.dtype),
        num_outputs=lambda targets: targets.shape[-1],
        has_labels=False,
        bounds=(0.0, 1.0),
    )


def gaussian(noise: float) -> Likelihood:
    """Real targets (n, k) with one known standard deviation; to learn it, see `learn_noise`."""
    if not noise > 0:
        raise ValueError(f"noise must be a positive standard deviation; got {noise}")

    def log_prob(means: Float[Array, "n k"], targets: Num[Array, "n k"]) -> Float[Array, " n"]:
        normaliser = math.log(noise) + 0.5 * LOG_TWO_PI
        return jnp.sum(-0.5 * jnp.square((targets - means) / noise) - normaliser, axis=-1)

    return Likelihood(
        name=f"gaussian({noise})",
        log_prob=log_prob,
        predictive=lambda means: means,
        sample=lambda key, means: means + noise * jax.random.normal(key, means.shape, means.dtype),
        num_outputs=lambda targets: targets.shape[-1],
        has_labels=False,
        spread=lambda means: jnp.full_like(means, noise),
        noise=float(noise),
    )


def heteroscedastic(scale: str = "exp") -> Likelihood:
    """Real targets (n, k); the network gives k means, then k numbers that `scale` turns into spreads.

    Args:
        scale: "exp", so that the numbers are logarithms of standard deviations; or "softplus",
            log(1 + exp(number)), which grows linearly where the noise is large: samplers of deep ReLU
            networks move faster with it.
    """
    to_std = lookup(SCALES, scale, "scale")

    def means_and_stds(outputs: Array) -> tuple[Array, Array]:
        means, numbers = jnp.split(outputs, 2, axis=-1)
        return means, to_std(numbers)

    def log_prob(outputs: Float[Array, "n two_k"], targets: Num[Array, "n k"]) -> Float[Array, " n"]:
        if scale == "exp":  # Without the logarithm of an exponential: no overflow on the way.
            means, log_stds = jnp.split(outputs, 2, axis=-1)
            scaled = (targets - means) * jnp.exp(-log_stds)
        else:
            means, stds = means_and_stds(outputs)
            scaled, log_stds = (targets - means) / stds, jnp.log(stds)
        return jnp.sum(-0.5 * jnp.square(scaled) - log_stds - 0.5 * LOG_TWO_PI, axis=-1)

    def sample(key: Array, outputs: Float[Array, "*n two_k"]) -> Float[Array, "*n k"]:
        means, stds = means_and_stds(outputs)
        return means + stds * jax.random.normal(key, means.shape, means.dtype)

    return Likelihood(
        name="heteroscedastic()" if scale == "exp" else f"heteroscedastic({scale!r})",
        log_prob=log_prob,
        predictive=lambda outputs: means_and_stds(outputs)[0],
        sample=sample,
        num_outputs=lambda targets: 2 * targets.shape[-1],
        has_labels=False,
        spread=lambda outputs: means_and_stds(outputs)[1],
    )


LEAST_STD = 1e-6
"""Of "softplus", which is zero in float32 below -104: as bde has it."""
SCALES: dict[str, Callable[[Array], Array]] = {
    "exp": jnp.exp,
    "softplus": lambda numbers: jax.nn.softplus(numbers) + LEAST_STD,
}
