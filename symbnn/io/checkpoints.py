"""Published archives of checkpoints: a tgz of `version_{i}.safetensors` with PyTorch's names.

The layout of the data set that Laurent, Aldea, Franchi (2024) released: state dicts of one architecture in
half precision. Archives come from strangers, so nothing is ever unpacked to the disk: members are read one by
one from the stream, and anything but a plain file of the expected name and size is refused by name. Sizes are
checked before anything is read, and no header can ask for more memory than one checkpoint takes.
"""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load

from symbnn import tree
from symbnn.io.files import MALFORMED, ArtefactError, explaining, problem
from symbnn.io.pytorch import LayerMap, from_torch, is_counter, to_torch
from symbnn.models import Model
from symbnn.types import Params

# One folder in front is allowed, as `tar` makes it when a folder is packed.
MEMBER = re.compile(r"(?:\./)?(?:[A-Za-z0-9][\w.-]*/)?version_(\d{1,9})\.safetensors")
# For the names and shapes of a safetensors file and for the headers of tar; ResNet-18's names take 10 kB.
HEADER_BYTES = 1_000_000
WIDEST_WEIGHT = 8
ADVICE = "do not use it; download it again from its publisher"


def iterate_checkpoints(
    path: str | Path, model: Model, layers: str | LayerMap
) -> Iterator[tuple[int, Params]]:
    """(version, params) of every checkpoint, in the order of the archive; one is in memory at a time.

    `layers` as in `from_torch`. `ArtefactError` names the first member that is not a checkpoint of `model`.
    """
    path = Path(path)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    limit = WIDEST_WEIGHT * tree.num_weights(shapes) + HEADER_BYTES
    expected = _expected(model, shapes, layers)
    seen: set[int] = set()
    for name, content in _members(path, limit):
        version = int(_matched(path, name)[1])
        if version in seen:
            raise _refused(path, name, "every version once", "this one twice")
        seen.add(version)
        yield version, _params(path, name, content, model, layers, expected)
    if not seen:
        raise problem(path, expected="members version_0.safetensors, ...", found="nothing", advice=ADVICE)


def _members(path: Path, limit: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of every plain file; folders are passed over."""
    if not path.exists():
        raise problem(path, expected="an archive", found="nothing", advice="download it")
    errors = (OSError, EOFError, zlib.error, tarfile.TarError)
    with (
        explaining(path, "a whole .tgz archive", ADVICE, errors=errors),
        _Limited(path, limit) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r:") as archive,
    ):
        while (member := archive.next()) is not None:
            # Else tarfile keeps every header it has seen.
            archive.members = []  # type: ignore[attr-defined]
            if member.isdir():
                continue
            _check_member(path, member, limit)
            file = archive.extractfile(member)
            content = b"" if file is None else file.read()
            if len(content) != member.size:
                raise _refused(path, member.name, f"{member.size} bytes", f"{len(content)}")
            yield member.name, content


def _check_member(path: Path, member: tarfile.TarInfo, limit: int) -> None:
    if not member.isreg() or member.issparse():
        kind = "a link" if member.islnk() or member.issym() else f"an entry of type {member.type!r}"
        raise _refused(path, member.name, "a plain file", kind)
    _matched(path, member.name)
    if not 0 < member.size <= limit:
        raise _refused(path, member.name, f"at most {limit} bytes, for this model", f"{member.size}")


def _matched(path: Path, name: str) -> re.Match[str]:
    match = MEMBER.fullmatch(name)
    if match is None:
        raise _refused(path, name, "a name version_{i}.safetensors, inside the archive", "another name")
    return match


def _expected(model: Model, shapes: Any, layers: str | LayerMap) -> dict[str, tuple[int, ...]]:
    """Shapes by PyTorch's names, as far as the state dict does not decide on them."""
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return {name: array.shape for name, array in to_torch(model, zeros, layers).items()}


def _params(
    path: Path,
    name: str,
    content: bytes,
    model: Model,
    layers: str | LayerMap,
    expected: Mapping[str, tuple[int, ...]],
) -> Params:
    try:
        state_dict = load(content)
    except MALFORMED as error:
        raise _refused(path, name, "a whole safetensors file", str(error)) from error
    for key, tensor in state_dict.items():
        if is_counter(key):
            continue
        if key in expected and tensor.shape != expected[key]:
            raise _refused(path, name, f"{key!r} of shape {expected[key]}", f"{tensor.shape}")
        if tensor.dtype.kind not in "fV" or not np.all(np.isfinite(tensor.astype(np.float32))):
            raise _refused(path, name, f"finite numbers in {key!r}", f"other values, of type {tensor.dtype}")
    try:
        return from_torch(model, state_dict, layers)
    except ArtefactError as error:
        raise _refused(path, name, "a checkpoint of this model", str(error)) from error


def _refused(path: Path, member: str, expected: str, found: str) -> ArtefactError:
    # The name is a stranger's: shown as Python shows it, and not at any length.
    return problem(path, expected=f"for member {member[:100]!r} {expected}", found=found, advice=ADVICE)


class _Limited(gzip.GzipFile):
    """A stream that refuses to be read in pieces larger than `limit`: headers of tar name sizes too."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, "rb")
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        """As the stream's."""
        if size is None or not 0 <= size <= self._limit:
            raise tarfile.ReadError(f"a header asks for {size} bytes; at most {self._limit} are expected")
        return super().read(size)
