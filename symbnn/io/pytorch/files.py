"""State dicts from files, without PyTorch. What is in a file decides how it is read, not its suffix."""

import contextlib
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from symbnn.io.files import ArtefactError, explaining, problem
from symbnn.io.pytorch.containers import kind_of, opened
from symbnn.io.pytorch.pickles import Refused
from symbnn.io.pytorch.tensors import Tensor

# What training scripts call the weights in a checkpoint, most common first.
ENTRIES = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights")
INSTEAD = "save model.state_dict() instead"
EXPECTED = "a PyTorch state dict, as torch.save or safetensors write it"


def load_torch(path: str | Path | Any, *, entry: str | None = None) -> dict[str, np.ndarray]:
    """Names and arrays of a state dict: `.pt`, `.pth`, `.th`, `.bin` of any version, or `.safetensors`.

    Pickles are read without running anything; PyTorch is not needed. Arrays may share memory, as tensors do.

    Args:
        path: The file. A checkpoint with other things in it (epoch, optimiser) gives its weights alone.
        entry: Name of the state dict in a checkpoint that has several.
    """
    path = checked_path(path)
    kind = _kind(path)
    if kind == "safetensors":
        if entry is not None:
            raise ValueError(f"{path} is a safetensors file, which has no entries; got entry={entry!r}")
        return load_safetensors(path)
    with _explaining(path), path.open("rb") as file, opened(file) as (data, content):
        state = select_state_dict(data, str(path), entry)
        if other := [str(name)[:40] for name, value in state.items() if not isinstance(value, Tensor)]:
            raise _not_weights(str(path), f"values at {other[:8]} that are no tensors", data)
        return {name: tensor.read(content) for name, tensor in state.items()}


def load_safetensors(path: str | Path | Any) -> dict[str, np.ndarray]:
    """Arrays of any safetensors file; for files that symbnn did not write, so without its checksums."""
    path = checked_path(path)
    expected = "a whole safetensors file"
    if kind_of(_start(path)) is not None:
        advice = "read it with io.load_torch, or give its path to io.from_torch"
        raise problem(path, expected=expected, found="a file of torch.save", advice=advice)
    with explaining(path, expected, "download or save it again"):
        return load_file(path)


def is_safetensors(path: str | Path) -> bool:
    """Whether the file is one; such files do not keep the order of their entries."""
    return _kind(checked_path(path)) == "safetensors"


def checked_path(path: Any) -> Path:
    """The path, if it is one and a file is there; else an error that says what was given."""
    if not isinstance(path, str | Path):
        raise ValueError(
            f"expected the path of a file; got a {type(path).__name__}; a state dict in memory goes to "
            "io.from_torch as it is"
        )
    path = Path(path)
    if path.is_file():
        return path
    found = "a folder" if path.is_dir() else "nothing"
    raise problem(path, expected=EXPECTED, found=found, advice="give the path of the file itself")


def select_state_dict(data: Any, what: str, entry: str | None = None) -> Mapping[str, Any]:
    """The one mapping from names to tensors in what a file or a caller gave."""
    if not isinstance(data, Mapping):
        raise _not_weights(what, "no state dict", data)
    if entry is not None:
        if not _is_state_dict(data.get(entry)):
            raise _not_weights(what, f"no state dict at {entry!r}", data)
        return data[entry]
    if _is_state_dict(data):
        return data
    inside = {name: value for name, value in data.items() if _is_state_dict(value)}
    if not inside and any(hasattr(value, "shape") for value in data.values()):
        # With other values among the tensors; whoever reads it knows which names are missing.
        return data
    named = [name for name in ENTRIES if name in inside]
    chosen = named if len(inside) > 1 else list(inside)
    if len(chosen) > 1 or (inside and not chosen):
        raise ArtefactError(
            f"{what} holds several state dicts, {sorted(map(str, inside))[:8]}; choose one: "
            "io.from_torch(model, io.load_torch(path, entry=...))"
        )
    if not chosen:
        raise _not_weights(what, "no state dict", data)
    return inside[chosen[0]]


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(name, str) for name in value)
        and all(hasattr(tensor, "shape") for tensor in value.values())
    )


def _not_weights(what: str, missing: str, data: Any) -> ArtefactError:
    found = f"a {type(data).__name__}"
    if isinstance(data, Mapping):
        found = f"a dict of {[str(name)[:40] for name in list(data)[:8]]}"
    elif isinstance(data, Tensor):
        found = "one tensor"
    return ArtefactError(
        f"{what}: expected a PyTorch state dict, names with tensors; found {missing} in {found}; {INSTEAD}"
    )


def _kind(path: Path) -> str:
    """`zip`, `legacy` or `safetensors`, by the first bytes; an error that says what else it is."""
    start = _start(path)
    if (kind := kind_of(start)) is not None:
        return kind
    if start[8:9] == b"{":
        return "safetensors"
    found, advice = "other bytes", "download or save it again"
    if not start:
        found = "an empty file"
    elif start.lstrip()[:1] == b"<":
        found, advice = "a web page", "the download failed: fetch the file itself"
    elif start.startswith(b"version https://git-lfs"):
        found, advice = "a pointer of Git LFS", "fetch the file it points to with git lfs pull"
    elif start[257:262] == b"ustar":
        found, advice = "a tar archive", f"if PyTorch before 0.1.10 wrote it, {INSTEAD} with a newer one"
    elif start[:1] == b"\x80":
        found, advice = "a pickle of another program", INSTEAD
    raise problem(path, expected=EXPECTED, found=found, advice=advice)


def _start(path: Path) -> bytes:
    with explaining(path, EXPECTED, "check its permissions"), path.open("rb") as file:
        return file.read(512)


@contextlib.contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Errors of the readers as one line that names the file."""
    expected, advice = f"{EXPECTED}, and whole", "download or save it again"
    errors = (zipfile.BadZipFile, NotImplementedError, struct.error, MemoryError)
    with explaining(path, expected, advice), explaining(path, expected, advice, errors=errors):
        try:
            yield
        except Refused as error:
            raise _refused(path, error.name) from error


def _refused(path: Path, name: str) -> ArtefactError:
    if name.startswith(("torch.nn.modules.", "__torch__")):
        found = f"a whole network ({name!r}), which only its own code can rebuild"
        return problem(path, expected=EXPECTED, found=found, advice=INSTEAD)
    return ArtefactError(
        f"{path}: expected {EXPECTED}; refuses to run {name!r}, which the file asks for; nothing was run; "
        f"if the file is yours (a whole model, a checkpoint with other objects), {INSTEAD}"
    )
