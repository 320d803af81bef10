"""Images out of distribution: those of another data set, made to fit, or test images that are changed.

`permuted`: pixels are permuted, which keeps every intensity and leaves no stroke. `rotated`: a quarter turn,
which keeps strokes, so that a 0 stays a 0 and no method can tell all of these. `negatives`: 1 - x.
"""

from collections.abc import Callable

import numpy as np


def fitted(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Pixels repeated by the largest whole factor, a border of zeros, and grey in every channel.

    Images that are larger, or of other channels, stay as they are.
    """
    height, width, channels = shape
    factor = min(height // images.shape[1], width // images.shape[2])
    if factor < 1 or images.shape[3] not in (1, channels):
        return images
    images = images.repeat(factor, axis=1).repeat(factor, axis=2)
    missing = (height - images.shape[1], width - images.shape[2])
    border = [(each // 2, each - each // 2) for each in missing]
    return np.pad(images, [(0, 0), *border, (0, 0)]).repeat(channels // images.shape[3], axis=3)


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
