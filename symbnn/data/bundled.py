"""Data that needs no file: scikit-learn's digits and diabetes, and toy sets drawn from a seed."""

from collections.abc import Callable

import numpy as np

from symbnn.data.base import Dataset, Part, Parts, Split

NUM_DIGITS_TRAIN = 1297
NUM_TOY = 400
Draw = Callable[[np.random.Generator, int], Split]


def digits() -> Parts:
    """1,797 images of 8x8 pixels in [0, 1], in one fixed shuffle: 1,297 to train, 500 to test."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = (images[order] / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    targets = labels[order].astype(np.int32)
    train, test = slice(None, NUM_DIGITS_TRAIN), slice(NUM_DIGITS_TRAIN, None)
    return Parts(_part(inputs[train], targets[train]), _part(inputs[test], targets[test]))


def diabetes() -> Split:
    """442 patients: ten measurements, and the progression of the disease a year later."""
    from sklearn.datasets import load_diabetes

    inputs, targets = load_diabetes(return_X_y=True, scaled=False)
    return Split(inputs, targets[:, None])


def toy(name: str, draw: Draw, *, num_train: int | None, num_test: int | None, seed: int) -> Dataset:
    """A toy set of any size, drawn afresh from `seed`; 400 + 400 points unless told otherwise."""
    for setting, num in (("num_train", num_train), ("num_test", num_test)):
        if num is not None and num < 1:
            raise ValueError(f"{setting} must be at least 1; got {num}")
    train, test = (
        draw(np.random.default_rng([seed, part]), NUM_TOY if num is None else num)
        for part, num in enumerate((num_train, num_test))
    )
    num_classes = 2 if train.targets.ndim == 1 else None
    return Dataset(name, train, test, num_classes, tuple(train.inputs.shape[1:]))


def moons(random: np.random.Generator, num: int) -> Split:
    """Two interleaved half circles with noise."""
    labels, angle = _balanced(random, num), random.uniform(0, np.pi, num)
    sign = 1 - 2 * labels
    points = np.stack([sign * np.cos(angle) + labels, sign * np.sin(angle) + 0.5 * labels], axis=1)
    return _points(points + random.normal(0, 0.1, points.shape), labels)


def circles(random: np.random.Generator, num: int) -> Split:
    """A ring of radius 1 around a ring of radius 0.5."""
    labels, angle = _balanced(random, num), random.uniform(0, 2 * np.pi, num)
    radius = np.where(labels == 0, 1.0, 0.5) + random.normal(0, 0.07, num)
    return _points(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels)


def blobs(random: np.random.Generator, num: int) -> Split:
    """Two Gaussians, at (-1, -1) and (1, 1)."""
    labels = _balanced(random, num)
    return _points((2 * labels - 1)[:, None] + random.normal(0, 0.4, (num, 2)), labels)


def spirals(random: np.random.Generator, num: int) -> Split:
    """Two spirals of one and a half turns."""
    labels, time = _balanced(random, num), np.sqrt(random.uniform(0.02, 1, num))
    angle = 3 * np.pi * time + np.pi * labels
    points = np.stack([time * np.cos(angle), time * np.sin(angle)], axis=1)
    return _points(points + random.normal(0, 0.02, points.shape), labels)


def wave(random: np.random.Generator, num: int) -> Split:
    """Regression in one dimension: sin(4x) with noise, seen for 0.3 < |x| < 1 only."""
    x = random.uniform(0.3, 1, num) * random.choice([-1, 1], num)
    y = np.sin(4 * x) + random.normal(0, 0.1, num)
    return Split(x[:, None].astype(np.float32), y[:, None].astype(np.float32))


TOYS: dict[str, Draw] = {draw.__name__: draw for draw in (moons, circles, blobs, spirals, wave)}


def _part(inputs: np.ndarray, targets: np.ndarray) -> Part:
    return Part(len(targets), lambda indices: Split(inputs[indices], targets[indices]))


def _balanced(random: np.random.Generator, num: int) -> np.ndarray:
    return random.permutation(np.arange(num) % 2)


def _points(points: np.ndarray, labels: np.ndarray) -> Split:
    return Split(points.astype(np.float32), labels.astype(np.int32))
