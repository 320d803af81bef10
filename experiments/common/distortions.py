"""Test images that are changed so that they lie out of distribution.

`permuted`: pixels are permuted, which keeps every intensity and leaves no stroke. `rotated`: a quarter turn,
which keeps strokes, so that a 0 stays a 0 and no method can tell all of these. `negatives`: 1 - x.
"""

from collections.abc import Callable

import numpy as np


def distort(name: str, images: np.ndarray, source: str) -> np.ndarray:
    """The images `(images, ...)` of the data set `source`, changed by one of `DISTORTIONS`."""
    if name == "rotated" and (images.ndim < 3 or images.shape[1] != images.shape[2]):
        raise ValueError(
            f"rotated turns square images, but inputs of {source} have shape {images.shape[1:]}; leave it "
            "out of what is out of distribution"
        )
    if name == "negatives" and (images.min() < 0 or images.max() > 1):
        raise ValueError(
            f"negatives of inputs are 1 - x, which need x in [0, 1]; those of {source} go from "
            f"{images.min():g} to {images.max():g}: rescale them, or choose something else for what is out "
            "of distribution"
        )
    return DISTORTIONS[name](images)


def _permuted(images: np.ndarray) -> np.ndarray:
    """One permutation of the pixels for all images."""
    flat = images.reshape(len(images), -1)
    return flat[:, np.random.default_rng(0).permutation(flat.shape[1])].reshape(images.shape)


def _rotated(images: np.ndarray) -> np.ndarray:
    return np.rot90(images, axes=(1, 2))


def _negatives(images: np.ndarray) -> np.ndarray:
    return 1 - images


DISTORTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "permuted": _permuted,
    "rotated": _rotated,
    "negatives": _negatives,
}
