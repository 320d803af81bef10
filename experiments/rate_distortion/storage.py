"""A posterior in few bytes: its numbers as they are, as half precision, or as 8 bits; and back from the file.

Eight bits are whole numbers from -127 to 127 times a step: of a kernel one for each output of each network
that it stacks. Standard deviations, which are positive and spread over orders of magnitude, are whole steps
of their logarithm, from the largest of the leaf down to a millionth of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import io, tree

LARGEST = 127
LEAST = 1e-6
"""Of a standard deviation, over the largest in its leaf."""
WEIGHTS = "weights"
"""Of a mixture: so few that they stay as they are."""


class Codec(NamedTuple):
    """How a leaf is kept: arrays, and the leaf from them. The flag says that it holds standard deviations."""

    encode: Callable[[np.ndarray, bool], dict[str, np.ndarray]]
    decode: Callable[[dict[str, np.ndarray], bool], np.ndarray]


def _as(dtype: Any) -> Codec:
    return Codec(lambda leaf, is_std: {"x": leaf.astype(dtype)}, lambda kept, is_std: kept["x"])


def _eight_bits(leaf: np.ndarray, is_std: bool) -> dict[str, np.ndarray]:
    if is_std:
        largest = np.maximum(leaf.max(initial=0.0), np.finfo(np.float32).tiny)
        step = -np.log(LEAST) / (2 * LARGEST)
        with np.errstate(divide="ignore"):
            levels = np.rint(-np.log(leaf / largest) / step)
        return {"x": np.minimum(levels, 2 * LARGEST + 1).astype(np.uint8), "largest": np.asarray(largest)}
    # The last axis but one: inputs of a kernel, networks of stacked biases; of a single bias all of it.
    axis = -2 if leaf.ndim > 1 else -1
    step = np.maximum(np.abs(leaf).max(axis=axis, keepdims=True), 1e-30) / LARGEST
    return {"x": np.rint(leaf / step).astype(np.int8), "step": step.astype(np.float32)}


def _from_eight_bits(kept: dict[str, np.ndarray], is_std: bool) -> np.ndarray:
    if is_std:
        step = -np.log(LEAST) / (2 * LARGEST)
        return np.where(kept["x"] > 2 * LARGEST, 0.0, kept["largest"] * np.exp(-step * kept["x"]))
    return kept["x"] * kept["step"]


CODECS = {
    "float32": _as(np.float32),
    "float16": _as(np.float16),
    "int8": Codec(_eight_bits, _from_eight_bits),
}


def save(path: Path, posterior: Any, name: str) -> int:
    """Write the posterior in the format of that name; returns the bytes of the file."""
    leaves = {leaf: np.asarray(x) for leaf, x in tree.named_leaves(posterior).items()}
    io.save_tree(path, {leaf: _codec(name, leaf).encode(x, _is_std(leaf)) for leaf, x in leaves.items()})
    return path.stat().st_size


def load(path: Path, like: Any, name: str) -> Any:
    """The posterior of the file; `like` says its kind."""
    kept, _ = io.load_tree(path)

    def read(leaf: str, x: Any) -> jax.Array:
        arrays = {part: np.asarray(array) for part, array in kept[leaf].items()}
        return jnp.asarray(_codec(name, leaf).decode(arrays, _is_std(leaf)), x.dtype)

    return tree.map_named(read, like)


def _codec(name: str, leaf: str) -> Codec:
    return CODECS["float32" if leaf == WEIGHTS else name]


def _is_std(leaf: str) -> bool:
    """Whether a leaf of a posterior, by its name, holds standard deviations."""
    return "std" in leaf.split("/")
