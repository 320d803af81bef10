"""Arrays that a user brings: an `.npz` file with `inputs`, `targets` and, if there are any, test arrays.

Integer targets are labels 0 to K - 1, floating-point ones are regression targets. The file is read without
pickle, so it cannot run code, and everything in it is checked before anything is computed from it.
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from symbnn import names
from symbnn.data.base import Dataset, Part, Split, bad_file, reading
from symbnn.data.load import flattened, read_part, subset

TRAIN, TEST = ("inputs", "targets"), ("test_inputs", "test_targets")
TEST_SHARE = 0.2
SAVE = "save it with np.savez(path, inputs=..., targets=...)"
# What archives and arrays that are cut, damaged or forged make their readers raise.
MALFORMED = (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


def from_npz(
    path: str | Path,
    *,
    flatten: bool = False,
    num_train: int | None = None,
    num_test: int | None = None,
    seed: int = 0,
    resize: int | None = None,
) -> Dataset:
    """The arrays of an `.npz` file as a data set; shapes and the number of classes are read from them.

    Args:
        path: File with `inputs` (n, ...) and `targets`: integer labels (n,) from 0 to K - 1, or floats (n,)
            or (n, k) for regression; optionally `test_inputs` and `test_targets`. Inputs of bytes (uint8) are
            pixels and divided by 255, others are taken as they are.
        flatten: Give inputs as vectors.
        num_train: Training examples, drawn by `seed`; by default all.
        num_test: Test examples, likewise. Without test arrays, so many examples are held out from training, a
            fifth by default; the data set's name then says so.
        seed: Of subsets and of what is held out.
        resize: Side of the images (n, height, width, channels): block averages.
    """
    path = Path(path)
    arrays = read_arrays(path)
    _check_names(path, list(arrays))
    train = _split(path, arrays, *TRAIN)
    name = path.name
    if TEST[0] in arrays:
        test = _split(path, arrays, *TEST)
        _check_alike(path, train, test)
    else:
        num = round(TEST_SHARE * len(train.targets)) if num_test is None else num_test
        name = f"{name} ({num} of {len(train.targets)} examples held out to test)"
        train, test = _hold_out(path, train, num, seed)
        num_test = None
    num_classes = _num_classes(path, train, test)
    if resize is not None and train.inputs.ndim != 4:
        raise bad_file(
            path,
            expected="images (n, height, width, channels), as they are to be averaged down",
            found=f"inputs {train.inputs.shape}",
            advice="leave that out, or reshape them",
        )
    train = _taken(train, num_train, [seed, 0], "num_train", resize)
    test = _taken(test, num_test, [seed, 1], "num_test", resize)
    dataset = Dataset(name, train, test, num_classes, tuple(train.inputs.shape[1:]))
    return flattened(dataset) if flatten else dataset


def _taken(split: Split, num: int | None, seed: list[int], name: str, resize: int | None) -> Split:
    """`num` examples drawn by `seed`, labels in the 32 bits that JAX works with."""
    targets = split.targets if split.targets.dtype.kind == "f" else split.targets.astype(np.int32)
    part = Part(len(targets), lambda indices: Split(split.inputs[indices], targets[indices]))
    return read_part(part, subset(part, num, seed, name), resize)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; `DataError` for another file, and for arrays of objects."""
    with reading(path, "an .npz file", MALFORMED, SAVE):
        if path.is_dir():
            raise bad_file(path, expected="an .npz file", found="a folder", advice=SAVE)
        with path.open("rb") as file:
            magic = file.read(6)
        # Asked first: NumPy takes every other file for a pickle, and says how to load it unsafely.
        if magic[:4] not in (b"PK\3\4", b"PK\5\6") or not zipfile.is_zipfile(path):
            found = (
                "a single array (.npy)" if magic == b"\x93NUMPY" else "a file that is cut or of another kind"
            )
            raise bad_file(path, expected="an .npz file", found=found, advice=SAVE)
        with np.load(path, allow_pickle=False) as file:
            return {name: _array(path, file, name) for name in file.files}


def _check_names(path: Path, found: list[str]) -> None:
    known = (*TRAIN, *TEST)
    for name in TRAIN if TEST[0] not in found and TEST[1] not in found else known:
        if name not in found:
            has = ", ".join(map(repr, found[:9])) or "nothing"
            raise bad_file(path, expected=f"an array {name!r}", found=has, advice=SAVE)
    for name in found:
        if name not in known:
            raise bad_file(
                path,
                expected=f"the arrays {', '.join(known)}",
                found=f"also {name!r}",
                advice=f"{names.nearest(name, known)} else leave it out",
            )


def _array(path: Path, file: Any, name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise bad_file(
            path,
            expected=f"numbers in {name!r}",
            found="Python objects, which are pickled and not read",
            advice="make one array of numbers of them",
        ) from error


def _split(path: Path, arrays: dict[str, np.ndarray], inputs_name: str, targets_name: str) -> Split:
    inputs, targets = arrays[inputs_name], arrays[targets_name]
    for name, array in ((inputs_name, inputs), (targets_name, targets)):
        if array.dtype.kind not in "biuf":
            raise bad_file(
                path, expected=f"numbers in {name!r}", found=str(array.dtype), advice="convert them"
            )
    if inputs.ndim < 2 or 0 in inputs.shape:
        raise bad_file(
            path,
            expected=f"{inputs_name!r} of shape (examples, ...)",
            found=f"{inputs.shape}",
            advice="one row an example, for one number each inputs[:, None]",
        )
    if targets.ndim < 1 or len(inputs) != len(targets):
        raise bad_file(
            path,
            expected=f"as many {targets_name!r} as {inputs_name!r}",
            found=f"shapes {targets.shape} and {inputs.shape}",
            advice="one target an example",
        )
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    return Split(
        _finite(path, inputs_name, inputs) / np.float32(scale), _targets(path, targets_name, targets)
    )


def _targets(path: Path, name: str, targets: np.ndarray) -> np.ndarray:
    """Labels int32 (n,), or float32 (n, k)."""
    if targets.dtype.kind == "f":
        if targets.ndim > 2 or not targets.size:
            raise bad_file(
                path,
                expected=f"{name!r} of shape (n,) or (n, k)",
                found=f"{targets.shape}",
                advice="reshape them",
            )
        found = _finite(path, name, targets)
        return found[:, None] if found.ndim == 1 else found
    if targets.ndim != 1:
        raise bad_file(
            path,
            expected=f"labels {name!r} of shape (n,)",
            found=f"{targets.shape}",
            advice="a label is one integer: of one-hot rows take targets.argmax(1), else targets.ravel()",
        )
    return targets.astype(np.int64)


def _finite(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """The array in float32; `DataError` naming its first number that is not finite there."""
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    is_bad = ~np.isfinite(found)
    if is_bad.any():
        first = tuple(int(index) for index in np.unravel_index(is_bad.argmax(), array.shape))
        raise bad_file(
            path,
            expected=f"finite numbers in {name!r}",
            found=f"{int(is_bad.sum())} of {is_bad.size} that are not, the first at {first}: {array[first]}",
            advice="remove or replace them",
        )
    return found


def _check_alike(path: Path, train: Split, test: Split) -> None:
    """`DataError` unless one test example has the shape and kind of one training example."""
    for what, first, second in zip(TRAIN, train, test, strict=True):
        if first.shape[1:] != second.shape[1:] or first.dtype != second.dtype:
            raise bad_file(
                path,
                expected=f"test_{what} like {what}, {first.dtype} of shape (n, *{first.shape[1:]})",
                found=f"{second.dtype} of shape {second.shape}",
                advice="give both the same shape; labels are integers, regression targets floats",
            )


def _hold_out(path: Path, whole: Split, num: int, seed: int) -> tuple[Split, Split]:
    total = len(whole.targets)
    if not 0 < num < total:
        raise bad_file(
            path,
            expected=f"test arrays, or 1 to {total - 1} examples to hold out",
            found=f"{total} examples, of which {num} would be held out",
            advice="add test_inputs and test_targets, or choose num_test",
        )
    order = np.random.default_rng([seed, 2]).permutation(total)
    train, test = (Split(whole.inputs[rows], whole.targets[rows]) for rows in (order[num:], order[:num]))
    return train, test


def _num_classes(path: Path, train: Split, test: Split) -> int | None:
    """None for regression; `DataError` unless the labels of training are 0 to K - 1, all of them."""
    if train.targets.dtype.kind == "f":
        return None
    found = np.unique(np.concatenate([train.targets, test.targets]))
    if len(found) < 2 or found[0] != 0 or found[-1] != len(found) - 1:
        raise bad_file(
            path,
            expected="at least two classes, with labels 0 to K - 1",
            found=f"the labels {', '.join(map(str, found[:9]))}{', ...' * (len(found) > 9)}",
            advice="renumber them, as np.unique(targets, return_inverse=True)[1] does",
        )
    return len(found)
