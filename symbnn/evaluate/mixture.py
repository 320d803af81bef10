"""The predictive distribution of many regression networks: an equal mixture of their Gaussians, streamed.

    mean     = E_s[m_s]
    variance = E_s[v_s] + Var_s[m_s]                                 aleatoric + epistemic

Moments of blocks are merged as means and sums of squared deviations (Chan et al. 1979), not as raw second
moments, so a large common offset costs no digits.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn.density import Likelihood
from symbnn.evaluate.stream import Reduction, widened


class Mixture(NamedTuple):
    """Real-valued predictions `(inputs, outputs)`; the spreads are in units of the targets."""

    mean: jax.Array
    std: jax.Array
    """Of a new target: std² = aleatoric² + epistemic²."""
    aleatoric: jax.Array
    """Root mean square of the networks' noise."""
    epistemic: jax.Array
    """Standard deviation of the networks' means."""


class Moments(NamedTuple):
    """Sums over the networks of some blocks."""

    weight: jax.Array
    mean: jax.Array
    deviation: jax.Array
    noise: jax.Array

    def mixture(self) -> Mixture:
        """The predictive of the networks seen so far."""
        aleatoric, epistemic = self.noise / self.weight[:, None], self.deviation / self.weight[:, None]
        return Mixture(self.mean, *map(jnp.sqrt, (aleatoric + epistemic, aleatoric, epistemic)))


def member(likelihood: Likelihood, outputs: jax.Array) -> Mixture:
    """What one network alone predicts: noise, and no doubt about its own mean."""
    assert likelihood.spread is not None
    mean, std = likelihood.predictive(outputs), likelihood.spread(outputs)
    return Mixture(mean, std, std, jnp.zeros_like(mean))


@functools.lru_cache(maxsize=64)
def moments_of(likelihood: Likelihood) -> Reduction:
    """The reduction of outputs to `Moments`; the same object for the same likelihood, so compiled once."""

    def summarise(outputs: jax.Array, weights: jax.Array) -> Moments:
        each = member(likelihood, widened(outputs))
        total = jnp.sum(weights)
        mean = jnp.tensordot(weights, each.mean, axes=1) / total
        return Moments(
            weight=jnp.full(mean.shape[0], total),
            mean=mean,
            deviation=jnp.tensordot(weights, jnp.square(each.mean - mean), axes=1),
            noise=jnp.tensordot(weights, jnp.square(each.std), axes=1),
        )

    return Reduction(summarise, _merge)


def _merge(a: Moments, b: Moments) -> Moments:
    weight = a.weight + b.weight
    share = (b.weight / weight)[..., None]
    difference = b.mean - a.mean
    return Moments(
        weight=weight,
        mean=a.mean + share * difference,
        deviation=a.deviation + b.deviation + jnp.square(difference) * share * a.weight[..., None],
        noise=a.noise + b.noise,
    )
