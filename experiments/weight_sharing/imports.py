"""Weights that a user brings instead of training them: a tree of ours, or a PyTorch state dict."""

from pathlib import Path

import jax
import numpy as np

from symbnn import io, tree
from symbnn.models import Model
from symbnn.tree import check_same_shapes
from symbnn.types import Params

TORCH_SUFFIXES = (".pt", ".pth", ".th", ".bin")


def import_weights(model: Model, name: str, path: str) -> Params:
    """Weights from a file: a tree of ours, or a PyTorch state dict as safetensors or as PyTorch saves it."""
    params = _read_weights(model, name, path)
    check_same_shapes("pretraining.weights", params, jax.eval_shape(model.init, jax.random.key(0)))
    for leaf_name, leaf in tree.named_leaves(params).items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"pretraining.weights: leaf {leaf_name!r} of {path} has non-finite numbers")
    return params


def _read_weights(model: Model, name: str, path: str) -> Params:
    try:
        if Path(path).suffix in TORCH_SUFFIXES:
            return io.from_torch(model, path, name)
        found, _ = io.load_tree(path)
    except io.ForeignFileError:
        return io.from_torch(model, path, name)
    except io.ArtefactError as error:
        raise ValueError(f"pretraining.weights: {error}") from error
    # What a `pretrain` stage kept, or a bare network.
    return found["params"] if isinstance(found, dict) and set(found) == {"params", "losses"} else found
