"""Trees as JSON plus named arrays, without pickle.

A tree becomes a nested description whose leaves are names (`hidden/kernel`, as in `symbnn.tree`) and a flat
dict from names to arrays. Python numbers, strings and None stay in the description. Named tuples and
dataclasses are described by class name and fields; they come back as the class if it is given by the reader,
else as a dict of their fields: a file never decides which code runs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

Node = Any
"""JSON: `{"array": name, "kind": ...}`, `{"value": ...}`, `{"dict": {...}}`, `{"list": [...]}`,
`{"tuple": [...]}` or `{"class": name, "fields": {...}}`."""


def describe(tree: Any) -> tuple[Node, dict[str, np.ndarray]]:
    """Description and arrays of a tree; `ValueError` names a leaf that cannot be kept."""
    arrays: dict[str, np.ndarray] = {}
    return _describe(tree, "", arrays), arrays


def rebuild(node: Node, arrays: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """The tree of a description; `arrays` holds its leaves."""
    if "array" in node:
        return arrays[node["array"]]
    if "value" in node:
        return node["value"]
    if "dict" in node:
        return {key: rebuild(child, arrays, classes) for key, child in node["dict"].items()}
    if "list" in node:
        return [rebuild(child, arrays, classes) for child in node["list"]]
    if "tuple" in node:
        return tuple(rebuild(child, arrays, classes) for child in node["tuple"])
    fields = {key: rebuild(child, arrays, classes) for key, child in node["fields"].items()}
    return _instance(classes[node["class"]], fields) if node["class"] in classes else fields


def array_nodes(node: Node) -> dict[str, Node]:
    """All array nodes of a description by leaf name."""
    if "array" in node:
        return {node["array"]: node}
    children = node.get("dict") or node.get("fields") or {}
    nodes: dict[str, Node] = {}
    for child in [*children.values(), *node.get("list", []), *node.get("tuple", [])]:
        nodes |= array_nodes(child)
    return nodes


def _describe(tree: Any, name: str, arrays: dict[str, np.ndarray]) -> Node:
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, jax.Array | np.ndarray | np.generic):
        return _describe_array(tree, name, arrays)
    if isinstance(tree, Mapping):
        for key in tree:
            if not isinstance(key, str):
                raise ValueError(f"{name or 'tree'!r} has the key {key!r}; only string keys can be kept")
        return {"dict": {key: _describe(child, _join(name, key), arrays) for key, child in tree.items()}}
    fields = _fields(tree)
    if fields is not None:
        described = {key: _describe(child, _join(name, key), arrays) for key, child in fields.items()}
        return {"class": type(tree).__name__, "fields": described}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_describe(child, _join(name, str(i)), arrays) for i, child in enumerate(tree)]}
    raise ValueError(f"{name or 'tree'!r} is a {type(tree).__name__}, which cannot be kept")


def _describe_array(leaf: Any, name: str, arrays: dict[str, np.ndarray]) -> Node:
    name = name or "array"
    if name in arrays:
        raise ValueError(f"two leaves are called {name!r}; avoid '/' in keys")
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        arrays[name] = np.asarray(jax.random.key_data(leaf))
        return {"array": name, "kind": "key", "implementation": str(jax.random.key_impl(leaf))}
    # `ascontiguousarray` would make rank 0 rank 1; `require` keeps the rank.
    arrays[name] = np.require(np.asarray(leaf), requirements="C")
    return {"array": name, "kind": "jax" if isinstance(leaf, jax.Array) else "numpy"}


def _fields(tree: Any) -> dict[str, Any] | None:
    if dataclasses.is_dataclass(tree):
        return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return dict(zip(tree._fields, tree, strict=True))
    return None


def _instance(cls: type, fields: dict[str, Any]) -> Any:
    if not dataclasses.is_dataclass(cls):
        return cls(**fields)
    expected = {field.name for field in dataclasses.fields(cls)}
    if fields.keys() != expected:
        raise ValueError(f"{cls.__name__} has the fields {sorted(expected)}; the file has {sorted(fields)}")
    # Past the constructor, as JAX does it: stacked components of a mixture would not pass its shape checks.
    instance = object.__new__(cls)
    for key, value in fields.items():
        object.__setattr__(instance, key, value)
    return instance


def _join(name: str, key: str) -> str:
    return f"{name}/{key}" if name else key
