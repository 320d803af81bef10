"""Weights from and to PyTorch, without PyTorch: names by `matching`, layouts by `layouts`."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import frameworks, tree
from symbnn.io.files import ArtefactError
from symbnn.io.pytorch.families import LayerMap
from symbnn.io.pytorch.files import is_safetensors, load_torch, select_state_dict
from symbnn.io.pytorch.layouts import Image, Layout, find_layouts
from symbnn.io.pytorch.matching import COUNTER, Entry, is_counter, match, named, own_names
from symbnn.io.pytorch.write import save_torch
from symbnn.models import Model
from symbnn.types import Params

StateDict = Mapping[str, Any]
# The order in which PyTorch's layers list what they keep.
ORDER = ("weight", "bias", "running_mean", "running_var", COUNTER)


def from_torch(
    model: Model,
    source: StateDict | str | Path | Any,
    layers: str | LayerMap | None = None,
    *,
    flattened: Mapping[str, Image] | None = None,
    example: Any = None,
) -> Params:
    """Parameters of `model` from PyTorch's weights, in the layout that the program of the model asks for.

    Args:
        model: The network that gets the weights.
        source: A state dict (tensors or arrays, half precision too), a file of one (`load_torch`), or a
            `torch.nn.Module`. Checkpoints and wrappers (`{"state_dict": ...}`, `module.`) are unwrapped.
        layers: The name of one of `symbnn.models`, or a map from our layers to PyTorch's, `{"hidden": "fc1",
            "out": "fc2"}`; single leaves may be mapped too, `{"w1": "fc1.weight"}`. By default found by names
            and shapes, and refused where they leave a choice.
        flattened: By dense layer, the (height, width, channels) of an image that was flattened before it, or
            None if PyTorch flattens in the same order. Needed only where the program does not tell.
        example: A batch of inputs, or its shape and dtype, if the model has no `input_shape` or takes no
            floats.
    """
    frameworks.check_model(model)
    state = _state_dict(source)
    layouts = find_layouts(model, example, flattened)
    entries, prefix = match(layouts, state.shapes, layers, is_ordered=state.is_ordered)

    def convert(name: str, leaf: Any) -> jax.Array:
        entry = entries[name]
        tensor = _to_numpy(entry.key, state.tensors[prefix + entry.key])
        if entry.part is not None:
            tensor = np.split(tensor, 3)[entry.part]
        return jnp.asarray(_cast(entry.key, layouts[name].from_torch(tensor), leaf.dtype))

    return tree.map_named(convert, jax.eval_shape(model.init, jax.random.key(0)))


def to_torch(
    model: Model,
    params: Params,
    layers: str | LayerMap | None = None,
    *,
    like: StateDict | str | Path | Any = None,
    path: str | Path | None = None,
    flattened: Mapping[str, Image] | None = None,
    example: Any = None,
) -> dict[str, np.ndarray]:
    """The state dict of `params`, as NumPy arrays: every key, shape and dtype that PyTorch's layers expect.

    `torch_model.load_state_dict({key: torch.from_numpy(array) for key, array in state.items()})`, or
    `torch.load(path)`, takes it.

    Args:
        model: The network.
        params: Its weights.
        layers: As in `from_torch`. By default PyTorch's layers are named as ours.
        like: A state dict, file or module of PyTorch's network: names, order, dtypes and counts of training
            steps are then its own, and `layers` is needed only where `from_torch` needs it.
        path: A file to write as well: `.pt`, `.pth`, `.th`, `.bin` or `.safetensors`.
        flattened: As in `from_torch`.
        example: As in `from_torch`.
    """
    frameworks.check_model(model)
    layouts = find_layouts(model, example, flattened)
    tree.check_same_shapes("params", params, jax.eval_shape(model.init, jax.random.key(0)))
    leaves = {name: np.asarray(leaf) for name, leaf in tree.named_leaves(params).items()}
    if like is not None:
        exported = _as_like(layouts, leaves, like, layers)
    else:
        entries = own_names(layouts) if layers is None else named(layouts, layers)
        exported = _with_counters(_export(layouts, leaves, entries))
    if path is not None:
        save_torch(path, exported)
    return exported


class _Source(NamedTuple):
    tensors: StateDict
    is_ordered: bool
    """Whether in the order in which PyTorch's network defines them; safetensors forget it."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {key: tuple(np.shape(tensor)) for key, tensor in self.tensors.items()}


def _state_dict(source: Any) -> _Source:
    if isinstance(source, str | Path):
        return _Source(load_torch(source), not is_safetensors(source))
    if callable(getattr(source, "state_dict", None)):
        source = source.state_dict()
    if not isinstance(source, Mapping):
        raise ValueError(
            f"expected a state dict, the path of a file, or a PyTorch module; got a {type(source).__name__}"
        )
    # PyTorch's own are ordered dicts; in a plain one the names may come in any order.
    found = select_state_dict(source, "state dict")
    return _Source(found, isinstance(found, OrderedDict))


def _export(
    layouts: Mapping[str, Layout], leaves: Mapping[str, np.ndarray], entries: Mapping[str, Entry]
) -> dict[str, np.ndarray]:
    """Tensors by key, layer by layer in the order of the program, as PyTorch lists them within a layer."""
    packed: dict[str, dict[int, np.ndarray]] = {}
    for name, layout in layouts.items():
        entry, tensor = entries[name], layout.to_torch(leaves[name])
        # A leaf that belongs to no layer keeps its shape: axes of length 1 have no layout.
        is_alone = entry.key.rpartition(".")[2] not in (*ORDER, "tau") and entry.part is None
        packed.setdefault(entry.key, {})[entry.part or 0] = (
            tensor.reshape(layout.leaf_shape) if is_alone and not layout.is_turned else tensor
        )
    whole = {
        key: np.concatenate([parts[i] for i in sorted(parts)]) if len(parts) > 1 else parts[0]
        for key, parts in packed.items()
    }
    prefixes = list(dict.fromkeys(key.rpartition(".")[0] for key in whole))
    return {
        key: whole[key]
        for prefix in prefixes
        for key in sorted((key for key in whole if key.rpartition(".")[0] == prefix), key=_rank)
    }


def _rank(key: str) -> int:
    last = key.rpartition(".")[2]
    return ORDER.index(last) if last in ORDER else 0


def _with_counters(exported: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With the counts of training steps that PyTorch keeps beside running statistics; not known here."""
    found = {}
    for key, tensor in exported.items():
        found[key] = tensor
        if key.endswith("running_var"):
            found[f"{key.removesuffix('running_var')}{COUNTER}"] = np.zeros((), np.int64)
    return found


def _as_like(
    layouts: Mapping[str, Layout],
    leaves: Mapping[str, np.ndarray],
    like: Any,
    layers: str | LayerMap | None,
) -> dict[str, np.ndarray]:
    """The names, order, shapes and dtypes of another state dict."""
    state = _state_dict(like)
    entries, prefix = match(layouts, state.shapes, layers, is_ordered=state.is_ordered)
    exported = _export(layouts, leaves, entries)
    found = {}
    for key, tensor in state.tensors.items():
        old = _to_numpy(key, tensor)
        new = old if is_counter(key) else exported[key.removeprefix(prefix)]
        found[key] = _cast(key, new.reshape(old.shape), old.dtype)
    return found


def _to_numpy(key: str, tensor: Any) -> np.ndarray:
    try:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach().cpu()
            # NumPy has no type for the short floats.
            is_short = tensor.is_floating_point() and (
                tensor.element_size() == 1 or "bf" in str(tensor.dtype)
            )
            tensor = (tensor.float() if is_short else tensor).numpy()
        return np.asarray(tensor)
    except (TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ArtefactError(f"state dict: {key!r} is no plain tensor ({reason})") from error


def _cast(key: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """The array in another float type; `ArtefactError` where that is no change of precision."""
    if array.dtype == dtype:
        return array
    is_float = all(jnp.issubdtype(each, jnp.floating) for each in (array.dtype, dtype))
    if not is_float:
        raise ArtefactError(f"state dict: {key!r} has dtype {array.dtype}; the model has {np.dtype(dtype)}")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if np.isfinite(array).all() and not np.isfinite(cast).all():
        raise ArtefactError(f"state dict: {key!r} has numbers that are too large for {np.dtype(dtype)}")
    return cast
