"""Weights from and to PyTorch state dicts, without PyTorch: names mapped, layouts converted.

| leaf | PyTorch | ours |
|---|---|---|
| dense kernel | (out, in) | (in, out) |
| convolution kernel | (out, in, height, width) | (height, width, in, out) |
| dense kernel behind a flattened image | (out, channels·height·width) | (height·width·channels, out) |
| attention query, key, value | rows of `in_proj_weight` | (in, heads, channels) |
| BatchNorm | weight, bias, running_mean, running_var | scale, bias, batch_stats mean, var |
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from symbnn import tree
from symbnn.io.files import ArtefactError, explaining
from symbnn.io.torch_layers import LayerMap, torch_layers
from symbnn.io.trees import write_arrays
from symbnn.models import Model
from symbnn.types import Params

StateDict = Mapping[str, Any]
LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
    "threshold": "tau",
}
SPECIAL = {"token": "class_token", "positions": "encoder.pos_embedding"}
PACKED = ("query", "key", "value")
# Counts of training steps; no function of the network reads them.
IGNORED = "num_batches_tracked"


class _Entry(NamedTuple):
    """Where a leaf lies in a state dict: `part` of three in a packed projection, `image` if flattened."""

    key: str
    part: int | None
    image: tuple[int, int, int] | None


def from_torch(
    model: Model,
    state_dict: StateDict,
    layers: str | LayerMap,
    *,
    flattened: Mapping[str, tuple[int, int, int]] | None = None,
) -> Params:
    """Parameters of `model` from a PyTorch state dict (tensors or arrays, float16 too).

    `layers` is the name of one of `symbnn.models`, or a map from our layers to PyTorch's,
    `{"hidden": "fc1", "out": "fc2"}`. `flattened` gives, by dense layer, the (height, width, channels) of an
    image that was flattened before it; LeNet's is known.
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    entries = _entries(model, shapes, layers, flattened, state_dict)
    _check_keys(state_dict, {entry.key for entry in entries.values()})

    def convert(name: str, leaf: Any) -> jax.Array:
        return jnp.asarray(_import(name, entries[name], state_dict, leaf.shape), leaf.dtype)

    return tree.map_named(convert, shapes)


def to_torch(
    model: Model,
    params: Params,
    layers: str | LayerMap,
    *,
    flattened: Mapping[str, tuple[int, int, int]] | None = None,
) -> dict[str, np.ndarray]:
    """The state dict of `params` that `from_torch`, with the same arguments, reads back: NumPy arrays."""
    entries = _entries(model, params, layers, flattened, {})
    packed: dict[str, dict[int, np.ndarray]] = {}
    for name, leaf in tree.named_leaves(params).items():
        entry = entries[name]
        packed.setdefault(entry.key, {})[entry.part or 0] = _export(name, entry, np.asarray(leaf))
    return {key: np.concatenate([parts[i] for i in sorted(parts)]) for key, parts in packed.items()}


def load_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays of any safetensors file; for files that symbnn did not write, so without its checksums."""
    path = Path(path)
    with explaining(path, "a whole safetensors file", "download it again"):
        return load_file(path)


def save_safetensors(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays for other programs, atomically."""
    write_arrays(Path(path), {name: np.ascontiguousarray(array) for name, array in arrays.items()})


def _entries(
    model: Model,
    params: Params,
    layers: str | LayerMap,
    flattened: Mapping[str, tuple[int, int, int]] | None,
    state_dict: StateDict,
) -> dict[str, _Entry]:
    leaves = tree.named_leaves(params)
    own = {name: _layer(name) for name in leaves}
    images = dict(flattened or {})
    if layers == "lenet":
        kernel = leaves["conv2/kernel"]
        assert model.input_shape is not None
        height, width = ((side // 2 - 4) // 2 for side in model.input_shape[:2])
        images.setdefault("hidden0", (height, width, kernel.shape[-1]))
    names = torch_layers(layers, set(own.values()), state_dict) if isinstance(layers, str) else layers
    missing = sorted(set(own.values()) - names.keys() - {""})
    if missing:
        raise ValueError(f"layers {missing} of the model have no PyTorch name; the map knows {sorted(names)}")
    return {name: _entry(name, layer, names.get(layer, ""), images.get(layer)) for name, layer in own.items()}


def _layer(name: str) -> str:
    """`layer1_0/norm1` for `batch_stats/layer1_0/norm1/mean`."""
    parts = name.split("/")
    return "/".join(parts[1:-1] if parts[0] in ("params", "batch_stats") else parts[:-1])


def _entry(name: str, layer: str, prefix: str, image: tuple[int, int, int] | None) -> _Entry:
    leaf = name.rsplit("/", 1)[-1]
    if leaf in SPECIAL:
        return _Entry(SPECIAL[leaf], None, None)
    last = layer.rsplit("/", 1)[-1]
    if last in PACKED and layer != last:
        return _Entry(f"{prefix}.in_proj_{LEAVES[leaf]}", PACKED.index(last), None)
    return _Entry(f"{prefix}.{LEAVES[leaf]}", None, image if leaf == "kernel" else None)


def _check_keys(state_dict: StateDict, wanted: set[str]) -> None:
    known = {key for key in state_dict if not key.endswith(IGNORED)}
    if known != wanted:
        raise ArtefactError(
            f"state dict: missing {sorted(wanted - known)[:5]}, unknown {sorted(known - wanted)[:5]}; "
            "is it of this model, with these settings? Give a map of layers if only the names differ"
        )


def _import(name: str, entry: _Entry, state_dict: StateDict, shape: tuple[int, ...]) -> np.ndarray:
    tensor = _to_numpy(state_dict[entry.key])
    if entry.part is not None:
        tensor = np.split(tensor, 3)[entry.part]
    if tensor.size != np.prod(shape, dtype=int) or (tensor.ndim == 4) != (len(shape) == 4):
        raise ArtefactError(f"state dict: {entry.key!r} has shape {tensor.shape}; {name!r} needs {shape}")
    if entry.image is not None:
        height, width, channels = entry.image
        tensor = tensor.reshape(-1, channels, height, width)
    if tensor.ndim == 4:
        tensor = tensor.transpose(2, 3, 1, 0)
    elif tensor.ndim == 2 and name.endswith("kernel"):
        tensor = tensor.T
    return tensor.reshape(shape)


def _export(name: str, entry: _Entry, leaf: np.ndarray) -> np.ndarray:
    if entry.image is not None:
        return leaf.reshape(*entry.image, -1).transpose(3, 2, 0, 1).reshape(leaf.shape[1], -1)
    if leaf.ndim == 4:
        return leaf.transpose(3, 2, 0, 1)
    if not name.endswith("kernel"):
        return leaf if name in SPECIAL else leaf.reshape(-1)
    # The input of an attention projection is its first axis, that of the output projection the first two.
    outputs = leaf.shape[-1] if name.endswith("out/kernel") or leaf.ndim == 2 else leaf[0].size
    return leaf.reshape(-1, outputs).T


def _to_numpy(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().float().numpy()
    return np.asarray(tensor)
