"""What all stages of weight sharing work on: data, network, target, augmentation, imported weights."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from configs.weight_sharing import WeightSharing
from configs.weight_sharing.parts import Pretraining, SharedNetwork
from experiments.common import methods
from experiments.common.methods import steps_per_epoch
from experiments.weight_sharing.augmentation import Augmented, Change, Crop, Flip, Jitter, Shift
from symbnn import data, density, io, models, tree
from symbnn.data import Split, Streamed
from symbnn.inference.recipe import Recipe
from symbnn.inference.training import Loss
from symbnn.models import Model
from symbnn.posteriors.base import check_same_shapes
from symbnn.types import Params

# Images of these sets come as files of any size, which stay on disk; networks see squares of this side.
SIDES = {"imagenet": 224}
# What the published weights of torchvision were trained on.
SCALES = {
    "imagenet": data.Statistics(
        np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    )
}
UNSCALED = data.Statistics(np.zeros(1, np.float32), np.ones(1, np.float32))
TORCH_SUFFIXES = (".pt", ".pth", ".bin")


class Problem:
    """Data, network and target of one seed."""

    def __init__(self, config: WeightSharing, seed: int) -> None:
        self.config = config
        self.key = jax.random.key(seed)
        self.data = _load(config, config.data.name, seed)
        if self.data.num_classes is None:
            raise ValueError(f"--data.name {config.data.name} has no classes; this study needs labels")
        train, test = _split(self.data.train, self.data.test, config.judging.holdout)
        self.model = create(config.model, self.data.input_shape, self.data.num_classes)
        self.target = density.target(
            self.model, train, likelihood=_likelihood(), prior=_prior(config.pretraining.prior_std)
        )
        self.inputs, self.labels = _placed(test.inputs), jnp.asarray(test.targets)

    def recipe(self, epochs: int, learning_rate: float, optimizer: str = "adam") -> Recipe:
        """A recipe with the batch size and schedule of the config."""
        settings = self.config.pretraining
        batch_size = min(settings.batch_size, len(self.target.data.targets))
        steps = steps_per_epoch(self.target, batch_size)
        changes = {"num_epochs": epochs, "learning_rate": learning_rate, "optimizer": optimizer}
        return Recipe(epochs, batch_size, methods.optimizer(settings, steps, **changes))

    def wrap(self, loss: Loss) -> Loss:
        """The loss with augmented batches, if the config asks for it."""
        changes = changes_of(self.config.pretraining, self.config.data.name)
        if not changes:
            return loss
        shape = self.data.input_shape
        if len(shape) != 3 or (self.config.pretraining.jitter is not None and shape[-1] != 3):
            raise ValueError(
                "--pretraining.shift, flip and crop are for images, and jitter for colour images; "
                f"{self.config.model.name} takes inputs of shape {shape}"
            )
        return Augmented(loss, changes)

    def outside(self) -> Array | None:
        """Out-of-distribution inputs, if the config names a set."""
        name = self.config.judging.outside
        if name is None:
            return None
        found = _load(self.config, name, self.config.seed, test_only=True)
        if found.input_shape != self.data.input_shape:
            raise ValueError(
                f"--judging.outside {name} has inputs of shape {found.input_shape}; "
                f"expected {self.data.input_shape}"
            )
        return _placed(found.test.inputs)


def changes_of(settings: Pretraining, data_name: str) -> tuple[Change, ...]:
    """What is done at random to training images of this set, in order."""
    changes: list[Change] = []
    if settings.shift:
        changes.append(Shift(settings.shift, reflect=settings.padding == "reflect"))
    if settings.crop is not None:
        changes.append(Crop(settings.crop))
    if settings.flip:
        changes.append(Flip())
    if settings.jitter is not None:
        scale = SCALES.get(data_name, UNSCALED)
        mean, std = tuple(scale.mean.tolist()), tuple(scale.std.tolist())
        changes.append(Jitter(*settings.jitter, mean, std))
    return tuple(changes)


# The same objects for every seed: compiled training steps are known by them.
_likelihood = functools.cache(density.categorical)
_prior = functools.cache(density.gaussian_prior)


def create(settings: SharedNetwork, input_shape: tuple[int, ...], num_classes: int) -> Model:
    """The network of the config."""
    if settings.name == "mlp":
        return models.mlp(input_shape, num_classes, hidden=settings.hidden)
    if settings.name == "vit":
        return models.vit(input_shape, num_classes)
    return models.create(settings.name, input_shape, num_classes, width=settings.width)


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
        return found["params"] if _is_stage(found) else found
    except io.ForeignFileError:
        return io.from_torch(model, io.load_safetensors(path), name)


def _is_stage(found: Any) -> bool:
    """Whether this is what a `pretrain` stage kept, rather than a bare network."""
    return isinstance(found, dict) and set(found) == {"params", "losses"}


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


def _load(config: WeightSharing, name: str, seed: int, *, test_only: bool = False) -> data.Dataset:
    settings = config.data
    found = data.load(
        name,
        data_dir=settings.directory,
        flatten=config.model.name == "mlp",
        num_train=None if test_only else settings.num_train,
        num_test=settings.num_test,
        seed=seed,
        resize=SIDES.get(name, settings.image_side),
        test_only=test_only and name != "digits",
        streamed=name in SIDES,
    )
    # Images of another set are seen as the network sees its own.
    scale = SCALES.get(settings.name)
    if scale is None:
        return found
    return found._replace(train=data.normalise(found.train, scale), test=data.normalise(found.test, scale))


def _placed(inputs: Any) -> Any:
    return inputs if isinstance(inputs, Streamed) else jnp.asarray(inputs)


def _split(train: Split, test: Split, holdout: int) -> tuple[Split, Split]:
    """(training, judged): with `holdout` the last training examples are judged instead of the test set."""
    if not holdout:
        return train, test
    if holdout >= len(train.targets):
        raise ValueError(f"--judging.holdout {holdout} leaves no training examples of {len(train.targets)}")
    first = Split(train.inputs[:-holdout], train.targets[:-holdout])
    return first, Split(train.inputs[-holdout:], train.targets[-holdout:])
