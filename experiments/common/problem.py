"""What studies begin with: the data of a config, a network for it, and alignment by what it does to them."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from configs.parts import Data
from symbnn import data, models, symmetry
from symbnn.types import Key, Params, Samples


class Settings(Protocol):
    """What a config must hold."""

    data: Data
    network: str
    hidden: tuple[int, ...]
    seed: int


class Problem(NamedTuple):
    """Data, network and the key that everything random derives from."""

    key: Key
    data: data.Dataset
    model: models.Model


def load(config: Any) -> Problem:
    """The problem of a config that names one of `symbnn.models`."""
    settings: Settings = config
    loaded, num_classes = labelled(settings.data, seed=settings.seed, flatten=settings.network == "mlp")
    model = models.create(settings.network, loaded.input_shape, num_classes, hidden=settings.hidden)
    return Problem(jax.random.key(settings.seed), loaded, model)


def labelled(settings: Data, *, seed: int, flatten: bool) -> tuple[data.Dataset, int]:
    """The data set that the settings describe, its parts drawn by `seed`, and how many classes it has."""
    loaded = data.load(
        settings.name,
        data_dir=settings.directory,
        flatten=flatten,
        num_train=settings.num_train,
        num_test=settings.num_test,
        seed=seed,
        resize=settings.image_side,
    )
    if loaded.num_classes is None:
        raise ValueError(f"--data.name {settings.name} has no classes; this study needs labels")
    return loaded, loaded.num_classes


class Trained(Protocol):
    """Data and the network that learns from them."""

    @property
    def data(self) -> data.Dataset:
        """The data."""

    @property
    def model(self) -> models.Model:
        """The network."""


def align(
    problem: Trained,
    samples: Samples,
    *,
    reference: Params | int | str,
    method: str,
    num_inputs: int | None = None,
) -> symmetry.Aligned:
    """Networks relabelled to fit the reference; by activations, the paper's uncentred inner product."""
    return symmetry.align(
        problem.model.spec,
        samples,
        reference=reference,
        method=method,
        apply=problem.model.apply,
        inputs=jnp.asarray(problem.data.train.inputs[:num_inputs]),
        similarity="inner_product",
    )
