"""Shared weights in a file that is really small: a label per weight, a few tables, and what is not shared.

| array        | type                       | what                                                      |
|--------------|----------------------------|-----------------------------------------------------------|
| `labels`     | coded bytes                | component of every weight; K: an outlier, K + 1: a blend  |
| `components` | float32 (K, 5)             | mean, standard deviation, Cholesky factor                 |
| `outliers`   | float32 (o, 2)             | mean and standard deviation, in the order of the weights  |
| `ellipses`   | labels (e, c)              | components of a blend, in the order of the weights        |
| `blends`     | float32 (e, c - 1)         | their shares; the last is what is missing to one          |
| `fixed`      | float32                    | the deterministic leaves, joined                          |

Labels are most of the file. Components in the middle of the plane have many members and those at its edge
few, so a Huffman code (that of deflate, for every 32,768 weights anew, as layers differ) takes fewer bits.

It is a tree file (`io.load_tree` opens it): atomic, with checksums.
"""

import zlib
from collections.abc import Mapping
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
    arrays = {
        "labels": coded(labels),
        "components": np.concatenate([shared.means, shared.factors], axis=1, dtype=np.float32),
        "outliers": np.stack([shared.outlier_means, shared.outlier_stds], axis=1, dtype=np.float32),
        "ellipses": {
            "components": np.asarray(shared.ellipse_components).astype(kind),
            "blends": np.asarray(shared.ellipse_weights, np.float32)[:, :-1],
        },
        "fixed": np.concatenate([np.zeros(0, np.float32), *(leaf.ravel() for leaf in fixed.values())]),
    }
    about = {
        "layout": list(zip(shared.layout.names, shared.layout.shapes, strict=True)),
        "modes": {name: getattr(shared, name) for name in MODES},
        "user": dict(metadata or {}),
    }
    shapes = [(name, leaf.shape) for name, leaf in fixed.items()]
    save_tree(path, arrays, {"kind": KIND, "fixed": shapes, "user": about})


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
        shared = _shared(arrays, stored["fixed"], stored["user"])
        metadata = dict(stored["user"]["user"])
    if model is not None:
        _check_model(path, shared, model)
    return shared, metadata


def _shared(arrays: Mapping[str, Any], shapes: list[Any], about: Mapping[str, Any]) -> SharedWeights:
    layout = Layout(*zip(*((name, tuple(shape)) for name, shape in about["layout"]), strict=True))
    num_components = len(arrays["components"])
    labels = decoded(arrays["labels"], layout.num_weights, mark_type(num_components))
    outliers, blended = (np.flatnonzero(labels == num_components + mark) for mark in (0, 1))
    labels[outliers] = 0
    labels[blended] = arrays["ellipses"]["components"][:, 0]
    arrays = jax.tree.map(jnp.asarray, arrays)
    components, ellipses = arrays["components"], arrays["ellipses"]
    fixed = dict(
        zip((name for name, _ in shapes), tree.cut(arrays["fixed"], [s for _, s in shapes]), strict=True)
    )
    return SharedWeights(
        means=components[:, :2],
        factors=components[:, 2:],
        labels=jnp.asarray(labels.astype(label_type(num_components))),
        outlier_indices=jnp.asarray(outliers.astype(np.uint32)),
        outlier_means=arrays["outliers"][:, 0],
        outlier_stds=arrays["outliers"][:, 1],
        ellipse_indices=jnp.asarray(blended.astype(np.uint32)),
        ellipse_components=ellipses["components"],
        ellipse_weights=jnp.asarray(complete(np.asarray(ellipses["blends"]))),
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


def coded(labels: np.ndarray) -> np.ndarray:
    """Labels as the bytes of a Huffman code: first all low bytes, then all high ones."""
    planes = labels.astype(labels.dtype.newbyteorder("<")).view(np.uint8).reshape(len(labels), -1).T
    coder = zlib.compressobj(level=9, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return np.frombuffer(coder.compress(planes.tobytes()) + coder.flush(), np.uint8)


def decoded(stored: np.ndarray, count: int, kind: Any) -> np.ndarray:
    """The inverse of `coded`; `ValueError` unless it gives `count` labels."""
    size = count * np.dtype(kind).itemsize
    try:
        # No more than is expected, whatever the file says.
        found = zlib.decompressobj().decompress(np.asarray(stored, np.uint8).tobytes(), size + 1)
    except zlib.error as error:
        raise ValueError(f"the labels cannot be decoded: {error}") from error
    if len(found) != size:
        raise ValueError(f"the labels have {len(found)} bytes; {count} weights need {size}")
    planes = np.frombuffer(found, np.uint8).reshape(-1, count)
    return np.ascontiguousarray(planes.T).view(np.dtype(kind).newbyteorder("<"))[:, 0].astype(kind)


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
