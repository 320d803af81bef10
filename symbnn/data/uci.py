"""Tables for regression: UCI's as text (`data.txt`, `index_features.txt`, `index_target.txt`), and others.

The test part, a tenth of the rows unless told otherwise, is that of scikit-learn's `train_test_split` with
the seed as its `random_state`, so that results compare with those of others. Inputs and targets are
standardised with the statistics of the training part.
"""

from pathlib import Path

import numpy as np

from symbnn.data.base import Dataset, Split, Statistics, bad_file, normalise, reading, statistics

NUM_ROWS = {
    "airfoil": 1503,
    "bikesharing": 17379,
    "bostonHousing": 506,
    "concrete": 1030,
    "energy": 768,
    "kin8nm": 8192,
    "naval-propulsion-plant": 11934,
    "power-plant": 9568,
    "protein-tertiary-structure": 45730,
    "wine-quality-red": 1599,
    "yacht": 308,
}
TEST_SHARE = 0.1


def read_uci(folder: Path, num_rows: int) -> Split:
    """All rows of the set in `folder`, as they are."""
    table = _read_table(folder / "data.txt")
    if len(table) != num_rows:
        raise bad_file(folder / "data.txt", expected=f"{num_rows} rows", found=f"{len(table)}")
    inputs = table[:, _read_columns(folder / "index_features.txt", table.shape[1])]
    return Split(inputs, table[:, _read_columns(folder / "index_target.txt", table.shape[1])])


def split_table(
    name: str,
    rows: Split,
    *,
    num_train: int | None,
    num_test: int | None,
    seed: int,
    test_share: float | None = None,
) -> Dataset:
    """Rows split by `seed` and standardised; `num_train` and `num_test` shorten the parts."""
    from sklearn.model_selection import train_test_split

    share = TEST_SHARE if test_share is None else test_share
    if not 0 < share < 1:
        raise ValueError(f"test_share must be between 0 and 1, such as 0.2 for a fifth; got {test_share}")
    kept, held = train_test_split(np.arange(len(rows.targets)), test_size=share, random_state=seed)
    train = _rows(rows.inputs, rows.targets, kept, num_train, "num_train")
    test = _rows(rows.inputs, rows.targets, held, num_test, "num_test")
    input_scale, target_scale = statistics(train), statistics(Split(train.targets, train.targets))
    train, test = (_standardise(split, input_scale, target_scale) for split in (train, test))
    return Dataset(name, train, test, None, tuple(rows.inputs.shape[1:]), target_scale)


def _rows(inputs: np.ndarray, targets: np.ndarray, rows: np.ndarray, num: int | None, name: str) -> Split:
    if num is not None and not 0 < num <= len(rows):
        raise ValueError(f"{name} must be between 1 and {len(rows)}; got {num}")
    return Split(inputs[rows[:num]], targets[rows[:num]])


def _standardise(split: Split, input_scale: Statistics, target_scale: Statistics) -> Split:
    targets = normalise(Split(split.targets, split.targets), target_scale).inputs
    return Split(normalise(split, input_scale).inputs, targets)


def _read_table(path: Path) -> np.ndarray:
    with reading(path, "rows of numbers"):
        table = np.loadtxt(path, dtype=np.float64, ndmin=2)
    if not np.isfinite(table).all():
        row = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
        raise bad_file(path, expected="finite numbers", found=f"row {row}: {table[row]}")
    return table


def _read_columns(path: Path, num_columns: int) -> np.ndarray:
    with reading(path, "column numbers"):
        values = np.loadtxt(path, dtype=np.float64, ndmin=1)
    columns = values.astype(np.int64)
    if not columns.size or (columns != values).any() or columns.min() < 0 or columns.max() >= num_columns:
        raise bad_file(path, expected=f"column numbers from 0 to {num_columns - 1}", found=f"{values}")
    return columns
