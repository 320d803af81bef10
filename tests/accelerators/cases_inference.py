"""A chunk of every sampler, an epoch of every way to train, every structure of Laplace's approximation."""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
import optax

from symbnn import data, density, inference, models
from symbnn.inference.training import epochs
from tests.accelerators.cases import case

KEY = jax.random.key(0)
MODEL = models.mlp((4,), 3, hidden=(5,))
IMAGES = models.optunet((18, 18, 1), 3)
STATISTICS = models.resnet20((8, 8, 3), 3, width=0.25)
SAMPLING = {"num_chains": 4, "num_samples": 2, "num_burnin": 2, "chunk_size": 2, "progress": None}
TRAINING = {"batch_size": 8, "progress": None}
COLLECTING = {"rank": 2, "epochs": 2, "pretrain_epochs": 0, "optimizer": optax.sgd(1e-2), **TRAINING}
MEMBERS = {"num_members": 8, "epochs": 1, **TRAINING}


def batch(shape: tuple[int, ...], num: int = 16) -> density.Batch:
    random = np.random.default_rng(0)
    labels = random.integers(3, size=num).astype(np.int32)
    return density.Batch(random.normal(size=(num, *shape)).astype(np.float32), labels)


def target(model: models.Model = MODEL) -> density.Target:
    return density.target(model, batch(model.input_shape))


def streamed(model: models.Model = MODEL) -> density.Target:
    """The same with inputs that stay on disk, so that the host fetches every batch."""
    inputs, labels = batch(model.input_shape)
    on_disk = data.Streamed(lambda indices: inputs[indices], inputs.shape)
    return density.target(model, density.Batch(on_disk, labels))


def draw(factory: Callable[..., inference.Method], **settings: Any) -> None:
    """All chunks of a run on chains x data. A dry run counts as many divergences as transitions."""
    placement = inference.Placement(data_shards=min(2, len(jax.devices())))
    with contextlib.suppress(inference.SamplingError):
        factory(**SAMPLING, placement=placement, **settings)(KEY, target())


@case("hmc", is_mapped=True)
def hmc() -> None:
    draw(inference.hmc, step_size=0.01, num_steps=3)


@case("hmc that tunes itself", is_mapped=True)
def tuned_hmc() -> None:
    draw(inference.hmc, mass="diagonal")


@case("nuts", is_mapped=True)
def nuts() -> None:
    draw(inference.nuts, max_doublings=3)


@case("mclmc", is_mapped=True)
def mclmc() -> None:
    draw(inference.mclmc)


@case("adjusted mclmc", is_mapped=True)
def adjusted_mclmc() -> None:
    draw(inference.mclmc, kernel="adjusted")


@case("predictions instead of draws", is_mapped=True)
def predictions() -> None:
    storage = inference.Storage(collect="predictions", inputs=batch((4,)).inputs)
    draw(inference.hmc, step_size=0.01, num_steps=3, storage=storage)


def sgmcmc(algorithm: str) -> None:
    settings = {"num_samples": 2, "num_burnin": 2, "thinning": 1, "batch_size": 8, "progress": None}
    inference.sgmcmc(algorithm=algorithm, step_size=1e-3, **settings)(KEY, target())


for name in ("sgld", "sghmc"):
    case(name)(functools.partial(sgmcmc, name))


@case("sghmc, steps of the host")
def sghmc_by_host() -> None:
    """What a CPU does with convolutional networks: lowered as well, as it is asked for by name here."""
    with mock.patch.object(sys.modules["symbnn.inference.sgmcmc"], "steps_on_host", return_value=True):
        sgmcmc("sghmc")


@case("ensemble")
def ensemble() -> None:
    inference.ensemble(**MEMBERS)(KEY, target())


@case("long ensemble on several devices", is_mapped=True)
def long_ensemble() -> None:
    with mock.patch.object(epochs, "LONG_WORK", 0):
        inference.ensemble(**MEMBERS)(KEY, target())


@case("ensemble of convolutional networks")
def convolutional_ensemble() -> None:
    inference.ensemble(**MEMBERS)(KEY, target(IMAGES))


@case("ensemble from data on disk", is_mapped=True)
def streamed_ensemble() -> None:
    inference.ensemble(**MEMBERS)(KEY, streamed())


@case("one network on several devices", is_mapped=True)
def split_batch() -> None:
    inference.ensemble(**MEMBERS | {"num_members": 1})(KEY, streamed(IMAGES))


@case("variational")
def variational() -> None:
    inference.variational(epochs=1, **TRAINING)(KEY, target())


@case("variational by draws of weights")
def variational_weights() -> None:
    inference.variational(epochs=1, reparametrisation="weights", **TRAINING)(KEY, target())


@case("dropout")
def dropout() -> None:
    inference.dropout(epochs=1, masks_per_batch=2, **TRAINING)(KEY, target())


@case("swag")
def swag() -> None:
    inference.swag(**COLLECTING)(KEY, target())


@case("swag with running statistics")
def swag_with_statistics() -> None:
    inference.swag(**COLLECTING)(KEY, target(STATISTICS))
    inference.swag(**COLLECTING)(KEY, streamed(STATISTICS))


def laplace(structure: str, leaves: str | None = None) -> None:
    settings = {"pretrain_epochs": 0, "chunk_size": 8, "rank": 2, "initial": MODEL.init(KEY), **TRAINING}
    inference.laplace(structure=structure, leaves=leaves, tune=("prior",), **settings)(KEY, target())


for name in ("diagonal", "low_rank", "full", "kronecker"):
    case(f"laplace, {name}")(functools.partial(laplace, name))
case("laplace, last layer")(functools.partial(laplace, "full", "last_layer"))
