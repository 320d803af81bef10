"""What ArviZ has no place for, as JSON text in an attribute of its posterior.

- `samples`: how the tree was built of its leaves, unless it was of dicts whose keys the names tell.
- `statistics`: how those of every draw were called and built.
- `rest`: diagnostics of a chain or of the whole run, without entries of more than `LARGEST` numbers.

The note is about data of one `shape`, (chains, draws): of data that was cut afterwards the rest is not true.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from symbnn import tree
from symbnn.io import structure

ATTRIBUTE = "symbnn"
LARGEST = 256
"""The attributes of a file hold 64 kB together; a number takes up to 20 bytes."""


def written(
    shape: tuple[int, int],
    separator: str,
    samples: tuple[Any, Mapping[str, str]],
    statistics: Mapping[str, tuple[Any, Mapping[str, str]]],
    rest: Mapping[str, Any],
) -> str:
    """The note; samples and statistics come as (tree, variable of each leaf)."""
    values, variables = samples
    encoded = {name: _encode(value) for name, value in rest.items()}
    return json.dumps(
        {
            "shape": shape,
            "separator": separator,
            "samples": None if _is_plain(values, variables, separator) else _describe(values, variables),
            "statistics": {name: _describe(*each) for name, each in statistics.items()},
            "rest": {name: entry for name, entry in encoded.items() if entry is not None},
        }
    )


def from_names(arrays: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Arrays by variable as nested dicts."""
    return tree.nested({name.replace(separator, "/"): array for name, array in arrays.items()})


def samples_of(note: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The tree of the arrays of the posterior; nested dicts where variables were added or taken away."""
    built = _rebuild(note["samples"], arrays)
    is_whole = built is not None and len(jax.tree.leaves(built)) == len(arrays)
    return built if is_whole else from_names(arrays, note["separator"])


def diagnostics_of(
    note: Mapping[str, Any], arrays: Mapping[str, Any], shape: tuple[int, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(diagnostics that the note knows, arrays of the statistics that it does not)."""
    found = {name: _rebuild(entry, arrays) for name, entry in note["statistics"].items()}
    found = {name: value for name, value in found.items() if value is not None}
    used = {variable for name in found for variable in note["statistics"][name]["variables"].values()}
    rest = note["rest"] if tuple(note["shape"]) == shape else {}
    others = {name: array for name, array in arrays.items() if name not in used}
    return found | {name: _decode(entry) for name, entry in rest.items()}, others


def _is_plain(values: Any, variables: Mapping[str, str], separator: str) -> bool:
    """Whether names alone tell how the tree is built."""
    try:
        by_names = from_names(dict.fromkeys(variables.values(), 0), separator)
    except ValueError:
        return False
    found: Any = jax.tree.structure(by_names)
    return found == jax.tree.structure(values)


def _describe(values: Any, variables: Mapping[str, str]) -> dict[str, Any] | None:
    """How to put a tree together again from variables; None if its containers cannot be described."""
    try:
        node, arrays = structure.describe(values)
    except ValueError:
        return None
    named = {leaf or "array": variable for leaf, variable in variables.items()}
    return {"tree": node, "variables": named} if arrays.keys() == named.keys() else None


def _rebuild(entry: Mapping[str, Any] | None, arrays: Mapping[str, Any]) -> Any:
    if entry is None or not arrays.keys() >= set(entry["variables"].values()):
        return None
    leaves = {leaf: arrays[variable] for leaf, variable in entry["variables"].items()}
    return structure.rebuild(entry["tree"], leaves, {})


def _encode(value: Any) -> dict[str, Any] | None:
    """A short entry with its numbers; None if it is long, or nothing that text can hold."""
    try:
        node, arrays = structure.describe(value)
    except ValueError:
        return None
    is_short = sum(array.size for array in arrays.values()) <= LARGEST
    has_keys = any(each["kind"] == "key" for each in structure.array_nodes(node).values())
    if not is_short or has_keys or any(array.dtype.kind in "OSV" for array in arrays.values()):
        return None
    numbers = {
        name: {"dtype": str(array.dtype), "shape": array.shape, "values": array.ravel().tolist()}
        for name, array in arrays.items()
    }
    return {"tree": node, "arrays": numbers}


def _decode(entry: Mapping[str, Any]) -> Any:
    arrays = {
        name: np.asarray(array["values"], array["dtype"]).reshape(array["shape"])
        for name, array in entry["arrays"].items()
    }
    return structure.rebuild(entry["tree"], arrays, {})
