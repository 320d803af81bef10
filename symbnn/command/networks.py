"""Networks that a command line names: a model by its reference, weights by their file, and back to a file."""

import argparse
import inspect
import zipfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from symbnn import inference, io, models, names, posteriors, tree
from symbnn.data.npz import read_arrays
from symbnn.io.files import replacing
from symbnn.io.posterior import KNOWN
from symbnn.io.pytorch.containers import kind_of
from symbnn.models import Model
from symbnn.models.factory import from_factory
from symbnn.types import Params

SETTINGS = ("hidden", "width", "activation")
Kind = Literal["symbnn", "torch", "npz"]
SUFFIXES: dict[str, Kind] = {".pt": "torch", ".pth": "torch", ".th": "torch", ".bin": "torch", ".npz": "npz"}
"""What a file is from its name; `.safetensors` may be ours or PyTorch's."""


STAGE = {"params", "losses"}
"""What a study keeps of a trained network."""


class Weights(NamedTuple):
    """What a file holds for a model: one network, or several of a posterior."""

    networks: list[Params]
    kind: Kind
    """Who wrote it."""
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
        found = "a folder" if file.is_dir() else "nothing"
        raise ValueError(f"{path}: expected a file of weights; found {found}")
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    read = _arrays(file, model, shapes, layers) or _torch(file, model, layers) or _ours(file)
    for network in read.networks:
        tree.check_same_shapes(f"{path} does not fit the model", network, shapes)
    return read


def write_weights(
    path: str, model: Model, params: Params, kind: Kind, *, layers: Any = None, like: str | None = None
) -> str:
    """Write a network, PyTorch's with the names of the file `like` if there is one; says what was written."""
    if kind == "torch":
        # The names of another file need no other map than that by which it was read.
        exported = io.to_torch(model, params, layers, like=like, path=path)
        return f"{path}: PyTorch's weights, {len(exported)} tensors"
    leaves = tree.named_leaves(params)
    if kind == "npz":
        with replacing(Path(path)) as part, part.open("wb") as file:
            arrays: Any = {name: np.asarray(leaf) for name, leaf in leaves.items()}
            np.savez(file, **arrays)
    else:
        io.save_tree(path, params)
    return f"{path}: {'arrays by name' if kind == 'npz' else 'a network of symbnn'}, {len(leaves)} leaves"


def kind_of_output(path: str, sources: list[str], asked: Kind | None, otherwise: Kind) -> Kind:
    """What a file of this name becomes; `ValueError` if the name contradicts it, or is that of a source."""
    suffix = Path(path).suffix
    if Path(path).resolve() in [Path(source).resolve() for source in sources]:
        raise ValueError(f"{path} would be written over what was read; choose another name")
    if suffix not in (*SUFFIXES, ".safetensors"):
        raise ValueError(f"{path}: files of weights end in {', '.join(SUFFIXES)} or .safetensors")
    kind = asked or SUFFIXES.get(suffix, otherwise)
    if SUFFIXES.get(suffix, kind) != kind or (suffix == ".safetensors" and kind == "npz"):
        raise ValueError(f"{path}: --to {kind} is not written to a file that ends in {suffix}")
    return kind


def _arrays(file: Path, model: Model, shapes: Any, layers: Any) -> Weights | None:
    """Of an .npz file, with our names for leaves or PyTorch's; None for another file."""
    if not zipfile.is_zipfile(file):
        return None
    with zipfile.ZipFile(file) as archive:
        if not any(name.endswith(".npy") for name in archive.namelist()):
            return None
    arrays = read_arrays(file)
    if set(arrays) != set(tree.named_leaves(shapes)):
        return Weights([io.from_torch(model, arrays, layers)], "npz", "arrays by PyTorch's names")
    tree.check_same_shapes(f"{file} does not fit the model", arrays, tree.named_leaves(shapes))
    read = tree.map_named(lambda name, leaf: arrays[name].astype(leaf.dtype), shapes)
    return Weights([read], "npz", "arrays by our names")


def _torch(file: Path, model: Model, layers: Any) -> Weights | None:
    """Of a file of `torch.save`, or of safetensors that symbnn did not write; None for one that it did."""
    with file.open("rb") as opened:
        is_pickled = kind_of(opened.read(64)) is not None
    if not is_pickled:
        try:
            io.read_metadata(file)
            return None
        except io.ForeignFileError:
            pass
    return Weights([io.from_torch(model, file, layers)], "torch", "weights of PyTorch")


def _ours(file: Path) -> Weights:
    """Of a file that symbnn wrote: a network, a posterior, or the stage of a study with one."""
    found, _ = io.load_tree(file, classes=(*KNOWN, inference.Fit))
    found = found.posterior if isinstance(found, inference.Fit) else found
    if isinstance(found, dict) and found.keys() == STAGE:
        return Weights([found["params"]], "symbnn", "a network of a study")
    if isinstance(found, posteriors.Empirical):
        count = tree.num_samples(found.samples)
        networks = [tree.take(found.samples, index) for index in range(count)]
        return Weights(networks, "symbnn", f"{count} networks of a posterior")
    if not isinstance(found, KNOWN):
        return Weights([found], "symbnn", "a network of symbnn")
    mean = getattr(found, "mean", None)
    if mean is None:
        raise ValueError(f"{file} is a {type(found).__name__}, which has no mean; give another file")
    return Weights([mean], "symbnn", f"the mean of a {type(found).__name__}")
