"""Weights that a user brings instead of training them: a tree of ours, or a PyTorch state dict."""

from pathlib import Path

import jax
import numpy as np

from symbnn import io, tree
from symbnn.models import Model
from symbnn.tree import check_same_shapes
from symbnn.types import Params

TORCH_SUFFIXES = (".pt", ".pth", ".bin")


def import_weights(model: Model, name: str, path: str) -> Params:
    """Weights from a file: a tree of ours, or a PyTorch state dict as safetensors or as PyTorch saves it."""
    params = _read_weights(model, name, path)
    check_same_shapes("pretraining.weights", params, jax.eval_shape(model.init, jax.random.key(0)))
    for leaf_name, leaf in tree.named_leaves(params).items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"pretraining.weights: leaf {leaf_name!r} of {path} has non-finite numbers")
    return params


def _read_weights(model: Model, name: str, path: str) -> Params:
    if Path(path).suffix in TORCH_SUFFIXES:
        return io.from_torch(model, _torch_state_dict(path), name)
    try:
        found, _ = io.load_tree(path)
        # What a `pretrain` stage kept, or a bare network.
        return found["params"] if isinstance(found, dict) and set(found) == {"params", "losses"} else found
    except io.ForeignFileError:
        return io.from_torch(model, io.load_safetensors(path), name)


def _torch_state_dict(path: str) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"{path}: reading PyTorch's own files needs PyTorch; install it (pip install 'symbnn[torch]') or "
            "save the state dict as safetensors"
        ) from error
    try:
        # Tensors only: the file cannot run code.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch raises whatever its archive reader and its unpickler raise
        raise _no_state_dict(path, f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    # Training scripts keep the weights beside the state of their optimiser.
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise _no_state_dict(path, f"a {type(state).__name__} of something else")
    return {key: value.numpy() for key, value in state.items()}


def _no_state_dict(path: str, found: str) -> ValueError:
    return ValueError(
        f"pretraining.weights: {path}: expected a PyTorch state dict, names with tensors; found {found}; "
        "save `model.state_dict()` with torch.save, or as safetensors"
    )
