"""One entry: a data set by name, from a folder, from `SYMBNN_DATA_DIR` or from tensorflow-datasets."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from symbnn import names
from symbnn.data import bundled
from symbnn.data.base import Dataset, Split

BUNDLED: dict[str, Callable[[], Dataset]] = {"digits": bundled.digits}


def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    flatten: bool = False,
    num_train: int | None = None,
    num_test: int | None = None,
    seed: int = 0,
) -> Dataset:
    """The data set `name`; `num_train` and `num_test` draw subsets that depend on `seed` alone."""
    loaded = names.lookup(BUNDLED, name, "data set")()
    train = _subset(loaded.train, num_train, seed, "num_train")
    test = _subset(loaded.test, num_test, seed + 1, "num_test")
    if flatten:
        train, test = _flatten(train), _flatten(test)
    return loaded._replace(train=train, test=test, input_shape=tuple(train.inputs.shape[1:]))


def _subset(split: Split, num: int | None, seed: int, name: str) -> Split:
    if num is None:
        return split
    total = len(split.targets)
    if not 0 < num <= total:
        raise ValueError(f"{name} is at least 1 and at most {total}, got {num}")
    chosen = np.random.default_rng(seed).permutation(total)[:num]
    return Split(split.inputs[chosen], split.targets[chosen])


def _flatten(split: Split) -> Split:
    return Split(split.inputs.reshape(len(split.inputs), -1), split.targets)
