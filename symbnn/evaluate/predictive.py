"""The predictive distribution of many networks: p(y | x) = 1/S sum_s p(y | x, w_s).

    probs = predict(model.apply, samples, inputs)                                  # (inputs, classes)
    probs = predict(model.apply, posterior, inputs, key=key, num_samples=200)      # drawn on the fly
    probs = predict(model.apply, empirical, inputs)                                # all its networks

Draws that stay in a store (`chunks()`) are read chunk by chunk, and members come in that order.

Streamed over samples and inputs (`symbnn.evaluate.stream`): memory is that of one block. Repeated calls with
the same `apply` and shapes compile nothing; pass the same function object each time, not a fresh lambda.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from symbnn.evaluate.stream import (
    Apply,
    Block,
    Reduction,
    blocks,
    check_inputs,
    count_samples,
    fold,
    map_blocks,
)
from symbnn.names import lookup
from symbnn.types import Key, Samples

# 8 networks x 1,024 inputs keep a matrix multiply busy; at 512 units the activations take 16 MiB.
BLOCK_SAMPLES = 8
BLOCK_INPUTS = 1024


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
    block_samples: int = BLOCK_SAMPLES,
    block_inputs: int = BLOCK_INPUTS,
    average: str = "probabilities",
    members: bool = False,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Float[Array, "*members inputs classes"]:
    """Mean softmax over samples, or softmax of the mean logits; with `members`, each sample's softmax."""
    reduction = lookup(_AVERAGES, average, "average")
    count = count_samples(samples, key, num_samples)
    if members:
        check_inputs(inputs, block_samples, block_inputs)
        stream = blocks(samples, block_samples, key=key, num_samples=num_samples)
        return _in_order([_member_block(apply, block_inputs, block, inputs) for block in stream])
    total = fold(
        apply,
        samples,
        inputs,
        reduction,
        block_samples=block_samples,
        block_inputs=block_inputs,
        key=key,
        num_samples=num_samples,
    )
    return total / count if average == "probabilities" else jax.nn.softmax(total / count)


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
    """Probabilities, their entropy, the members' mean entropy, and the difference: mutual information."""
    count = count_samples(samples, key, num_samples)
    probs, entropy = fold(
        apply,
        samples,
        inputs,
        _ENTROPIES,
        block_samples=block_samples,
        block_inputs=block_inputs,
        key=key,
        num_samples=num_samples,
    )
    probs, aleatoric = probs / count, entropy / count
    total = -jnp.sum(xlogy(probs, probs), axis=-1)
    return Uncertainty(probs, total, aleatoric, jnp.maximum(total - aleatoric, 0.0))


def _weighted_sum(values: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.tensordot(weights, _widened(values), axes=1)


def _widened(values: jax.Array) -> jax.Array:
    """At least float32: a softmax in half precision does not sum to one."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def _sum_probabilities(logits: jax.Array, weights: jax.Array) -> jax.Array:
    return _weighted_sum(jax.nn.softmax(_widened(logits)), weights)


def _sum_entropies(logits: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_probs = jax.nn.log_softmax(_widened(logits))
    probs = jnp.exp(log_probs)
    entropy = -jnp.sum(jnp.where(probs > 0, probs * log_probs, 0.0), axis=-1)
    return _weighted_sum(probs, weights), _weighted_sum(entropy, weights)


def _add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


_AVERAGES = {
    "probabilities": Reduction(_sum_probabilities, _add),
    "logits": Reduction(_weighted_sum, _add),
}
_ENTROPIES = Reduction(_sum_entropies, _add)


def _member_block(apply: Apply, block_inputs: int, block: Block, inputs: Any) -> jax.Array:
    """`(devices, new members, inputs, classes)` of one block."""
    probs = _member_probs(apply, block_inputs, block.samples, jnp.asarray(inputs))
    size = block.weights.shape[0]
    counted = size - int(block.weights.sum())
    return probs.reshape(-1, size, *probs.shape[1:])[:, counted:]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _member_probs(apply: Apply, block_inputs: int, samples: Samples, inputs: jax.Array) -> jax.Array:
    def rows(inputs: jax.Array) -> jax.Array:
        return jax.nn.softmax(_widened(jax.vmap(apply, in_axes=(0, None), out_axes=1)(samples, inputs)))

    return jnp.moveaxis(map_blocks(rows, (inputs,), block_inputs), 0, 1)


def _in_order(parts: list[jax.Array]) -> jax.Array:
    """Blocks joined per device, then devices one after the other: the order of the samples."""
    joined = jnp.concatenate(parts, axis=1)
    return joined.reshape(-1, *joined.shape[2:])
