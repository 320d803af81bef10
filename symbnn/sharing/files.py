"""Shared weights in a file that is really small: a label per weight, a few tables, and what is not shared.

| table           | of                | what                                                            |
|-----------------|-------------------|-----------------------------------------------------------------|
| `components`    | float32 (5, K)    | mean, standard deviation, Cholesky factor                       |
| `labels`        | smallest unsigned | component of every weight; K: an outlier, K + 1: a blend        |
| `outlier_means` | float32 (o,)      | in the order of the weights, as all that follow                 |
| `outlier_stds`  | float32 (o,)      |                                                                 |
| `blended`       | labels (c, e)     | components of a blend                                           |
| `shares`        | float32 (c-1, e)  | of a blend; the last is what is missing to one                  |
| `fixed`         | float32           | the deterministic leaves, joined                                |

All are coded without loss, by the Huffman code of deflate, each byte of a number apart, and lie one after the
other in `tables`; `about` (JSON, packed too) has their lengths, the leaves, and how weights are drawn. Labels
are most of the file: components in the middle of the plane have many members and those at its edge few, and
every leaf has a code of its own. Of floats the first bytes, sign and exponent, have few values.

It is a tree file (`io.load_tree` opens it): atomic, with checksums.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.io import load_tree, save_tree
from symbnn.io.files import differing, explaining, problem
from symbnn.sharing.ellipses import complete
from symbnn.sharing.layout import Layout
from symbnn.sharing.posterior import SharedWeights

KIND = "shared weights"
MODES = ("sampling", "noise", "blending")
# Of names and shapes; those of a network of a thousand layers take a tenth of it.
LONGEST_TEXT = 2**20


def save(path: str | Path, shared: SharedWeights, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a posterior in place of `path`."""
    num_components = shared.num_components
    fixed = {name: np.asarray(leaf) for name, leaf in tree.named_leaves(shared.fixed).items() if leaf.size}
    for name, leaf in fixed.items():
        if leaf.dtype != np.float32:
            raise ValueError(
                f"leaf {name!r} has dtype {leaf.dtype}; deterministic leaves are kept as float32"
            )
    for name in ("outlier_indices", "ellipse_indices"):
        if np.any(np.diff(np.asarray(getattr(shared, name)).astype(np.int64)) <= 0):
            raise ValueError(f"{name} do not rise; a file keeps weights in their order: sort them")
    if shared.labels.size and int(shared.labels.max()) >= num_components:
        raise ValueError(f"labels go up to {shared.labels.max()}; there are {num_components} components")
    kind = label_type(num_components)
    labels = np.asarray(shared.labels).astype(mark_type(num_components))
    labels[np.asarray(shared.outlier_indices)] = num_components
    labels[np.asarray(shared.ellipse_indices)] = num_components + 1
    ends = np.cumsum(shared.layout.sizes)[:-1]
    tables = {
        "components": coded(
            np.concatenate([shared.means, shared.factors], axis=1, dtype=np.float32).T.ravel()
        ),
        "labels": coded(*np.split(labels, ends)),
        "outlier_means": coded(_single(shared.outlier_means)),
        "outlier_stds": coded(_single(shared.outlier_stds)),
        "blended": coded(np.asarray(shared.ellipse_components).astype(kind).T.ravel()),
        "shares": coded(_single(shared.ellipse_weights)[:, :-1].T.ravel()),
        "fixed": coded(np.concatenate([np.zeros(0, np.float32), *(leaf.ravel() for leaf in fixed.values())])),
    }
    about = {
        "layout": list(zip(shared.layout.names, shared.layout.shapes, strict=True)),
        "fixed": [(name, leaf.shape) for name, leaf in fixed.items()],
        "modes": {name: getattr(shared, name) for name in MODES},
        "components": num_components,
        "kept": int(shared.ellipse_components.shape[1]),
        "lengths": {name: len(table) for name, table in tables.items()},
    }
    packed = zlib.compress(json.dumps(about).encode(), 9)
    arrays = {"about": np.frombuffer(packed, np.uint8), "tables": np.concatenate(list(tables.values()))}
    save_tree(path, arrays, {"kind": KIND, "user": dict(metadata or {})})


def load(path: str | Path, *, model: Any = None) -> tuple[SharedWeights, dict[str, Any]]:
    """The posterior and the metadata that `save` wrote; with `model`, an error if it is another network's."""
    path = Path(path)
    arrays, stored = load_tree(path)
    if stored.get("kind") != KIND:
        raise problem(
            path,
            expected=f"a file of {KIND}",
            found="another tree of symbnn",
            advice="read it with `io.load_tree`, or give the file that the last training stage wrote",
        )
    advice = "delete it and run the stage that made it again"
    with explaining(path, "the tables of shared weights", advice):
        shared = _shared(arrays["tables"], json.loads(_inflated(arrays["about"], LONGEST_TEXT)))
        metadata = dict(stored["user"])
    if model is not None:
        _check_model(path, shared, model)
    return shared, metadata


def _shared(joined: np.ndarray, about: Mapping[str, Any]) -> SharedWeights:
    layout = Layout(*zip(*((name, tuple(shape)) for name, shape in about["layout"]), strict=True))
    ends = np.cumsum(list(about["lengths"].values()))
    tables = dict(zip(about["lengths"], np.split(joined, ends[:-1]), strict=True))
    num, kept = about["components"], about["kept"]
    kind = label_type(num)

    def floats(name: str, count: int) -> np.ndarray:
        return decoded(tables[name], [count], np.float32)

    labels = decoded(tables["labels"], layout.sizes, mark_type(num))
    outliers, blended = (np.flatnonzero(labels == num + mark) for mark in (0, 1))
    components = floats("components", 5 * num).reshape(5, num).T
    choices = decoded(tables["blended"], [kept * len(blended)], kind).reshape(kept, len(blended)).T
    first = floats("shares", (kept - 1) * len(blended)).reshape(kept - 1, len(blended)).T
    labels[outliers] = 0
    labels[blended] = choices[:, 0]
    leaves = {name: tuple(shape) for name, shape in about["fixed"]}
    joined_leaves = jnp.asarray(floats("fixed", sum(map(math.prod, leaves.values()))))
    fixed = dict(zip(leaves, tree.cut(joined_leaves, list(leaves.values())), strict=True))
    return SharedWeights(
        means=jnp.asarray(components[:, :2]),
        factors=jnp.asarray(components[:, 2:]),
        labels=jnp.asarray(labels.astype(kind)),
        outlier_indices=jnp.asarray(outliers.astype(np.uint32)),
        outlier_means=jnp.asarray(floats("outlier_means", len(outliers))),
        outlier_stds=jnp.asarray(floats("outlier_stds", len(outliers))),
        ellipse_indices=jnp.asarray(blended.astype(np.uint32)),
        ellipse_components=jnp.asarray(choices),
        ellipse_weights=jnp.asarray(complete(first)),
        fixed=tree.nested(fixed | dict.fromkeys(layout.names, jnp.zeros((0,), jnp.float32))),
        layout=layout,
        **about["modes"],
    )


def label_type(num_components: int) -> Any:
    """The smallest unsigned type that numbers so many components."""
    return next(t for t in (np.uint8, np.uint16, np.uint32) if num_components <= np.iinfo(t).max + 1)


def mark_type(num_components: int) -> Any:
    """The smallest unsigned type that also has a number for outliers and one for ellipse weights."""
    return label_type(num_components + 2)


def coded(*parts: np.ndarray) -> np.ndarray:
    """Numbers (n,) as bytes of Huffman codes: of every part all the lowest bytes, then all the next, ..."""
    coder = zlib.compressobj(level=9, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = []
    for part in parts:
        for plane in part.astype(part.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, part.itemsize).T:
            # Flushed after each, so that each has a code of its own.
            packed += [coder.compress(plane.tobytes()), coder.flush(zlib.Z_FULL_FLUSH)]
    return np.frombuffer(b"".join(packed) + coder.flush(), np.uint8)


def decoded(stored: np.ndarray, counts: Sequence[int], kind: Any) -> np.ndarray:
    """The numbers of all parts that `coded` packed; `ValueError` unless they are as many as `counts`."""
    width = np.dtype(kind).itemsize
    size = width * sum(counts)
    found = _inflated(stored, size + 1)
    if len(found) != size:
        raise ValueError(f"coded numbers have {len(found)} bytes or more; {sum(counts)} of them need {size}")
    parts = np.split(np.frombuffer(found, np.uint8), width * np.cumsum(counts)[:-1])
    ordered = [
        np.ascontiguousarray(part.reshape(width, count).T).reshape(-1)
        for part, count in zip(parts, counts, strict=True)
    ]
    return np.concatenate(ordered).view(np.dtype(kind).newbyteorder("<")).astype(kind)


def _inflated(stored: np.ndarray, most: int) -> bytes:
    """What deflate packed; no more bytes than are expected, whatever the file says."""
    try:
        return zlib.decompressobj().decompress(np.asarray(stored, np.uint8).tobytes(), most)
    except zlib.error as error:
        raise ValueError(f"coded numbers cannot be read: {error}") from error


def _single(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _check_model(path: Path, shared: SharedWeights, model: Any) -> None:
    """`ArtefactError` naming the first leaf in which the file and the model differ."""
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    wanted = {name: leaf.shape for name, leaf in tree.named_leaves(shapes).items()}
    found = {name: leaf.shape for name, leaf in tree.named_leaves(shared.fixed).items()}
    found |= dict(zip(shared.layout.names, shared.layout.shapes, strict=True))
    for name in differing(found, wanted):
        raise problem(
            path,
            expected=f"leaf {name!r} of shape {wanted.get(name)}",
            found=f"{found.get(name)}: the weights of another model",
            advice="load it with the model it was trained for, or run the training stage again",
        )
