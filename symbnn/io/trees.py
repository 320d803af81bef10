"""Trees of arrays in one safetensors file: atomic, with checksums over every bit that matters.

The file is an ordinary safetensors file that any reader opens. Its metadata hold a JSON description of the
tree with dtype, shape and SHA-256 of every array, and the SHA-256 of that description. So a half-written,
bit-flipped or foreign file is recognised and named, never read as good.
"""

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from symbnn import tree as named
from symbnn.io.files import ArtefactError, ForeignFileError, explaining, parse_json, problem, replacing
from symbnn.io.structure import array_nodes, describe, rebuild

FORMAT = 2
READABLE = (1, 2)
KINDS = ("jax", "numpy", "key")
UNREADABLE = "a file that symbnn wrote is damaged: make it again; PyTorch's weights are read by io.from_torch"
SUMMARY = {"dtype", "shape", "sha256"}
ADVICE = "the file is damaged: delete it and run the stage that made it again"
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64"),
)


def save_tree(path: str | Path, tree: Any, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a tree of arrays, keys, numbers and strings, with JSON `metadata`, in place of `path`.

    Containers may be all that JAX takes for one: dicts, lists, tuples, named tuples, registered classes,
    modules of Equinox without functions among their leaves (`eqx.filter`), a state of nnx.
    """
    path = Path(path)
    node, arrays = describe(tree)
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            raise ValueError(f"leaf {name!r} has dtype {array.dtype.name}; files hold {sorted(DTYPES)}")
    description = {
        "format": FORMAT,
        "tree": node,
        "arrays": {name: _summary(array) for name, array in arrays.items()},
        "metadata": dict(metadata or {}),
        "versions": _versions(),
    }
    text = json.dumps(description)
    # One entry: safetensors writes several in any order, and the same tree should make the same bytes.
    header = {"symbnn": text + hashlib.sha256(text.encode()).hexdigest()}
    write_arrays(path, arrays, header)


def load_tree(
    path: str | Path,
    *,
    like: Any = None,
    sharding: Any = None,
    classes: Iterable[type] = (),
) -> tuple[Any, dict[str, Any]]:
    """The tree and the metadata that `save_tree` wrote; `ArtefactError` if anything is wrong with the file.

    Leaves come back as what they were (JAX, NumPy, typed key), JAX ones on `sharding` (a device or sharding;
    default: the default device). Containers come back as dict, list and tuple, and as any of `classes`; or as
    in the tree `like`, whose leaf names must then be those of the file, with the same shapes and dtypes.
    Leaves of `like` that are no arrays, and not in the file, stay as they are there.
    """
    path = Path(path)
    with _opened(path) as file:
        description, nodes = _description(path, file)
        summaries = description["arrays"]
        if nodes.keys() != summaries.keys() or set(file.keys()) != nodes.keys():
            raise _damaged(path, f"the arrays {sorted(summaries)}", f"the arrays {sorted(file.keys())}")
        leaves = {
            name: _restore(path, name, node, _checked(path, file, name, summaries[name]), sharding)
            for name, node in nodes.items()
        }
    advice = f"read it with symbnn {description['versions']['symbnn']}"
    with explaining(path, "the fields of this version's classes", advice):
        tree = rebuild(description["tree"], leaves, {cls.__name__: cls for cls in classes})
    return (tree if like is None else _in_form(path, like, tree)), description["metadata"]


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, str] | None = None
) -> None:
    """One safetensors file in place of `path`, atomically."""
    with replacing(path) as part:
        save_file(dict(arrays), part, metadata=None if header is None else dict(header))


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a tree file, without reading its arrays."""
    path = Path(path)
    with _opened(path) as file:
        return _description(path, file)[0]["metadata"]


def _opened(path: Path) -> Any:
    with explaining(path, "a whole safetensors file", UNREADABLE):
        if not path.exists():
            raise problem(path, expected="a file", found="nothing", advice="run the stage that makes it")
        if path.is_dir():
            raise problem(path, expected="a file", found="a folder", advice="name the file in it")
        return safe_open(path, framework="np")


def _description(path: Path, file: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header, and its array nodes by name. All checked: who forges a tree can forge its checksum too."""
    header = file.metadata() or {}
    if "symbnn" not in header:
        raise problem(
            path,
            expected="a tree written by symbnn",
            found="a safetensors file of another program",
            advice="read foreign weights with `io.load_safetensors`",
            kind=ForeignFileError,
        )
    text, checksum = header["symbnn"][:-64], header["symbnn"][-64:]
    if hashlib.sha256(text.encode()).hexdigest() != checksum:
        raise _damaged(path, "a header that matches its checksum", "another checksum")
    with explaining(path, "the description of a tree", ADVICE):
        description = parse_json(text)
        found = f"format {description['format']} of symbnn {description['versions']['symbnn']}"
        if description["format"] not in READABLE:
            expected = f"format {' or '.join(map(str, READABLE))}"
            raise problem(path, expected=expected, found=found, advice="read it with that version")
        nodes = array_nodes(description["tree"])
        is_known = all(node["kind"] in KINDS for node in nodes.values())
        is_summed = all(summary.keys() == SUMMARY for summary in description["arrays"].values())
        if not (is_known and is_summed and isinstance(description["metadata"], dict)):
            raise ValueError("arrays without dtype, shape and checksum, or metadata of another kind")
    return description, nodes


def _checked(path: Path, file: Any, name: str, summary: dict[str, Any]) -> np.ndarray:
    with explaining(path, f"array {name!r}", ADVICE):
        found = _summary(array := file.get_tensor(name))
    for field, value in summary.items():
        if found[field] != value:
            raise _damaged(path, f"array {name!r} with {field} {value}", f"{field} {found[field]}")
    return array


def _summary(array: np.ndarray) -> dict[str, Any]:
    digest = hashlib.sha256(np.require(array, requirements="C").reshape(-1).view(np.uint8).data)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest.hexdigest()}


def _restore(path: Path, name: str, node: dict[str, Any], array: np.ndarray, sharding: Any) -> Any:
    if node["kind"] == "numpy":
        return array
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise problem(
            path,
            expected=f"leaf {name!r} in at most 32 bits",
            found=array.dtype.name,
            advice="load it inside `jax.enable_x64(True)`",
        )
    placed = jax.device_put(array, sharding)
    if node["kind"] != "key":
        return placed
    with explaining(path, f"a random key in {name!r}", ADVICE):
        return jax.random.wrap_key_data(placed, impl=node["implementation"])


def _in_form(path: Path, like: Any, tree: Any) -> Any:
    wanted, found = named.named_leaves(like), named.named_leaves(tree)
    missing = [name for name, leaf in wanted.items() if name not in found and is_array(leaf)]
    refuse_other_names(path, missing, [name for name in found if name not in wanted])
    for name, leaf in wanted.items():
        if is_array(leaf) and _signature(leaf) != _signature(found[name]):
            raise ArtefactError(
                f"{path}: leaf {name!r} is {_signature(found[name])}; expected {_signature(leaf)}"
            )
    return named.map_named(lambda name, leaf: found.get(name, leaf), like)


def is_array(leaf: Any) -> bool:
    """Whether a leaf of `like` is an array, or the shape of one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def refuse_other_names(path: Path, missing: list[str], unknown: list[str]) -> None:
    """`ArtefactError` if `like` has leaves that the file lacks, or the other way round."""
    if missing or unknown:
        raise ArtefactError(
            f"{path}: leaves of `like` not in the file {_few(missing)}, only in the file {_few(unknown)}"
        )


def _few(names: list[str]) -> str:
    return f"{names[:3]}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _signature(leaf: Any) -> tuple[Any, ...]:
    return (leaf.shape, leaf.dtype) if is_array(leaf) else ((), type(leaf).__name__)


def _damaged(path: Path, expected: str, found: str) -> ArtefactError:
    return problem(path, expected=expected, found=found, advice=ADVICE)


@functools.cache
def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("symbnn", "jax", "numpy")}
    return packages | {"python": platform.python_version()}
