"""Corrections of an averaged network before it is judged: the `correct` of `symbnn.evaluate.barrier`.

The activations of a mean of two networks vary less than those of either (variance collapse).

- `recompute_statistics`: BatchNorm's running mean and variance of the ends are not those of the mean network;
  they are measured anew.
- `repair` (REPAIR, Jordan et al. 2022, arXiv 2211.08403): give each pre-activation of the mean network the
  mean and standard deviation interpolated from the ends, by an affine change of the unit's own weights.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.evaluate.barrier import Correction
from symbnn.types import Key, Params

Train = Callable[[Params, jax.Array, Key], tuple[jax.Array, Params]]
Preactivations = Callable[[Params, jax.Array], Mapping[str, jax.Array]]
"""Pre-activations `(inputs, ..., units)` by layer, input to output; layer `x` owns `x/kernel`, `x/bias`."""


def recompute_statistics(train: Train, inputs: jax.Array, key: Key, *, block_inputs: int = 256) -> Correction:
    """Batch statistics averaged over blocks of `inputs` (a remainder shorter than a block is left out).

    A running statistic moves as new = m old + (1 - m) batch. Two updates, from old = 0 and old = 1, give m
    and so the batch's own value, whatever momentum the network was built with.

    Args:
        train: `(params, inputs, key) -> (outputs, params)` of a model in training mode.
        inputs: What the statistics are measured on.
        key: For what is random in training mode.
        block_inputs: Size of a batch.
    """
    size = min(block_inputs, inputs.shape[0])
    blocks = inputs[: inputs.shape[0] // size * size].reshape(-1, size, *inputs.shape[1:])

    def correct(a: Params, b: Params, weight: float | jax.Array, params: Params) -> Params:
        def updated(old: float, block: jax.Array) -> Any:
            start = jax.tree.map(lambda leaf: jnp.full_like(leaf, old), params["batch_stats"])
            return train({**params, "batch_stats": start}, block, key)[1]["batch_stats"]

        def measure(block: jax.Array) -> Any:
            from_zero, from_one = updated(0.0, block), updated(1.0, block)
            return jax.tree.map(lambda zero, one: zero / (1.0 - (one - zero)), from_zero, from_one)

        measured = jax.lax.map(measure, blocks)
        return {**params, "batch_stats": jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), measured)}

    return correct


def repair(preactivations: Preactivations, inputs: jax.Array) -> Correction:
    """Pre-activations with interpolated mean and standard deviation, layer after layer.

    Args:
        preactivations: `(params, inputs) -> {layer: (inputs, ..., units)}`.
        inputs: What means and standard deviations are measured on.
    """

    def correct(a: Params, b: Params, weight: float | jax.Array, params: Params) -> Params:
        ends = [{name: _moments(z) for name, z in preactivations(end, inputs).items()} for end in (a, b)]
        for layer in ends[0]:
            # Measured on the network corrected so far: each layer sees repaired inputs.
            mean, std = _moments(preactivations(params, inputs)[layer])
            wanted_mean, wanted_std = (
                (1.0 - weight) * at_a + weight * at_b
                for at_a, at_b in zip(ends[0][layer], ends[1][layer], strict=True)
            )
            factor = wanted_std / jnp.maximum(std, 1e-8)
            bias = factor * (tree.named_leaves(params)[f"{layer}/bias"] - mean) + wanted_mean
            params = _with_layer(params, layer, factor, bias)
        return params

    return correct


def _with_layer(params: Params, layer: str, factor: jax.Array, bias: jax.Array) -> Params:
    """Kernel times `factor` along its last axis, and the new bias."""

    def change(name: str, leaf: jax.Array) -> jax.Array:
        return leaf * factor if name == f"{layer}/kernel" else bias if name == f"{layer}/bias" else leaf

    return tree.map_named(change, params)


def _moments(preactivations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of each unit over inputs and positions."""
    axes = tuple(range(preactivations.ndim - 1))
    return jnp.mean(preactivations, axes), jnp.std(preactivations, axes)
