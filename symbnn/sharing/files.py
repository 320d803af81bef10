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
    if shared.labels.size and int(shared.labels.max()) >= num_components:
        raise ValueError(f"labels go up to {shared.labels.max()}; there are {num_components} components")
    kind, is_marked = label_type(num_components), fits_mark(num_components)
    outliers = np.asarray(shared.outlier_indices, np.uint32)
    labels = np.asarray(shared.labels).astype(kind)
    labels[outliers] = num_components if is_marked else 0
    arrays = {
        "labels": labels,
        "components": np.concatenate([shared.means, shared.factors], axis=1, dtype=np.float32),
        "outliers": np.stack([shared.outlier_means, shared.outlier_stds], axis=1, dtype=np.float32),
        "ellipses": {
            "indices": np.asarray(shared.ellipse_indices, np.uint32),
            "components": np.asarray(shared.ellipse_components).astype(kind),
            "blends": np.asarray(shared.ellipse_weights, np.float32)[:, :-1],
        },
        "fixed": np.concatenate([np.zeros(0, np.float32), *(leaf.ravel() for leaf in fixed.values())]),
    }
    if not is_marked:
        arrays["indices"] = outliers
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
    arrays = jax.tree.map(jnp.asarray, arrays)
    components, labels, ellipses = arrays["components"], arrays["labels"], arrays["ellipses"]
    is_marked = labels == len(components)
    layout = Layout(*zip(*((name, tuple(shape)) for name, shape in about["layout"]), strict=True))
    fixed = dict(
        zip((name for name, _ in shapes), tree.cut(arrays["fixed"], [s for _, s in shapes]), strict=True)
    )
    return SharedWeights(
        means=components[:, :2],
        factors=components[:, 2:],
        labels=jnp.where(is_marked, jnp.zeros_like(labels), labels),
        outlier_indices=arrays.get("indices", jnp.flatnonzero(is_marked).astype(jnp.uint32)),
        outlier_means=arrays["outliers"][:, 0],
        outlier_stds=arrays["outliers"][:, 1],
        ellipse_indices=ellipses["indices"],
        ellipse_components=ellipses["components"],
        ellipse_weights=jnp.asarray(complete(np.asarray(ellipses["blends"]))),
        fixed=tree.nested(fixed | dict.fromkeys(layout.names, jnp.zeros((0,), jnp.float32))),
        layout=layout,
        **about["modes"],
    )


def label_type(num_components: int) -> Any:
    """The smallest unsigned type that numbers so many components."""
    return next(t for t in (np.uint8, np.uint16, np.uint32) if num_components <= np.iinfo(t).max + 1)


def fits_mark(num_components: int) -> bool:
    """Whether that type has a number left over to mark outliers."""
    return num_components <= np.iinfo(label_type(num_components)).max


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
