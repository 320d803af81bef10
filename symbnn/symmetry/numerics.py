"""Lengths and units within the range of float32, whose squares overflow above 1e19 and vanish below 1e-19."""

import math
from typing import Any

import jax
import jax.numpy as jnp

# Squares up to 2^±80 leave room for sums of billions of them, and for products of two.
ORDINARY_EXPONENT = 40


def length(array: jax.Array, axis: Any = None, *, keepdims: bool = False) -> jax.Array:
    """Euclidean length over the axes, measured in the largest entry: whatever float32 holds has a length."""
    largest = jnp.max(jnp.abs(array), axis=axis, keepdims=True, initial=0)
    unit = jnp.where(largest > 0, largest, 1)
    relative = jnp.sqrt(jnp.sum(jnp.square(array / unit), axis=axis, keepdims=True))
    return unit * relative if keepdims else jnp.squeeze(unit * relative, axis=axis)


def unit_of(largest: float) -> float:
    """A power of two near `largest` to measure in; one, which changes nothing, where squares are safe."""
    exponent = math.frexp(largest)[1]
    if largest == 0 or abs(exponent) <= ORDINARY_EXPONENT:
        return 1.0
    return 2.0 ** min(max(exponent, -126), 127)
