"""The predictive distribution of many networks: p(y | x) = 1/S sum_s p(y | x, w_s).

    probs = predict(model.apply, samples, inputs)                                  # (inputs, classes)
    probs = predict(model.apply, posterior, inputs, key=key, num_samples=200)      # drawn on the fly
    probs = predict(model.apply, empirical, inputs)                                # all its networks
    mixture = predict(model.apply, samples, inputs, likelihood=density.gaussian(0.1))

Draws that stay in a store (`chunks()`) are read chunk by chunk, and members come in that order.

Streamed over samples and inputs (`symbnn.evaluate.stream`): memory is that of one block. Repeated calls with
the same `apply` and shapes compile nothing; pass the same function object each time, not a fresh lambda.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from symbnn.density import Likelihood, categorical
from symbnn.evaluate.given import Apply, count_samples, kept, refuse_chains
from symbnn.evaluate.mixture import Mixture, member, moments_of
from symbnn.evaluate.stream import (
    Block,
    Reduction,
    blocks,
    check_inputs,
    fold,
    replicate,
    sample_axis,
    statistics,
    widened,
)
from symbnn.frameworks import check_apply
from symbnn.types import Key

# 8 networks x 1,024 inputs keep a matrix multiply busy; at 512 units the activations take 16 MiB.
BLOCK_SAMPLES = 8
BLOCK_INPUTS = 1024
CATEGORICAL = categorical()


class Uncertainty(NamedTuple):
    """Predictive probabilities, and each input's entropy in nats: total = aleatoric + epistemic."""

    probs: jax.Array
    total: jax.Array
    aleatoric: jax.Array
    epistemic: jax.Array


def predict(
    apply: Apply,
    samples: Any,
    inputs: Any,
    *,
    likelihood: Likelihood | None = None,
    block_samples: int = BLOCK_SAMPLES,
    block_inputs: int = BLOCK_INPUTS,
    members: bool = False,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Any:
    """What the networks together predict: an equal mixture of what each of them predicts.

    Args:
        apply: `(params, inputs) -> outputs` of one network.
        samples: Networks stacked along axis 0, a posterior (or `Fit`) that keeps its networks, or, with `key`
            and `num_samples`, any posterior. A tree of `(chains, draws, ...)` comes in by
            `posteriors.Empirical.from_chains`.
        inputs: `(inputs, ...)`.
        likelihood: What the outputs mean, one of `symbnn.density`; by default logits of classes.
        block_samples: Networks that are applied at a time.
        block_inputs: Inputs that they are applied to at a time.
        members: Give what every network predicts, along a leading axis, instead of the mixture.
        key: Draws from the posterior.
        num_samples: How many draws.

    Returns:
        Probabilities `(inputs, classes)` for labels and 0/1 targets; for real-valued targets a `Mixture`,
        whose mean and standard deviation are `(inputs, outputs)`.
    """
    likelihood = CATEGORICAL if likelihood is None else likelihood
    samples, count = _given(apply, samples, inputs, key, num_samples)
    if members:
        check_inputs(inputs, block_samples, block_inputs)
        mesh_axis = sample_axis(samples)
        at = replicate(mesh_axis, inputs)
        step = functools.partial(statistics, apply, _each_of(likelihood), block_inputs, mesh_axis)
        stream = blocks(samples, block_samples, key=key, num_samples=num_samples)
        return _in_order([_new_members(block, step(block, at)) for block in stream])
    size: Any = {"block_samples": block_samples, "block_inputs": block_inputs}
    reduction = _sum_of(likelihood) if likelihood.spread is None else moments_of(likelihood)
    total = fold(apply, samples, inputs, reduction, key=key, num_samples=num_samples, **size)
    return total / count if likelihood.spread is None else total.mixture()


def predict_uncertainty(
    apply: Apply,
    samples: Any,
    inputs: Any,
    *,
    block_samples: int = BLOCK_SAMPLES,
    block_inputs: int = BLOCK_INPUTS,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Uncertainty:
    """Class probabilities, their entropy, the members' mean entropy, and the difference: mutual information.

    The arguments are those of `predict`.
    """
    samples, count = _given(apply, samples, inputs, key, num_samples)
    size: Any = {"block_samples": block_samples, "block_inputs": block_inputs}
    sums = fold(apply, samples, inputs, _ENTROPIES, key=key, num_samples=num_samples, **size)
    probs, aleatoric = (part / count for part in sums)
    total = -jnp.sum(xlogy(probs, probs), axis=-1)
    return Uncertainty(probs, total, aleatoric, jnp.maximum(total - aleatoric, 0.0))


def _given(
    apply: Apply, samples: Any, inputs: Any, key: Key | None, num_samples: int | None
) -> tuple[Any, int]:
    """What to take networks from, and how many, after checking both against the network function."""
    check_apply(apply)
    samples = kept(samples, key)
    count = count_samples(samples, key, num_samples)
    refuse_chains(apply, samples, inputs)
    return samples, count


def _weighted_sum(values: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.tensordot(weights, widened(values), axes=1)


@functools.lru_cache(maxsize=64)
def _sum_of(likelihood: Likelihood) -> Reduction:
    """The sum of the networks' probabilities; the same object for the same likelihood, so compiled once."""

    def summarise(outputs: jax.Array, weights: jax.Array) -> jax.Array:
        return _weighted_sum(likelihood.predictive(widened(outputs)), weights)

    return Reduction(summarise, _add)


def _sum_entropies(logits: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_probs = jax.nn.log_softmax(widened(logits))
    probs = jnp.exp(log_probs)
    entropy = -jnp.sum(jnp.where(probs > 0, probs * log_probs, 0.0), axis=-1)
    return _weighted_sum(probs, weights), _weighted_sum(entropy, weights)


def _add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


_ENTROPIES = Reduction(_sum_entropies, _add)


@functools.lru_cache(maxsize=64)
def _each_of(likelihood: Likelihood) -> Callable[..., Any]:
    """What every network predicts, (inputs, networks, ...); the same object for the same likelihood."""

    def summarise(outputs: jax.Array, weights: jax.Array) -> jax.Array | Mixture:
        outputs = widened(jnp.moveaxis(outputs, 0, 1))
        return likelihood.predictive(outputs) if likelihood.spread is None else member(likelihood, outputs)

    return summarise


def _new_members(block: Block, each: Any) -> Any:
    """`(devices, members, inputs, ...)` of those that no earlier block has counted: the last ones."""
    new = int(block.weights.sum())
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 1)[:, -new:], each)


def _in_order(parts: list[Any]) -> Any:
    """Blocks joined per device, then devices one after the other: the order of the samples."""
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), joined)
