"""Shared weights in a file that is really small: a label per weight, a few tables, and what is not shared.

| array        | type                       | what                                                      |
|--------------|----------------------------|-----------------------------------------------------------|
| `labels`     | smallest unsigned          | component of every weight; the number K marks an outlier  |
| `components` | float32 (K, 5)             | mean, standard deviation, Cholesky factor                 |
| `outliers`   | float32 (o, 2)             | mean and standard deviation, in the order of the weights  |
| `indices`    | uint32 (o,)                | of outliers, where no label is free to mark them (K=256)  |
| `ellipses`   | uint32 (e,), labels (e, c) | which weights blend which components                      |
| `blends`     | float32 (e, c - 1)         | shares of the blend; the last is what is missing to one   |
| `fixed`      | float32                    | the deterministic leaves, joined                          |

It is a tree file (`io.load_tree` opens it): atomic, with checksums.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symbnn import tree as named
from symbnn.io.files import problem
from symbnn.io.trees import load_tree, save_tree

KIND = "shared weights"


class SharedTables(NamedTuple):
    """What a file of shared weights holds, unpacked."""

    components: np.ndarray
    """(k, 5)."""
    labels: np.ndarray
    outlier_indices: np.ndarray
    outliers: np.ndarray
    """(o, 2)."""
    ellipse_indices: np.ndarray
    ellipse_components: np.ndarray
    """(e, c)."""
    ellipse_weights: np.ndarray
    """(e, c), rows sum to one."""
    fixed: Any
    """Nested dicts of deterministic leaves; shared leaves are absent or empty."""


def save_shared(path: str | Path, tables: SharedTables, metadata: Mapping[str, Any] | None = None) -> None:
    """Write the tables in place of `path`, with JSON `metadata`."""
    num_components = len(tables.components)
    fixed = {
        name: np.asarray(leaf) for name, leaf in named.named_leaves(tables.fixed).items() if np.size(leaf)
    }
    for name, leaf in fixed.items():
        if leaf.dtype != np.float32:
            raise ValueError(
                f"leaf {name!r} has dtype {leaf.dtype}; deterministic leaves are kept as float32"
            )
    labels = np.asarray(tables.labels)
    if labels.size and int(labels.max()) >= num_components:
        raise ValueError(f"labels go up to {labels.max()}; there are {num_components} components")
    is_marked = fits_mark(num_components)
    kind = label_type(num_components)
    packed = labels.astype(kind)
    packed[np.asarray(tables.outlier_indices)] = num_components if is_marked else 0
    arrays = {
        "labels": packed,
        "components": np.asarray(tables.components, np.float32),
        "outliers": np.asarray(tables.outliers, np.float32),
        "ellipses": {
            "indices": np.asarray(tables.ellipse_indices, np.uint32),
            "components": np.asarray(tables.ellipse_components).astype(kind),
            "blends": np.asarray(tables.ellipse_weights, np.float32)[:, :-1],
        },
        "fixed": np.concatenate([leaf.ravel() for leaf in fixed.values()] or [np.zeros(0, np.float32)]),
    }
    if not is_marked:
        arrays["indices"] = np.asarray(tables.outlier_indices, np.uint32)
    shapes = [[name, list(leaf.shape)] for name, leaf in fixed.items()]
    save_tree(path, arrays, {"kind": KIND, "fixed": shapes, "user": dict(metadata or {})})


def load_shared(path: str | Path) -> tuple[SharedTables, dict[str, Any]]:
    """The tables and the metadata that `save_shared` wrote; `ArtefactError` if anything is wrong."""
    path = Path(path)
    arrays, stored = load_tree(path)
    if not isinstance(stored, dict) or stored.get("kind") != KIND:
        raise problem(
            path,
            expected=f"a file of {KIND}",
            found="another tree of symbnn",
            advice="read it with `io.load_tree`, or give the file that the last training stage wrote",
        )
    try:
        return _tables(arrays, stored["fixed"]), dict(stored["user"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise problem(
            path,
            expected="the tables of shared weights",
            found=f"{type(error).__name__}: {error}",
            advice="delete it and run the stage that made it again",
        ) from error


def _tables(arrays: Mapping[str, Any], shapes: list[Any]) -> SharedTables:
    num_components = len(arrays["components"])
    labels = arrays["labels"]
    outlier_indices = arrays.get("indices", np.flatnonzero(labels == num_components))
    if "indices" not in arrays:
        labels = np.where(labels == num_components, labels.dtype.type(0), labels)
    ellipses = arrays["ellipses"]
    blends = ellipses["blends"]
    last = 1 - blends.sum(axis=1, keepdims=True, dtype=np.float32)
    return SharedTables(
        components=arrays["components"],
        labels=labels,
        outlier_indices=outlier_indices.astype(np.uint32),
        outliers=arrays["outliers"],
        ellipse_indices=ellipses["indices"],
        ellipse_components=ellipses["components"],
        ellipse_weights=np.concatenate([blends, last], axis=1),
        fixed=_nested(arrays["fixed"], shapes),
    )


def label_type(num_components: int) -> Any:
    """The smallest unsigned type that numbers so many components."""
    return next(t for t in (np.uint8, np.uint16, np.uint32) if num_components <= np.iinfo(t).max + 1)


def fits_mark(num_components: int) -> bool:
    """Whether that type has a number left over to mark outliers."""
    return num_components <= np.iinfo(label_type(num_components)).max


def _nested(flat: np.ndarray, shapes: list[Any]) -> dict[str, Any]:
    """Nested dicts of the leaves that were joined."""
    result: dict[str, Any] = {}
    begin = 0
    for name, shape in shapes:
        *path, last = name.split("/")
        node = result
        for part in path:
            node = node.setdefault(part, {})
        node[last] = flat[begin : begin + math.prod(shape)].reshape(shape)
        begin += math.prod(shape)
    return result
