"""What a data set is once it is loaded, what a source of one offers, and what is raised if a file is bad.

A source hands out `Part`s: how many examples there are, and a function that reads some of them. So of a large
set only the wanted subset is ever decoded and turned into floats.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symbnn.data.streamed import Streamed

ABSENT = "download it, or load with test_only=True if it is the training part"


class Statistics(NamedTuple):
    """Mean and standard deviation, per channel of images, per column otherwise; constant columns have 1."""

    mean: np.ndarray
    std: np.ndarray


class Split(NamedTuple):
    """Inputs float32 `(n, *input_shape)`; targets int32 labels `(n,)` or float32 `(n, k)`.

    Of texts, inputs and targets are both int32 `(n, length)`.
    """

    inputs: Any
    """An array, or `Streamed`."""
    targets: np.ndarray


class Dataset(NamedTuple):
    """A training and a test part. `num_classes` is None for regression.

    `target_scale` takes standardised regression targets back to their units: targets · std + mean.
    """

    name: str
    train: Split
    test: Split
    num_classes: int | None
    input_shape: tuple[int, ...]
    target_scale: Statistics | None = None


class Part(NamedTuple):
    """`num` examples, of which `read(indices)` loads some; `targets` of all where they are known unread."""

    num: int
    read: Callable[[np.ndarray], Split]
    targets: np.ndarray | None = None


class Parts(NamedTuple):
    """What a source offers; a part that it lacks has no examples."""

    train: Part
    test: Part


class DataError(ValueError):
    """A data file is missing, damaged or not what its name says."""


def bad_file(path: Path, *, expected: str, found: str, advice: str = "download it again") -> DataError:
    """The error for `path`: which file, what was expected, what was found, what to do."""
    return DataError(f"{path}: expected {expected}; found {found}; {advice}")


@contextlib.contextmanager
def reading(
    path: Path, expected: str, errors: Any = (OSError, ValueError), advice: str = "download it again"
) -> Iterator[None]:
    """`errors` in the block become the `DataError` for `path`; one of those passes as it is."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        found = f"{error} (missing, cut or damaged)"
        raise bad_file(path, expected=expected, found=found, advice=advice) from error


def find(*paths: Path, expected: str = "this file", advice: str = ABSENT) -> Path:
    """The first of `paths` that there is; `DataError` if there is none."""
    for path in paths:
        if path.exists():
            return path
    raise bad_file(paths[0], expected=expected, found="no such file", advice=advice)


def check_labels(path: Path, labels: np.ndarray, num_classes: int) -> None:
    """`DataError` naming the first label outside `[0, num_classes)`."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise bad_file(
            path,
            expected=f"labels from 0 to {num_classes - 1}",
            found=f"{labels[wrong[0]]} at position {wrong[0]}",
        )


def image_part(images: np.ndarray, labels: np.ndarray) -> Part:
    """Part of byte images `(n, height, width, channels)`, which become floats in [0, 1] when read."""

    def read(indices: np.ndarray) -> Split:
        return Split(images[indices].astype(np.float32) / np.float32(255), labels[indices].astype(np.int32))

    return Part(len(labels), read, labels.astype(np.int32))


def empty_part(part: Part) -> Part:
    """A part without examples, shaped like those of `part`."""
    one = part.read(np.arange(1))
    return Part(0, lambda indices: Split(one.inputs[:0], one.targets[:0]), one.targets[:0])


def statistics(split: Split) -> Statistics:
    """Mean and standard deviation of the inputs over all axes but the last; in float64, as sums are long."""
    axes = tuple(range(split.inputs.ndim - 1))
    mean = split.inputs.mean(axis=axes, dtype=np.float64)
    std = split.inputs.std(axis=axes, dtype=np.float64)
    # Rounding leaves a constant column with a tiny spread, which would blow its noise up to unit size.
    constant = std <= 1e-7 * np.abs(mean)
    return Statistics(mean.astype(np.float32), np.where(constant, 1.0, std).astype(np.float32))


def normalise(split: Split, scale: Statistics) -> Split:
    """Inputs minus mean over standard deviation. Foreign inputs take the training data's `scale`."""

    def scaled(inputs: np.ndarray) -> np.ndarray:
        return ((inputs - scale.mean) / scale.std).astype(np.float32)

    inputs = split.inputs
    if isinstance(inputs, Streamed):
        return split._replace(inputs=Streamed(lambda indices: scaled(inputs[indices]), inputs.shape))
    return split._replace(inputs=scaled(inputs))
