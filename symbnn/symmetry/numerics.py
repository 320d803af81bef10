"""Lengths and units in the range of float32, whose squares overflow above 1e19 and vanish below 1e-19.

And what else all of symmetry needs of a machine: finite weights, and programs that compile fast.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree

# Squares up to 2^±80 leave room for sums of billions of them, and for products of two.
ORDINARY_EXPONENT = 40

# For programs that run a few dozen times at most: a CPU's compiler should not try hard.
QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
}


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


def quick_options() -> dict[str, str | bool] | None:
    """`compiler_options` that halve the time to compile a ResNet-18; none on an accelerator."""
    return QUICK if jax.default_backend() == "cpu" else None


def check_finite(values: Any, remedy: str, *, what: str = "leaf", whose: str = "") -> None:
    """`ValueError` naming the first leaf of a tree with an infinite or missing value; traced ones pass."""
    for name, leaf in tree.named_leaves(values).items():
        if isinstance(leaf, jax.core.Tracer) or not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            continue
        # Without 64 bits JAX would read a large NumPy number as infinite.
        module = np if isinstance(leaf, np.ndarray) else jnp
        if not bool(module.isfinite(leaf).all()):
            raise ValueError(f"{what} {name!r}{whose} has values that are not finite; {remedy}")
