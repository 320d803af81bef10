"""A log-likelihood summed over chunks of the data, with memory bounded by one chunk.

Reverse mode through a `lax.scan` would keep the activations of every chunk until the backward pass. So value
and gradient are formed chunk by chunk in one forward scan, the gradient is handed on as a residual: nothing
is computed twice, and the memory is one chunk's. Chunks also keep activations in cache: at 784-512-10 the
gradient over 60,000 points is a third faster than in one piece.

The values are added with Neumaier's compensation, because a sampler takes differences of such sums: the error
is then that of one rounding of the result, however many chunks there are.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var
from jaxtyping import Array, Float

from symbnn.density.still import Function, prepared
from symbnn.types import Params

ELEMENTS_PER_CHUNK = 2**22
"""Of one chunk: 16 MB in float32, about a last-level cache."""

SMALLEST_CHUNK = 64
"""Below it matrix multiplications turn into vector products."""

ExampleLogLikelihood = Callable[[Params, Any, Any], Array]
"""(params, inputs, targets) -> (n,)."""


def sum_over_chunks(
    examples: ExampleLogLikelihood,
    params: Params,
    inputs: Any,
    targets: Any,
    weights: Any,
    *,
    chunk_size: int,
) -> Float[Array, ""]:
    """Σ_i weights_i · examples(params, inputs, targets)_i."""
    num = inputs.shape[0]
    if num <= chunk_size:
        return _weighted(examples(params, inputs, targets), weights)
    num_chunks = number_of_chunks(num, chunk_size)
    size = math.ceil(num / num_chunks)
    padding = num_chunks * size - num
    if padding and weights is None:
        weights = jnp.ones((num,), _dtype(params))
    chunks = jax.tree.map(
        lambda array: _pad(array, padding).reshape(num_chunks, size, *array.shape[1:]), (inputs, targets)
    )
    if weights is not None:
        weights = jnp.pad(weights, (0, padding)).reshape(num_chunks, size)
    one = lambda params, data: examples(params, *data)  # noqa: E731
    return _scan_sum(*prepared(one, params, chunks), params, weights)


def number_of_chunks(num: int, chunk_size: int) -> int:
    """As few as `chunk_size` allows, or up to twice as many where that cuts the data without remainder.

    A remainder is padded, which copies all of the data at every gradient: a fifth of the time at 784-512-10.
    """
    least = math.ceil(num / chunk_size)
    return next((count for count in range(least, 2 * least + 1) if num % count == 0), least)


def default_chunk_size(apply: Callable[[Params, Array], Array], params: Any, inputs: Any) -> int:
    """As many points as fill `ELEMENTS_PER_CHUNK`, counted in the jaxpr of the network.

    Where the activations of all points do, they are one chunk. Else the inputs of a chunk count too, as they
    are copied out of all of them. What else depends on no weight is computed once, before all steps.
    """

    def elements(batch: int) -> int:
        shape = jax.ShapeDtypeStruct((batch, *inputs.shape[1:]), inputs.dtype)
        jaxpr = jax.make_jaxpr(apply)(params, shape).jaxpr
        moving = set(jaxpr.invars[: len(jax.tree.leaves(params))])
        count = 0
        for equation in jaxpr.eqns:
            if any(isinstance(v, Var) and v in moving for v in equation.invars):
                moving.update(equation.outvars)
                count += sum(math.prod(v.aval.shape) for v in equation.outvars)
        return count

    activations = max(elements(2) - elements(1), 1)
    if inputs.shape[0] * activations <= ELEMENTS_PER_CHUNK:
        return max(SMALLEST_CHUNK, inputs.shape[0])
    return max(SMALLEST_CHUNK, ELEMENTS_PER_CHUNK // (activations + math.prod(inputs.shape[1:])))


def _weighted(values: Array, weights: Any) -> Array:
    return jnp.sum(values if weights is None else weights * values)


def _scan_sum(examples: Function, data: Any, params: Params, weights: Any) -> Array:
    """Sum over the leading axis of `data`, with the gradient formed in the forward pass."""
    dtype, chunks = _dtype(params), (data, weights)

    def summed(params: Params, chunk: Any) -> Array:
        return _weighted(examples(params, chunk[0]), chunk[1])

    @jax.custom_vjp
    def total(params: Params, chunks: Any) -> Array:
        def body(carry: tuple[Array, Array], chunk: Any) -> tuple[tuple[Array, Array], None]:
            return compensated_add(carry, summed(params, chunk)), None

        (value, lost), _ = jax.lax.scan(body, (jnp.zeros((), dtype),) * 2, chunks)
        return value + lost

    def forward(params: Params, chunks: Any) -> tuple[Array, Params]:
        def body(carry: Any, chunk: Any) -> tuple[Any, None]:
            value_sum, gradient_sum = carry
            value, gradient = jax.value_and_grad(lambda p: summed(p, chunk))(params)
            return (compensated_add(value_sum, value), jax.tree.map(jnp.add, gradient_sum, gradient)), None

        start = ((jnp.zeros((), dtype),) * 2, jax.tree.map(jnp.zeros_like, params))
        ((value, lost), gradient), _ = jax.lax.scan(body, start, chunks)
        return value + lost, gradient

    def backward(gradient: Params, cotangent: Array) -> tuple[Params, None]:
        return jax.tree.map(lambda leaf: cotangent * leaf, gradient), None

    total.defvjp(forward, backward)
    return total(params, chunks)


def compensated_add(total: tuple[Array, Array], value: Array) -> tuple[Array, Array]:
    """(sum, lost) after adding `value`: `lost` collects what rounding dropped (Neumaier 1974)."""
    old, lost = total
    new = old + value
    dropped = jnp.where(jnp.abs(old) >= jnp.abs(value), (old - new) + value, (value - new) + old)
    return new, lost + dropped


def _dtype(params: Params) -> Any:
    return jnp.result_type(*jax.tree.leaves(params))


def _pad(array: Array, padding: int) -> Array:
    """More rows by repeating the first: a zero weight removes it, and its log-likelihood is finite."""
    return jnp.concatenate([array, jnp.repeat(array[:1], padding, axis=0)]) if padding else array
