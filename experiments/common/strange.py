"""Images out of distribution: those of another data set, made to fit, or test images that are changed.

Changed are they with their pixels permuted, which keeps every intensity and leaves no stroke, or by a quarter
turn, which keeps strokes, so that a 0 stays a 0 and no method can tell all of these.
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


def _permuted(images: np.ndarray) -> np.ndarray:
    """One permutation of the pixels for all images: the same intensities, but no strokes."""
    flat = images.reshape(len(images), -1)
    return flat[:, np.random.default_rng(0).permutation(flat.shape[1])].reshape(images.shape)


def _rotated(images: np.ndarray) -> np.ndarray:
    """A quarter turn."""
    return np.rot90(images, axes=(1, 2))


DISTORTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"permuted": _permuted, "rotated": _rotated}
