"""What a data set is once it is loaded, and the one error of everything that can be wrong with a file."""

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Inputs float32 `(n, *input_shape)`; targets int32 labels `(n,)` or float32 `(n, k)`."""

    inputs: np.ndarray
    targets: np.ndarray


class Dataset(NamedTuple):
    """A training and a test part. `num_classes` is None for regression."""

    name: str
    train: Split
    test: Split
    num_classes: int | None
    input_shape: tuple[int, ...]


class DataError(ValueError):
    """A data file is missing, damaged or not what its name says."""


def bad_file(path: Path, *, expected: str, found: str, advice: str) -> DataError:
    """The error for `path`: which file, what was expected, what was found, what to do."""
    return DataError(f"{path}: expected {expected}; found {found}; {advice}")


def dataset(name: str, train: Split, test: Split, num_classes: int | None) -> Dataset:
    """`Dataset` whose input shape is that of the training inputs."""
    return Dataset(name, train, test, num_classes, tuple(train.inputs.shape[1:]))
