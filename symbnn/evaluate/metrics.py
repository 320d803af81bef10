"""All classification metrics that are sums, accumulated over batches and devices.

    metrics = Metrics.empty(num_classes)
    for probs, labels in batches:
        metrics = metrics.update(probs, labels)
    values = metrics.compute()                     # {"accuracy": ..., "nll": ..., "ece": ..., ...}

Every field is a sum over inputs, so two bundles merge by adding, and `jax.lax.psum` of a bundle over a mesh
axis is the bundle of all devices. Metrics of ranks (AURC, adaptive ECE) need all inputs at once: not here.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from symbnn.evaluate.calibration import (
    Bins,
    bin_sums,
    classwise_gap,
    classwise_sums,
    expected_gap,
    maximum_gap,
    top_label,
)
from symbnn.evaluate.checks import Labels, Probs, checked, input_weights, labels, probabilities, same_shape
from symbnn.evaluate.classification import label_probabilities


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Metrics:
    """Sums over the inputs seen so far; the last three only over inputs that came with a reference."""

    weight: jax.Array
    correct: jax.Array
    nll: jax.Array
    brier: jax.Array
    entropy: jax.Array
    bins: Bins
    classwise: jax.Array
    reference_weight: jax.Array
    agreement: jax.Array
    total_variation: jax.Array

    @classmethod
    def empty(cls, num_classes: int, *, bins: int = 15) -> "Metrics":
        """No inputs yet."""
        nothing: dict[str, Any] = {field.name: jnp.zeros(()) for field in dataclasses.fields(cls)}
        histogram = Bins(*(jnp.zeros(bins + 1) for _ in Bins._fields))
        per_class = jnp.zeros((bins + 1, num_classes))
        return cls(**nothing | {"bins": histogram, "classwise": per_class})

    def update(
        self,
        probs: Probs,
        labels: Labels,
        *,
        reference: Probs | None = None,
        weights: Float[Array, " n"] | None = None,
    ) -> "Metrics":
        """With one more batch; `reference`: probabilities to agree with; weight zero leaves an input out."""
        num_bins = self.bins.counts.shape[0] - 1
        return self.merge(_summarise(probs, labels, reference, weights, bins=num_bins))

    def merge(self, other: "Metrics") -> "Metrics":
        """The bundle of both sets of inputs."""
        return jax.tree.map(jnp.add, self, other)

    def compute(self) -> dict[str, jax.Array]:
        """The metrics by name; agreement and total variation are NaN if there was no reference."""
        return {
            "accuracy": self.correct / self.weight,
            "nll": self.nll / self.weight,
            "brier": self.brier / self.weight,
            "entropy": self.entropy / self.weight,
            "ece": expected_gap(self.bins),
            "mce": maximum_gap(self.bins),
            "classwise_ece": classwise_gap(self.classwise, self.weight),
            "agreement": self.agreement / self.reference_weight,
            "total_variation": self.total_variation / self.reference_weight,
        }


@checked(probabilities, labels, same_shape, input_weights)
@partial(jax.jit, static_argnames="bins")
def _summarise(
    probs: Probs,
    labels: Labels,
    reference: Probs | None,
    weights: Float[Array, " n"] | None,
    *,
    bins: int,
) -> Any:
    weights = jnp.ones(probs.shape[0]) if weights is None else weights
    total = lambda values: jnp.sum(jnp.where(weights > 0, weights * values, 0.0))  # noqa: E731
    at_label = label_probabilities(probs, labels)
    confidence, correct = top_label(probs, labels)
    squares = jnp.sum(jnp.square(probs), axis=-1)
    # Compared with itself and with weight zero, where there is no reference.
    other = probs if reference is None else reference
    has_reference = float(reference is not None)
    same = jnp.argmax(probs, axis=-1) == jnp.argmax(other, axis=-1)
    variation = 0.5 * jnp.sum(jnp.abs(probs - other), axis=-1)
    return Metrics(
        weight=jnp.sum(weights),
        correct=total(correct),
        nll=-total(jnp.log(at_label)),
        brier=total(1.0 - 2.0 * at_label + squares),
        entropy=-total(jnp.sum(xlogy(probs, probs), axis=-1)),
        bins=bin_sums(confidence, correct, bins, weights),
        classwise=classwise_sums(probs, labels, bins, weights),
        reference_weight=has_reference * jnp.sum(weights),
        agreement=has_reference * total(same),
        total_variation=has_reference * total(variation),
    )
