"""Smaller files of one network without a posterior: kernels of 8 bits, or shared by k-means of the weights.

Both leave biases, norms and running statistics in float32. `encode` gives what is kept in a file, `decode`
the network from it.
"""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from symbnn import sharing
from symbnn.sharing import Layout
from symbnn.sharing.files import coded, decoded
from symbnn.sharing.layout import remainder
from symbnn.types import Params

# Five bits for a weight before the labels are coded, as in Deep Compression (Han et al. 2016).
NUM_CENTRES = 32
NUM_ITERATIONS = 50
LARGEST = 127


class Codec(Protocol):
    """A network as few bytes, and back."""

    def encode(self, params: Params) -> dict[str, Any]:
        """Arrays to keep."""
        ...

    def decode(self, kept: dict[str, Any]) -> Params:
        """The network of these arrays."""
        ...


class Rounded(NamedTuple):
    """Kernels as integers from -127 to 127 times a step for every output: the largest weight over 127."""

    layout: Layout

    def encode(self, params: Params) -> dict[str, Any]:
        """Integers and steps."""
        kernels = self._kernels(np.asarray(sharing.flatten(self.layout, params)))
        steps = [np.maximum(np.abs(kernel).max(axis=0), 1e-30) / LARGEST for kernel in kernels]
        integers = [
            np.rint(kernel / step).astype(np.int8) for kernel, step in zip(kernels, steps, strict=True)
        ]
        return {
            "integers": np.concatenate([each.ravel() for each in integers]),
            "steps": np.concatenate(steps, dtype=np.float32),
            "fixed": remainder(self.layout, params),
        }

    def decode(self, kept: dict[str, Any]) -> Params:
        """Integers times steps."""
        kernels = self._kernels(np.asarray(kept["integers"], np.float32))
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
        steps = np.split(np.asarray(kept["steps"]), ends)
        flat = np.concatenate([(kernel * step).ravel() for kernel, step in zip(kernels, steps, strict=True)])
        return sharing.insert(self.layout, kept["fixed"], jnp.asarray(flat))

    def _kernels(self, flat: np.ndarray) -> list[np.ndarray]:
        """Every kernel as (inputs, outputs)."""
        parts = np.split(flat, np.cumsum(self.layout.sizes)[:-1])
        return [part.reshape(-1, shape[-1]) for part, shape in zip(parts, self.layout.shapes, strict=True)]


class Clustered(NamedTuple):
    """Every kernel weight is the nearest of a few centres, found by Lloyd's iterations over all of them."""

    layout: Layout
    num_centres: int = NUM_CENTRES

    def encode(self, params: Params) -> dict[str, Any]:
        """Centres and coded labels."""
        weights = np.asarray(sharing.flatten(self.layout, params), np.float64)
        centres = np.quantile(weights, (np.arange(self.num_centres) + 0.5) / self.num_centres)
        for _ in range(NUM_ITERATIONS):
            labels = nearest(centres, weights)
            counts = np.bincount(labels, minlength=len(centres))
            sums = np.bincount(labels, weights, len(centres))
            centres = np.sort(np.where(counts > 0, sums / np.maximum(counts, 1), centres))
        return {
            "labels": coded(nearest(centres, weights).astype(np.uint8)),
            "centres": centres.astype(np.float32),
            "fixed": remainder(self.layout, params),
        }

    def decode(self, kept: dict[str, Any]) -> Params:
        """The centre of every weight."""
        labels = decoded(np.asarray(kept["labels"]), [self.layout.num_weights], np.uint8)
        return sharing.insert(self.layout, kept["fixed"], jnp.asarray(np.asarray(kept["centres"])[labels]))


def nearest(centres: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The index of the nearest of rising centres."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values)
