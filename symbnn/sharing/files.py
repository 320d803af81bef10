"""Shared weights on disk (`symbnn.io.shared` is the format), bound to the network they belong to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.io import ArtefactError, SharedTables, load_shared, save_shared
from symbnn.io.files import problem
from symbnn.sharing.layout import Layout
from symbnn.sharing.posterior import SharedWeights

LAYOUT = "layout"
MODES = ("sampling", "noise", "blending")


def save(path: str | Path, shared: SharedWeights, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a posterior in place of `path`."""
    tables = SharedTables(
        components=np.concatenate([np.asarray(shared.means), np.asarray(shared.factors)], axis=1),
        labels=np.asarray(shared.labels),
        outlier_indices=np.asarray(shared.outlier_indices),
        outliers=np.stack([np.asarray(shared.outlier_means), np.asarray(shared.outlier_stds)], axis=1),
        ellipse_indices=np.asarray(shared.ellipse_indices),
        ellipse_components=np.asarray(shared.ellipse_components),
        ellipse_weights=np.asarray(shared.ellipse_weights),
        fixed=shared.fixed,
    )
    layout = [
        [name, list(shape)] for name, shape in zip(shared.layout.names, shared.layout.shapes, strict=True)
    ]
    modes = {name: getattr(shared, name) for name in MODES}
    save_shared(path, tables, {LAYOUT: layout, "modes": modes, "user": dict(metadata or {})})


def load(path: str | Path, *, model: Any = None) -> tuple[SharedWeights, dict[str, Any]]:
    """The posterior and the metadata that `save` wrote; with `model`, an error if it is another network's."""
    path = Path(path)
    tables, stored = load_shared(path)
    names = tuple(name for name, _ in stored[LAYOUT])
    shapes = tuple(tuple(shape) for _, shape in stored[LAYOUT])
    layout = Layout(names, shapes)
    shared = SharedWeights(
        means=jnp.asarray(tables.components[:, :2]),
        factors=jnp.asarray(tables.components[:, 2:]),
        labels=jnp.asarray(tables.labels),
        outlier_indices=jnp.asarray(tables.outlier_indices),
        outlier_means=jnp.asarray(tables.outliers[:, 0]),
        outlier_stds=jnp.asarray(tables.outliers[:, 1]),
        ellipse_indices=jnp.asarray(tables.ellipse_indices),
        ellipse_components=jnp.asarray(tables.ellipse_components),
        ellipse_weights=jnp.asarray(tables.ellipse_weights),
        fixed=jax.tree.map(jnp.asarray, _with_placeholders(tables.fixed, names)),
        layout=layout,
        **stored["modes"],
    )
    if model is not None:
        check_model(path, shared, model)
    return shared, stored["user"]


def check_model(path: Path, shared: SharedWeights, model: Any) -> None:
    """`ArtefactError` naming the first leaf in which the file and the model differ."""
    wanted = {
        name: tuple(leaf.shape)
        for name, leaf in tree.named_leaves(jax.eval_shape(model.init, jax.random.key(0))).items()
    }
    found = {name: tuple(leaf.shape) for name, leaf in tree.named_leaves(shared.fixed).items()}
    found |= dict(zip(shared.layout.names, shared.layout.shapes, strict=True))
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise problem(
                path,
                expected=f"leaf {name!r} of shape {wanted.get(name)}",
                found=f"{found.get(name)}: the weights of another model",
                advice="load it with the model it was trained for, or run the training stage again",
            )


def _with_placeholders(fixed: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    for name in names:
        *path, last = name.split("/")
        node = fixed
        for part in path:
            node = node.setdefault(part, {})
        node[last] = np.zeros((0,), np.float32)
    return fixed


__all__ = ["ArtefactError", "check_model", "load", "save"]
