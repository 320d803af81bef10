"""Trees as JSON plus named arrays, without pickle.

A tree becomes a nested description whose leaves are names (`hidden/kernel`, as in `symbnn.tree`) and a flat
dict from names to arrays. Python numbers, strings and None stay in the description. Any other container that
JAX takes apart (named tuples, registered dataclasses, modules of Equinox, ...) is described by the name of
its class, its children, and the rest of its fields where those are plain; what a variable of nnx holds stands
for the variable. A container comes back as its class if that is given by the reader, else as a dict of its
children: a file never decides which code runs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from symbnn.frameworks import described, is_variable
from symbnn.tree import path_name

Node = Any
"""JSON: `{"array": name, "kind": ...}`, `{"value": ...}`, `{"dict": {...}}` (with `"keys": "int"` for whole
numbers), `{"list": [...]}`, `{"tuple": [...]}` or `{"class": name, "fields": {...}}` (with `"static": {...}`
for fields that JAX does not look into; format 1 has them among the others)."""


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
        typed = int if node.get("keys") == "int" else str
        return {typed(key): rebuild(child, arrays, classes) for key, child in node["dict"].items()}
    if "list" in node:
        return [rebuild(child, arrays, classes) for child in node["list"]]
    if "tuple" in node:
        return tuple(rebuild(child, arrays, classes) for child in node["tuple"])
    fields = {key: rebuild(child, arrays, classes) for key, child in node["fields"].items()}
    if node["class"] not in classes:
        return fields
    static = {key: rebuild(child, arrays, classes) for key, child in node.get("static", {}).items()}
    return instance(classes[node["class"]], fields | static)


def array_nodes(node: Node) -> dict[str, Node]:
    """All array nodes of a description by leaf name."""
    if "array" in node:
        return {node["array"]: node}
    children = [*node.get("list", []), *node.get("tuple", [])]
    for part in ("dict", "fields", "static"):
        children += node.get(part, {}).values()
    nodes: dict[str, Node] = {}
    for child in children:
        nodes |= array_nodes(child)
    return nodes


def _describe(tree: Any, name: str, arrays: dict[str, np.ndarray]) -> Node:
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, jax.Array | np.ndarray | np.generic):
        return _describe_array(tree, name, arrays)
    if is_variable(tree):
        (value,) = (_children(tree) or {}).values()
        return _describe(value, name, arrays)
    if isinstance(tree, Mapping):
        keys = {"keys": "int"} if tree and all(type(key) is int for key in tree) else {}
        return {"dict": _describe_all(tree, name, arrays), **keys}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: list(_describe_all(dict(enumerate(tree)), name, arrays).values())}
    return _describe_container(tree, name, arrays)


def _describe_container(tree: Any, name: str, arrays: dict[str, np.ndarray]) -> Node:
    """A container of some class: its children, and the fields that JAX does not look into."""
    children = _children(tree)
    if children is None:
        children = _fields(tree)
    if children is None:
        raise ValueError(
            f"{name or 'tree'!r} is {described(tree)}, which cannot be kept; keep the arrays only, for an "
            "Equinox module eqx.filter(module, eqx.is_array)"
        )
    node = {"class": type(tree).__name__, "fields": _describe_all(children, name, arrays)}
    try:
        static = static_fields(tree)
    except ValueError:
        # Whoever reads a container of weights has the rest of it.
        static = {}
    return node | ({"static": static} if static else {})


def _describe_all(children: Mapping[Any, Any], name: str, arrays: dict[str, np.ndarray]) -> dict[str, Node]:
    nodes = {str(key): _describe(child, _join(name, str(key)), arrays) for key, child in children.items()}
    if len(nodes) < len(children):
        raise ValueError(f"{name or 'tree'!r} has two keys of one name: {sorted(map(repr, children))}")
    return nodes


def static_fields(tree: Any) -> dict[str, Node]:
    """The description of the fields that JAX does not look into; `ValueError` if one cannot be kept."""
    fields, children = _fields(tree) or {}, _children(tree)
    if children is None:
        return {}
    arrays: dict[str, np.ndarray] = {}
    nodes = _describe_all({key: fields[key] for key in fields if key not in children}, "", arrays)
    if arrays:
        raise ValueError(f"{next(iter(arrays))!r} is an array that JAX does not see, which cannot be kept")
    return nodes


def _children(tree: Any) -> dict[str, Any] | None:
    """What JAX finds one level below, by name; None for what it takes for a leaf."""
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: node is not tree)
    if len(found) == 1 and not found[0][0]:
        return None
    children = {path_name(path): child for path, child in found}
    if len(children) < len(found):
        raise ValueError(f"a {type(tree).__name__} has two children of one name: {sorted(children)}")
    return children


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
    if not dataclasses.is_dataclass(tree):
        return None
    # A field may be absent: Equinox leaves some to their class.
    names = [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
    return {name: getattr(tree, name) for name in names}


def instance(cls: type, fields: dict[str, Any]) -> Any:
    """An object of this class with these fields."""
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
