"""Networks that a command line names: a model by its reference, weights by their file."""

import argparse
import inspect
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from symbnn import inference, io, models, names, posteriors, tree
from symbnn.data.npz import read_arrays
from symbnn.io.posterior import KNOWN
from symbnn.models import Model
from symbnn.models.factory import from_factory
from symbnn.types import Params

SETTINGS = ("hidden", "width", "activation")
TREE, TORCH, ARRAYS = "symbnn", "torch", "npz"


class Weights(NamedTuple):
    """What a file holds for a model: one network, or several of a posterior."""

    networks: list[Params]
    kind: str
    """Who wrote it: `symbnn`, `torch` or `npz`."""
    words: str


def model_of(arguments: argparse.Namespace) -> Model:
    """The model that the command line names."""
    settings = {name: getattr(arguments, name) for name in SETTINGS if getattr(arguments, name) is not None}
    reference, shape, outputs = arguments.model, arguments.input_shape, arguments.outputs
    if ":" in reference:
        if settings:
            raise ValueError(f"--{next(iter(settings))} is for our own networks, not for {reference}")
        return from_factory(reference, shape, outputs)
    constructor = names.lookup(models.CONSTRUCTORS, reference, "model")
    if shape is None or outputs is None:
        raise ValueError(f"{reference} is made for inputs: give --input-shape and --outputs")
    known = [name for name in inspect.signature(constructor).parameters if name in SETTINGS]
    for name in settings:
        if name not in known:
            raise ValueError(f"{reference} has no setting --{name}; it has {', '.join(known) or 'none'}")
    return constructor(shape, outputs, **settings)


def layers_of(arguments: argparse.Namespace) -> Any:
    """How layers are found in PyTorch's weights: as told, by the name of our own model, or by matching."""
    if arguments.layers is not None:
        return arguments.layers
    return None if ":" in arguments.model else arguments.model


def read_weights(path: str, model: Model, layers: Any) -> Weights:
    """The weights in a file, in the form of `model`; `ValueError` if they are of another network."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{path}: expected a file of weights; found {'a folder' * file.is_dir() or 'nothing'}"
        )
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    found = _arrays(file, model, shapes, layers) or _ours(file)
    if found is None:
        found = Weights(
            [io.from_torch(model, io.load_safetensors(file), layers)], TORCH, "weights of PyTorch"
        )
    for network in found.networks:
        tree.check_same_shapes(f"{path} does not fit the model", network, shapes)
    return found


def _arrays(file: Path, model: Model, shapes: Any, layers: Any) -> Weights | None:
    """Of an .npz file, with our names for leaves or PyTorch's; None for another file."""
    if not zipfile.is_zipfile(file):
        return None
    with zipfile.ZipFile(file) as archive:
        if not any(name.endswith(".npy") for name in archive.namelist()):
            return None
    arrays = read_arrays(file)
    if set(arrays) == set(tree.named_leaves(shapes)):
        return Weights([_like(shapes, arrays)], ARRAYS, "arrays by our names")
    return Weights([io.from_torch(model, arrays, layers)], ARRAYS, "arrays by PyTorch's names")


def _ours(file: Path) -> Weights | None:
    """Of a file that symbnn wrote: a network, a posterior, or the stage of a study with one."""
    try:
        io.read_metadata(file)
    except io.ArtefactError:
        return None
    found, _ = io.load_tree(file, classes=(*KNOWN, inference.Fit))
    found = found.posterior if isinstance(found, inference.Fit) else found
    if isinstance(found, posteriors.Empirical):
        count = tree.num_samples(found.samples)
        return Weights([tree.take(found.samples, index) for index in range(count)], TREE, f"{count} networks")
    if isinstance(found, KNOWN):
        mean = getattr(found, "mean", None)
        if mean is None:
            raise ValueError(f"{file} is a {type(found).__name__}, which has no mean; give another file")
        return Weights([mean], TREE, f"the mean of a {type(found).__name__}")
    return Weights([found], TREE, "a network of symbnn")


def _like(shapes: Any, arrays: Mapping[str, np.ndarray]) -> Params:
    return tree.map_named(lambda name, leaf: arrays[name].astype(leaf.dtype), shapes)
