"""Generalised Gauss-Newton curvature of the negative log-likelihood, summed over data chunk by chunk.

    G = Σ_n J_nᵀ H_n J_n,   J_n = ∂ outputs_n / ∂ weights,   H_n = -∂² log p(y_n | outputs) / ∂ outputs²

For the categorical and the Gaussian likelihood this is the Fisher information, and for a network that is
linear in its weights the exact Hessian. H_n is cut at zero where a likelihood is not
log-concave in its outputs.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn.density import Batch, Likelihood
from symbnn.types import Key

ITERATIONS, OVERSAMPLING = 4, 10
"""Of the subspace iteration: enough for curvatures, whose eigenvalues fall fast."""


class Fitted(NamedTuple):
    """A network at the weights whose curvature is wanted, as a function of them laid out flat."""

    outputs: Callable[[Float[Array, " p"], Array], Float[Array, "n c"]]
    """(flat weights, inputs) -> outputs."""
    likelihood: Likelihood
    weights: Float[Array, " p"]


def diagonal(network: Fitted, data: Batch, *, chunk_size: int) -> Float[Array, " p"]:
    """The diagonal of G, exactly: squares of the rows of L_nᵀ J_n, with H_n = L_n L_nᵀ."""

    def chunk(batch: Batch) -> Array:
        return jnp.sum(jnp.square(_rows(network, batch)), axis=(0, 1))

    return sum_over_chunks(chunk, data, chunk_size)


def full(network: Fitted, data: Batch, *, chunk_size: int) -> Float[Array, "p p"]:
    """All of G: for few weights, as in a last layer."""

    def chunk(batch: Batch) -> Array:
        rows = _rows(network, batch).reshape(-1, network.weights.shape[0])
        return rows.T @ rows

    return sum_over_chunks(chunk, data, chunk_size)


def low_rank(key: Key, network: Fitted, data: Batch, *, rank: int, chunk_size: int) -> Float[Array, "r p"]:
    """F with FᵀF the best approximation of G of rank `rank`, by randomised subspace iteration.

    Halko, Martinsson and Tropp 2011, algorithm 4.4 with a Rayleigh-Ritz step: exact if the subspace (rank
    plus oversampling) holds the range of G. Costs `ITERATIONS + 1` products of G with a block.
    """
    num_weights, dtype = network.weights.shape[0], network.weights.dtype
    width = min(rank + OVERSAMPLING, num_weights)
    start = jax.random.normal(key, (num_weights * width,), dtype).reshape(num_weights, width)
    product = functools.partial(_product, network, data, chunk_size)

    def iterate(_: Array, basis: Array) -> Array:
        return jnp.linalg.qr(product(basis))[0]

    basis = jax.lax.fori_loop(0, ITERATIONS, iterate, jnp.linalg.qr(start)[0])
    values, vectors = jnp.linalg.eigh(basis.T @ product(basis))
    kept = slice(width - min(rank, width), None)
    return jnp.sqrt(jnp.maximum(values[kept], 0.0))[:, None] * (basis @ vectors[:, kept]).T


def _product(
    network: Fitted, data: Batch, chunk_size: int, block: Float[Array, "p k"]
) -> Float[Array, "p k"]:
    """G times a block of vectors, by forward mode, H_n and reverse mode."""

    def chunk(batch: Batch) -> Array:
        values, pullback = jax.vjp(lambda w: network.outputs(w, batch.inputs), network.weights)
        roots = hessian_roots(network.likelihood, values, batch)

        def one(vector: Array) -> Array:
            tangent = jax.jvp(lambda w: network.outputs(w, batch.inputs), (network.weights,), (vector,))[1]
            curved = jnp.einsum("ncr,ndr,nd->nc", roots, roots, tangent)
            return pullback(curved)[0]

        return jax.vmap(one, in_axes=1, out_axes=1)(block)

    return sum_over_chunks(chunk, data, chunk_size)


def _rows(network: Fitted, batch: Batch) -> Float[Array, "n c p"]:
    """L_nᵀ J_n of every input."""

    def one(x: Array, y: Array) -> Array:
        values, pullback = jax.vjp(lambda w: network.outputs(w, x[None]), network.weights)
        root = hessian_roots(network.likelihood, values, Batch(x[None], y[None]))[0]
        return jax.vmap(lambda column: pullback(column[None])[0], in_axes=1)(root)

    return jax.vmap(one)(batch.inputs, batch.targets)


def hessian_roots(
    likelihood: Likelihood, outputs: Float[Array, "n c"], batch: Batch
) -> Float[Array, "n c c"]:
    """L_n with L_n L_nᵀ = H_n, cut at zero."""

    def negative(values: Array, target: Array) -> Array:
        return -likelihood.log_prob(values[None], target[None])[0]

    curvature = jax.vmap(jax.hessian(negative))(outputs, batch.targets)
    values, vectors = jnp.linalg.eigh(curvature)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]


def sum_over_chunks(function: Callable[[Batch], Any], data: Batch, chunk_size: int) -> Any:
    """Σ of a tree of arrays, `function`, over chunks of the data, with the memory of one chunk."""
    num = data.inputs.shape[0]
    num_chunks = num // chunk_size
    total: Any = None
    if num % chunk_size:
        total = function(jax.tree.map(lambda array: array[num_chunks * chunk_size :], data))
    if num_chunks:
        chunks = jax.tree.map(
            lambda array: array[: num_chunks * chunk_size].reshape(num_chunks, chunk_size, *array.shape[1:]),
            data,
        )
        shapes = jax.eval_shape(function, jax.tree.map(lambda array: array[0], chunks))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        start = zeros if total is None else total
        total, _ = jax.lax.scan(
            lambda total, batch: (jax.tree.map(jnp.add, total, function(batch)), None), start, chunks
        )
    return total
