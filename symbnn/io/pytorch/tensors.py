"""Tensors as a PyTorch file describes them, and the arrays they stand for: every number of it is checked."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

MOST_AXES = 32

NUMPY_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
DTYPES = {
    **{name: np.dtype(name) for name in NUMPY_NAMES},
    "bfloat16": np.dtype(jnp.bfloat16),
    "float8_e4m3fn": np.dtype(jnp.float8_e4m3fn),
    "float8_e5m2": np.dtype(jnp.float8_e5m2),
}
"""By the name after `torch.`."""
STORAGES = {
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "BFloat16": "bfloat16",
    "Char": "int8",
    "Byte": "uint8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
"""By the name before `Storage`."""


class Storage(NamedTuple):
    """A flat row of numbers that tensors are cut from; `dtype` is None for bare bytes."""

    key: str
    dtype: np.dtype | None
    length: int
    start: int = 0
    """Where it begins in the row that the file keeps, in numbers."""
    whole: int = 0
    """Length of that row."""

    @property
    def num_bytes(self) -> int:
        """What the file must hold."""
        return self.whole * (1 if self.dtype is None else self.dtype.itemsize)


class Tensor(NamedTuple):
    """A view of a storage; `shape` is known before anything is read."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    def read(self, content: Callable[[Storage], bytearray]) -> np.ndarray:
        """The numbers, as a view of the storage's bytes; `ValueError` unless all of them lie inside."""
        length = self.storage.num_bytes // self.dtype.itemsize
        if self.storage.dtype is not None:
            length = self.storage.start + self.storage.length
        first = self.storage.start + self.offset
        is_empty = 0 in self.shape
        last = first + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        if not is_empty and last >= length:
            raise ValueError(
                f"a tensor of shape {self.shape} ends at number {last} of a storage that has {length}"
            )
        if is_empty:
            return np.zeros(self.shape, self.dtype)
        data, size = content(self.storage), self.dtype.itemsize
        strides = tuple(step * size for step in self.strides)
        return np.ndarray(self.shape, self.dtype, data, first * size, strides)


def make_tensor(storage: Any, offset: Any, shape: Any, strides: Any, dtype: np.dtype | None) -> Tensor:
    """A checked description; `ValueError` for what no tensor has."""
    is_described = isinstance(storage, Storage) and _is_count(offset)
    has_axes = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)
    if not is_described or not has_axes or len(shape) > MOST_AXES or not all(map(_is_count, shape + strides)):
        raise ValueError(
            f"a tensor has sizes {_short(shape)}, strides {_short(strides)} and offset {_short(offset)}; "
            f"expected as many sizes as strides, at most {MOST_AXES}, none negative"
        )
    kind = dtype or storage.dtype
    if kind is None:
        raise ValueError("a tensor on bare bytes has no dtype")
    return Tensor(storage, offset, tuple(shape), tuple(strides), kind)


def make_storage(key: Any, dtype: np.dtype | None, length: Any, view: Any = None) -> Storage:
    """A checked storage. `view` is (key, start, length) of a part, as the oldest files have it."""
    if not isinstance(key, str) or not _is_count(length):
        raise ValueError(f"a storage is named {_short(key)} and has length {_short(length)}")
    if view is None:
        return Storage(key, dtype, length, 0, length)
    _, start, part = view
    if not _is_count(start) or not _is_count(part) or start + part > length:
        raise ValueError(f"a storage of length {length} has a part {_short(view)}")
    return Storage(key, dtype, part, start, length)


def _is_count(value: Any) -> bool:
    # Larger numbers fit no array, and would overflow in NumPy.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**48


def _short(value: Any) -> str:
    """A few words on a forged value, which may be nested beyond printing."""
    flat = value if isinstance(value, tuple | list) else (value,)
    if len(flat) > MOST_AXES or not all(isinstance(each, int | str | None) for each in flat):
        return f"of type {type(value).__name__}"
    return repr(value)[:80]
