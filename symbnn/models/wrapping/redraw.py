"""Fresh weights for a network whose library cannot make them: an instance has no memory of how it began.

Every leaf is drawn from N(m, s²) with the mean m and the standard deviation s of its own numbers. For weights
as they were initialised these are the moments of the initialiser. Leaves of equal numbers (biases at zero,
scales at one) stay as they are.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from symbnn import tree
from symbnn.types import Key, Params


def redrawing(weights: Params) -> Callable[[Key], Params]:
    """`init(key)` for networks like this one; it keeps two numbers of every leaf, not the leaf."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    moments = {name: _moments(name, np.asarray(leaf)) for name, leaf in tree.named_leaves(weights).items()}

    def init(key: Key) -> Params:
        def drawn(name: str, unit: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
            mean, std = moments[name]
            return (mean + std * unit).astype(shape.dtype)

        return tree.map_named(drawn, tree.draw_like(key, shapes), shapes)

    return init


def _moments(name: str, leaf: np.ndarray) -> tuple[Any, float]:
    # Double precision: equal numbers shall have exactly that mean, and no spread.
    wide = leaf.astype(np.complex128 if np.iscomplexobj(leaf) else np.float64)
    if not np.isfinite(wide).all():
        raise ValueError(
            f"leaf {name!r} of the network has numbers that are not finite, so no weights like them can be "
            "drawn; give init, a function init(key) of such a network"
        )
    return (wide.mean().item(), float(wide.std())) if wide.size else (0.0, 0.0)
