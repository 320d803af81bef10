"""Fresh weights for a network whose library cannot make them: an instance has no memory of how it began.

Every leaf is drawn from N(m, s²) with the mean m and the standard deviation s of its own numbers. For weights
as they were initialised these are the moments of the initialiser. Leaves of equal numbers (biases at zero,
scales at one) stay as they are.
"""

from collections.abc import Callable

import jax
import numpy as np

from symbnn import tree
from symbnn.types import Key, Params


def redrawing(weights: Params) -> Callable[[Key], Params]:
    """`init(key)` for networks like this one; it keeps two numbers of every leaf, not the leaf."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    moments = {name: _moments(np.asarray(leaf)) for name, leaf in tree.named_leaves(weights).items()}

    def init(key: Key) -> Params:
        def drawn(name: str, unit: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
            mean, std = moments[name]
            return (mean + std * unit).astype(shape.dtype)

        return tree.map_named(drawn, tree.draw_like(key, shapes), shapes)

    return init


def _moments(leaf: np.ndarray) -> tuple[float, float]:
    # Double precision: equal numbers shall have exactly that mean, and no spread.
    wide = leaf.astype(np.float64)
    return (float(wide.mean()), float(wide.std())) if wide.size else (0.0, 0.0)
