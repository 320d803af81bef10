"""Inputs that stay where they are, on disk: indexed like an array, read when they are indexed.

Methods that train by minibatches take them in place of an array (ImageNet would need 718 GiB as floats).
Any source will do, for instance a memory-mapped file of bytes:

    bytes_ = np.load("images.npy", mmap_mode="r")
    Streamed(lambda indices: bytes_[indices].astype(np.float32) / 255, bytes_.shape)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Streamed:
    """`shape[0]` inputs, of which `read(indices)` loads some: float32 `(len(indices), *shape[1:])`."""

    read: Callable[[np.ndarray], np.ndarray]
    shape: tuple[int, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, indices: Any) -> Any:
        """Read inputs, for an array of indices (of any shape); a slice stays on disk."""
        if isinstance(indices, slice):
            kept = np.arange(len(self))[indices]
            return Streamed(lambda chosen: self.read(kept[chosen]), (len(kept), *self.shape[1:]))
        indices = np.asarray(indices)
        found = self.read(indices.reshape(-1))
        expected = (indices.size, *self.shape[1:])
        if found.shape != expected or found.dtype != self.dtype:
            raise ValueError(
                f"streamed inputs: read gave {found.dtype} of shape {found.shape}; expected {self.dtype} of "
                f"{expected}"
            )
        return found.reshape(*indices.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise ValueError(
            f"streamed inputs of shape {self.shape} stay on disk and do not become one array; index them, or "
            "load fewer of them into memory (num_train, num_test)"
        )

    def blocks(self, size: int | None = None) -> Iterator[np.ndarray]:
        """All inputs in order, `size` at a time, by default 1,024."""
        size = BLOCK if size is None else size
        for begin in range(0, len(self), size):
            yield self[np.arange(begin, min(begin + size, len(self)))]
