"""Selective prediction: answer the inputs one is surest of, and count the errors among them.

With inputs sorted by confidence, the risk at coverage k/n is r_k = (errors among the k most confident) / k.

    AURC = trapezoid of r_k over coverage k/n, k = 1..n, divided by 1 - 1/n      (Geifman, El-Yaniv 2017)

Inputs of equal confidence have no order. Each counts as the mean of its tie group, which is exactly the mean
over all orders (r_k is linear in the errors), so the value does not depend on how the inputs were listed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.evaluate.calibration import mean_of_ties, top_label
from symbnn.evaluate.checks import Labels, Probs, checked, labels, probabilities


class RiskCoverage(NamedTuple):
    """Risk among the `coverage` share of most confident inputs, from one input to all."""

    coverage: jax.Array
    risk: jax.Array


@checked(probabilities, labels)
@jax.jit
def risk_coverage_curve(probs: Probs, labels: Labels) -> RiskCoverage:
    """The risk r_k at every coverage k/n."""
    count = probs.shape[0]
    confidence, correct = top_label(probs, labels)
    expected = mean_of_ties(*jax.lax.sort_key_val(-confidence, 1.0 - correct))
    position = jnp.arange(1, count + 1)
    return RiskCoverage(position / count, jnp.cumsum(expected) / position)


@checked(probabilities, labels)
@jax.jit
def aurc(probs: Probs, labels: Labels) -> Float[Array, ""]:
    """Area under the risk-coverage curve: 0 is perfect, the error rate is chance; NaN for a single input."""
    risk = risk_coverage_curve(probs, labels).risk
    # Mean height of the trapezoids, each 1/n of a whole 1 - 1/n wide.
    return jnp.mean(0.5 * (risk[1:] + risk[:-1])) if len(risk) > 1 else jnp.full((), jnp.nan)
