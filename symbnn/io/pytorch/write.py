"""State dicts in files that `torch.load(path, weights_only=True)` and safetensors read, without PyTorch."""

import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from symbnn.io.files import replacing
from symbnn.io.pytorch.tensors import DTYPES, STORAGES
from symbnn.io.trees import write_arrays

TORCH_SUFFIXES = (".pt", ".pth", ".th", ".bin")
SUFFIXES = (*TORCH_SUFFIXES, ".safetensors")
# Numbers begin at multiples of this, so that PyTorch can map the file into memory.
ALIGNMENT = 64
HEADER_BYTES = 30


def save_torch(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a state dict in place of `path`, atomically; the suffix says in which format."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: weights are written to files that end in {', '.join(SUFFIXES)}")
    # Not `ascontiguousarray`, which gives counters an axis.
    arrays = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    if path.suffix == ".safetensors":
        # Other readers ask for this entry.
        write_arrays(path, arrays, {"format": "pt"})
        return
    pickled = b"".join(_pickled(arrays))
    with replacing(path) as part, zipfile.ZipFile(part, "w") as archive:
        _store(archive, "archive/data.pkl", pickled)
        _store(archive, "archive/byteorder", b"little")
        for number, array in enumerate(arrays.values()):
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            _store(archive, f"archive/data/{number}", little.tobytes())
        _store(archive, "archive/version", b"3\n")


def save_safetensors(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays for other programs, atomically."""
    write_arrays(Path(path), {name: np.require(array, requirements="C") for name, array in arrays.items()})


def _store(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # With a date of its own an archive of the same weights would have other bytes every time.
    member = zipfile.ZipInfo(name)
    start = archive.fp.tell() + HEADER_BYTES + len(name.encode()) + 4  # type: ignore[union-attr]
    padding = -start % ALIGNMENT
    member.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    archive.writestr(member, content)


def _pickled(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    """OrderedDict of names with views of whole storages, in protocol 2."""
    storages = {DTYPES[name]: kind for kind, name in STORAGES.items()}
    yield b"\x80\x02ccollections\nOrderedDict\n)R("
    for number, (name, array) in enumerate(arrays.items()):
        if array.dtype not in storages:
            known = sorted(str(dtype) for dtype in storages)
            raise ValueError(f"{name!r} has dtype {array.dtype}; PyTorch's files hold {known}")
        yield _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(("
        yield _text("storage") + f"ctorch\n{storages[array.dtype]}Storage\n".encode()
        yield _text(str(number)) + _text("cpu") + _number(array.size) + b"tQ" + _number(0)
        strides = [stride // array.itemsize for stride in array.strides]
        for lengths in (array.shape, strides):
            yield b"(" + b"".join(map(_number, lengths)) + b"t"
        yield b"\x89ccollections\nOrderedDict\n)RtR"
    yield b"u."


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _number(number: int) -> bytes:
    if number < 2**31:
        return b"J" + struct.pack("<i", number)
    return b"\x8a\x08" + struct.pack("<q", number)
