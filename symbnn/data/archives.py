"""NumPy archives (KMNIST) and MATLAB files (SVHN), with the sizes checked before anything is allocated."""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from symbnn.data.base import Part, bad_file, check_labels, find, image_part, reading

# RuntimeError: flipped flags that ask for a password or for a method of compression that nobody knows.
DAMAGES = (OSError, EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_kmnist_part(folder: Path, part: str, *, num: int) -> Part:
    """Images and labels `kmnist-PART-imgs.npz`, `kmnist-PART-labels.npz` of `folder`."""
    labels_path = folder / f"kmnist-{part}-labels.npz"
    images = read_npz(folder / f"kmnist-{part}-imgs.npz", "arr_0", (num, 28, 28))
    labels = read_npz(labels_path, "arr_0", (num,))
    check_labels(labels_path, labels, 10)
    return image_part(images[..., None], labels)


def read_svhn_part(folder: Path, part: str, *, num: int) -> Part:
    """Images and labels of `PART_32x32.mat`; the file's label 10 is the digit 0."""
    path = folder / f"{part}_32x32.mat"
    content = read_mat(path, {"X": (32, 32, 3, num), "y": (num, 1)})
    labels = content["y"][:, 0].astype(np.int32)
    check_labels(path, labels - 1, 10)
    return image_part(np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), labels % 10)


def read_npz(path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray:
    """A byte array of an npz file; `DataError` unless its header and its content have this shape."""
    with reading(find(path), "a whole npz file", DAMAGES), zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise bad_file(path, expected="npy version (1, 0)", found=f"{version}")
            found, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            _check_array(path, key, found, dtype, shape)
            expected = file.tell() + math.prod(shape)
            if member.file_size != expected:
                raise bad_file(path, expected=f"{expected} bytes of {key!r}", found=f"{member.file_size}")
            content = file.read()
    array = np.frombuffer(content, np.uint8)
    return array.reshape(shape, order="F" if fortran else "C")


def read_mat(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Arrays of a MATLAB file; `DataError` unless the file's own table gives them these shapes."""
    import scipy.io

    # SciPy's reader raises many kinds of errors on a file that is cut or damaged.
    with reading(find(path), "a whole MATLAB file", Exception):
        table = {name: shape for name, shape, _ in scipy.io.whosmat(path)}
        for name, shape in shapes.items():
            if table.get(name) != shape:
                raise bad_file(path, expected=f"{name} of shape {shape}", found=f"{table.get(name)}")
        content = scipy.io.loadmat(path, variable_names=list(shapes))
    for name, shape in shapes.items():
        _check_array(path, name, content[name].shape, content[name].dtype, shape)
    return {name: content[name] for name in shapes}


def _check_array(
    path: Path, key: str, found: tuple[int, ...], dtype: np.dtype, shape: tuple[int, ...]
) -> None:
    if found != shape or dtype != np.uint8:
        raise bad_file(path, expected=f"{key} with bytes of shape {shape}", found=f"{dtype} of shape {found}")
