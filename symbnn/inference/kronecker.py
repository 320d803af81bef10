"""Curvature of every leaf as a Kronecker product (Martens and Grosse 2015; Ritter et al. 2018).

    G_leaf ≈ A ⊗ B,   A = mean over inputs n and positions s of a_ns a_nsᵀ,   B = Σ_ns Σ_k g_nsk g_nskᵀ,

with a the activations that meet the leaf, and g_nsk the slopes of (L_nᵀ f)_k with H_n = L_n L_nᵀ, where the
leaf is read (`inference.layers`). Exact for one data point and one position. Positions of a convolution count
as if they were independent ("expand" of Eschenhagen et al. 2023), those of a broadcast bias as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.density import Batch, Likelihood
from symbnn.inference import layers
from symbnn.inference.curvature import hessian_roots, sum_over_chunks
from symbnn.inference.layers import Apply, Reading
from symbnn.types import Params

Pair = tuple[Array, Array]
"""Of inputs and of outputs."""


class Factors(NamedTuple):
    """A ⊗ B of one leaf, by the eigenvectors of both and the products of their eigenvalues."""

    left: Float[Array, "i i"]
    right: Float[Array, "o o"]
    values: Float[Array, "i o"]
    inputs: tuple[int, ...]
    """Axes of the leaf that A is over."""


def kronecker(
    apply: Apply, likelihood: Likelihood, params: Params, data: Batch, *, chunk_size: int
) -> dict[str, Factors]:
    """The curvature of every leaf of `params`, by name."""
    readings = layers.readings(apply, params, data.inputs[0])

    def example(x: Array, y: Array) -> dict[str, Pair]:
        return _by_leaf(readings, *_met(apply, likelihood, params, readings, x, y))

    def chunk(batch: Batch) -> dict[str, Pair]:
        return jax.tree.map(_gram, jax.vmap(example)(*batch))

    sums = sum_over_chunks(chunk, data, chunk_size)
    shapes = jax.eval_shape(example, data.inputs[0], data.targets[0])
    axes = {reading.leaf: reading.inputs for reading in readings}
    return {
        name: _decomposed(inputs / (data.inputs.shape[0] * shapes[name][0].shape[0]), outputs, axes[name])
        for name, (inputs, outputs) in sums.items()
    }


def _met(
    apply: Apply, likelihood: Likelihood, params: Params, readings: list[Reading], x: Array, y: Array
) -> tuple[list[Array], list[Array]]:
    """Activations of every reading at one input, and its slopes: (k, *shape of the tap)."""

    def run(taps: list[Array]) -> tuple[Array, list[Array]]:
        given = iter(taps)
        traced = layers.trace(apply, params, x, lambda shape: next(given))
        return traced.outputs, traced.activations

    dtype = jnp.result_type(*jax.tree.leaves(params))
    zeros = [jnp.zeros(reading.shape, dtype) for reading in readings]
    outputs, pullback, activations = jax.vjp(run, zeros, has_aux=True)
    root = hessian_roots(likelihood, outputs[None], Batch(x[None], y[None]))[0]
    (slopes,) = jax.vmap(pullback, in_axes=1)(root)
    return activations, slopes


def _by_leaf(readings: list[Reading], activations: list[Array], slopes: list[Array]) -> dict[str, Pair]:
    """(positions, in) and (positions · k, out) by leaf; a leaf that is read twice has more positions."""
    found: dict[str, Pair] = {}
    for reading, inputs, slope in zip(readings, activations, slopes, strict=True):
        arranged = jax.vmap(reading.arrange)(slope)
        pair = inputs, arranged.reshape(-1, arranged.shape[-1])
        known = found.get(reading.leaf)
        found[reading.leaf] = pair if known is None else jax.tree.map(_joined, known, pair)
    return found


def _joined(a: Array, b: Array) -> Array:
    return jnp.concatenate([a, b])


def _gram(rows: Float[Array, "n positions k"]) -> Float[Array, "k k"]:
    flat = rows.reshape(-1, rows.shape[-1])
    return flat.T @ flat


def _decomposed(inputs: Float[Array, "i i"], outputs: Float[Array, "o o"], axes: tuple[int, ...]) -> Factors:
    (input_values, left), (output_values, right) = jnp.linalg.eigh(inputs), jnp.linalg.eigh(outputs)
    values = jnp.maximum(input_values, 0.0)[:, None] * jnp.maximum(output_values, 0.0)
    return Factors(left, right, values, axes)
