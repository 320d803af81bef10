"""The two containers of `torch.save`: a pickle of names and shapes, and rows of numbers beside it.

| written by | content |
|---|---|
| PyTorch since 1.6 | a zip archive: `data.pkl`, and one member per storage, never compressed |
| PyTorch before | five pickles one after the other, then the storages, each behind its length |

Files come from strangers: sizes are checked against the file before memory is taken for them, so no file
takes more than a few times its own length.
"""

import contextlib
import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from symbnn.io.pytorch.pickles import PICKLE_BYTES, Refused, read_plain
from symbnn.io.pytorch.tensors import Storage

ZIP_START = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first thing in an old file."""

Kind = Literal["zip", "legacy"]
Content = Callable[[Storage], bytearray]
"""Reads the numbers of a storage."""


@contextlib.contextmanager
def opened(file: io.BufferedIOBase) -> Iterator[tuple[Any, Content]]:
    """The data of a file, and a function that reads storages while the file is open."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(ZIP_START)) == ZIP_START:
        with zipfile.ZipFile(file) as archive:
            yield _Zipped(archive, size).open()
    else:
        file.seek(0)
        yield _legacy(file, size)


def kind_of(start: bytes) -> Kind | None:
    """The container that a file with these first bytes is."""
    if start.startswith(ZIP_START):
        return "zip"
    magic = LEGACY_MAGIC.to_bytes(10, "little")
    return "legacy" if start.startswith(b"\x80") and magic in start[:32] else None


class _Zipped:
    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self.archive, self.left = archive, size
        self.members = {member.filename: member for member in archive.infolist()}
        roots = {name.removesuffix("data.pkl") for name in self.members if name.endswith("/data.pkl")}
        roots = {root for root in roots if root.count("/") == 1}
        if len(roots) != 1:
            raise ValueError("a zip archive of another program, without one data.pkl")
        (self.root,) = roots

    def open(self) -> tuple[Any, Content]:
        """The data, and the function that reads storages."""
        if f"{self.root}constants.pkl" in self.members:
            raise Refused("__torch__ (TorchScript)")
        if self.members[f"{self.root}data.pkl"].file_size > PICKLE_BYTES:
            raise ValueError(f"a pickle of more than {PICKLE_BYTES} bytes")
        data, _ = read_plain(io.BytesIO(self.read("data.pkl")))
        order = bytes(self.read("byteorder")) if f"{self.root}byteorder" in self.members else b"little"
        rows: dict[str, bytearray] = {}

        def content(storage: Storage) -> bytearray:
            if storage.key not in rows:
                rows[storage.key] = self.read(f"data/{storage.key}", storage.num_bytes)
                if order != b"little":
                    _swap_bytes(rows[storage.key], storage)
            return _fitting(rows[storage.key], storage)

        return data, content

    def read(self, name: str, expected: int | None = None) -> bytearray:
        """A member, if it is stored as PyTorch does and has the expected length."""
        member = self.members.get(self.root + name)
        if member is None:
            raise ValueError(f"no member {name[:40]!r}")
        if member.compress_type != zipfile.ZIP_STORED:
            # PyTorch never compresses; and a few bytes could unpack to any number.
            raise ValueError(f"a compressed member {name[:40]!r}")
        if expected is not None and member.file_size != expected:
            raise ValueError(
                f"{member.file_size} bytes in member {name[:40]!r}, whose tensors need {expected}"
            )
        self.left -= member.file_size
        if self.left < 0:
            raise ValueError("members that overlap")
        return bytearray(self.archive.read(member))


def _legacy(file: io.BufferedIOBase, size: int) -> tuple[Any, Content]:
    if read_plain(file)[0] != LEGACY_MAGIC:
        raise ValueError("another number than that of PyTorch")
    # Protocol version and the machine that wrote it; numbers are little-endian whatever it was.
    for _ in range(2):
        read_plain(file)
    data, storages = read_plain(file)
    keys, _ = read_plain(file)
    starts: dict[str, int] = {}
    for key in keys:
        (length,) = struct.unpack("<q", file.read(8))
        storage = storages.get(key)
        # The file says how many numbers there are; only the tensors say how long each is.
        if storage is None or length != storage.whole:
            raise ValueError(f"{length} numbers of a storage that the tensors do not have so")
        starts[key] = file.tell()
        if file.seek(storage.num_bytes, io.SEEK_CUR) > size:
            raise ValueError("fewer bytes than the tensors need")
    rows: dict[str, bytearray] = {}

    def content(storage: Storage) -> bytearray:
        if storage.key not in rows:
            file.seek(starts[storage.key])
            rows[storage.key] = bytearray(file.read(storage.num_bytes))
        return _fitting(rows[storage.key], storage)

    return data, content


def _fitting(row: bytearray, storage: Storage) -> bytearray:
    if len(row) != storage.num_bytes:
        raise ValueError(f"a storage of {len(row)} bytes, where its tensors need {storage.num_bytes}")
    return row


def _swap_bytes(row: bytearray, storage: Storage) -> None:
    if storage.dtype is None:
        raise ValueError("bare bytes of a big-endian machine")
    width = storage.dtype.itemsize // (2 if storage.dtype.kind == "c" else 1)
    np.frombuffer(row, np.dtype(f"u{width}")).byteswap(inplace=True)
