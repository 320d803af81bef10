"""MNIST's own format, idx, plain or gzipped: two zero bytes, type, rank, big-endian sizes, then the bytes."""

import gzip
import math
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from symbnn.data.base import Part, bad_file, check_labels, find, image_part, reading

UNSIGNED_BYTE = 0x08
# Deflate cannot shrink data by more than this: a header that promises more than the file can hold is a lie.
MAX_DEFLATE_RATIO = 1032
GZIP_MAGIC = b"\x1f\x8b"


def read_mnist_part(folder: Path, prefix: str, *, num: int) -> Part:
    """Images and labels `prefix-images-idx3-ubyte[.gz]`, `prefix-labels-idx1-ubyte[.gz]` of `folder`."""
    names = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    expected = "this file (or the same without .gz)"
    images_path, labels_path = (
        find(folder / f"{name}.gz", folder / name, expected=expected) for name in names
    )
    images = read_idx(images_path, (num, 28, 28))
    labels = read_idx(labels_path, (num,))
    check_labels(labels_path, labels, 10)
    return image_part(images[..., None], labels)


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The byte array of an idx file; `DataError` unless its header and its content have this shape."""
    with reading(path, "a whole file", (OSError, EOFError, zlib.error)), _open(path) as file:
        _check_header(path, file.read(4 + 4 * len(shape)), shape)
        expected = math.prod(shape)
        if expected > MAX_DEFLATE_RATIO * path.stat().st_size:
            raise bad_file(path, expected=f"{expected} bytes", found=f"{path.stat().st_size} compressed")
        content = file.read(expected + 1)
    if len(content) != expected:
        found = f"{len(content)} bytes" if len(content) < expected else "more bytes"
        raise bad_file(path, expected=f"{expected} bytes of content for shape {shape}", found=found)
    return np.frombuffer(content, np.uint8).reshape(shape)


def _open(path: Path) -> BufferedIOBase:
    with path.open("rb") as file:
        is_compressed = file.read(2) == GZIP_MAGIC
    return gzip.open(path) if is_compressed else path.open("rb")


def _check_header(path: Path, header: bytes, shape: tuple[int, ...]) -> None:
    if len(header) < 4 + 4 * len(shape):
        raise bad_file(path, expected="an idx header", found=f"a file of {len(header)} bytes")
    magic, sizes = struct.unpack(">I", header[:4])[0], struct.unpack(f">{len(shape)}I", header[4:])
    expected = (UNSIGNED_BYTE << 8) | len(shape)
    if magic != expected:
        raise bad_file(path, expected=f"magic number {expected:#010x}", found=f"{magic:#010x}")
    if sizes != shape:
        raise bad_file(path, expected=f"shape {shape}", found=f"shape {sizes} in the header")
