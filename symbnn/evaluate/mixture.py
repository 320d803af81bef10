"""The predictive distribution of many regression networks: an equal mixture of their Gaussians, streamed.

    mean     = E_s[m_s]
    variance = E_s[v_s] + Var_s[m_s]                                 aleatoric + epistemic
    log density of a target y = log 1/S sum_s prod_k N(y_k; m_sk, v_sk)

Moments of blocks are merged as means and sums of squared deviations (Chan et al. 1979), not as raw second
moments, so a large common offset costs no digits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn.evaluate.predictive import BLOCK_INPUTS, BLOCK_SAMPLES
from symbnn.evaluate.regression import normal_log_density
from symbnn.evaluate.stream import Apply, Reduction, count_samples, fold
from symbnn.types import Key


class Mixture(NamedTuple):
    """Per input and output `(n, k)`; the log-density of the targets `(n,)` if there were any."""

    mean: jax.Array
    variance: jax.Array
    aleatoric: jax.Array
    epistemic: jax.Array
    log_density: jax.Array | None


class _Moments(NamedTuple):
    weight: jax.Array
    mean: jax.Array
    deviation: jax.Array
    noise: jax.Array
    log_sum: jax.Array


def predict_regression(
    apply: Apply,
    samples: Any,
    inputs: Any,
    *,
    noise: float | jax.Array | None = None,
    targets: Any = None,
    block_samples: int = BLOCK_SAMPLES,
    block_inputs: int = BLOCK_INPUTS,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Mixture:
    """Mean, variance and log-density; without `noise` (a std) the outputs are means, then log-stds."""
    count = count_samples(samples, key, num_samples)
    rows = jnp.shape(inputs)[0]
    stds = () if noise is None else (jnp.broadcast_to(jnp.asarray(noise, jnp.float32), (rows, 1)),)
    wanted = jnp.zeros((rows, 1)) if targets is None else jnp.asarray(targets)
    if wanted.ndim != 2 or wanted.shape[0] != rows:
        raise ValueError(f"targets: expected shape ({rows}, outputs), got {wanted.shape}")
    moments = fold(
        apply,
        samples,
        inputs,
        _REDUCTION,
        wanted,
        *stds,
        block_samples=block_samples,
        block_inputs=block_inputs,
        key=key,
        num_samples=num_samples,
    )
    aleatoric, epistemic = moments.noise / count, moments.deviation / count
    log_density = None if targets is None else moments.log_sum - jnp.log(count)
    return Mixture(moments.mean, aleatoric + epistemic, aleatoric, epistemic, log_density)


def _summarise(outputs: jax.Array, weights: jax.Array, targets: jax.Array, *stds: jax.Array) -> _Moments:
    if stds:
        means, std = outputs, jnp.broadcast_to(stds[0], outputs.shape)
    else:
        means, log_stds = jnp.split(outputs, 2, axis=-1)
        std = jnp.exp(log_stds)
    total = jnp.sum(weights)
    mean = jnp.tensordot(weights, means, axes=1) / total
    log_density = jnp.sum(normal_log_density(targets, means, std), axis=-1)
    return _Moments(
        weight=jnp.full(mean.shape[0], total),
        mean=mean,
        deviation=jnp.tensordot(weights, jnp.square(means - mean), axes=1),
        noise=jnp.tensordot(weights, jnp.square(std), axes=1),
        log_sum=jax.nn.logsumexp(log_density, axis=0, b=weights[:, None]),
    )


def _merge(a: _Moments, b: _Moments) -> _Moments:
    weight = a.weight + b.weight
    share = (b.weight / weight)[..., None]
    difference = b.mean - a.mean
    return _Moments(
        weight=weight,
        mean=a.mean + share * difference,
        deviation=a.deviation + b.deviation + jnp.square(difference) * share * a.weight[..., None],
        noise=a.noise + b.noise,
        log_sum=jnp.logaddexp(a.log_sum, b.log_sum),
    )


_REDUCTION = Reduction(_summarise, _merge)
