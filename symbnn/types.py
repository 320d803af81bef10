"""Names for what flows through the library; the shapes are in the signatures."""

from typing import Any

import jax

Params = Any
"""Pytree of one network. With BatchNorm: `{"params": ..., "batch_stats": ...}`."""

Samples = Any
"""`Params` whose leaves have a leading sample axis: the universal currency."""

Key = jax.Array
"""A typed key of `jax.random.key`."""
