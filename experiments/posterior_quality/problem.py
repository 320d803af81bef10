"""Data and network of the study of posterior quality, and images that are out of distribution.

Digits need no download: out of their distribution are the test images with their pixels permuted, which keeps
every intensity and leaves no stroke, and the test images after a quarter turn, which keeps strokes, so that
digits like 0 remain: no method can tell all of these. Other data sets go by their name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.posterior_quality import PosteriorQuality
from experiments.common import problem as problems
from symbnn import data, density, models
from symbnn.types import Key

NEED_A_DENSITY = ("dropout", "variational", "laplace", "sghmc", "hmc")
"""Methods that refuse a network whose outputs depend on the rest of the batch."""


class Problem(NamedTuple):
    """What all stages share; `outside` holds images out of distribution by the name of their source."""

    config: PosteriorQuality
    key: Key
    model: models.Model
    target: density.Target
    inputs: jax.Array
    labels: jax.Array
    outside: dict[str, jax.Array]

    @property
    def has_batch_statistics(self) -> bool:
        """Whether the network has batch normalisation."""
        return density.has_batch_statistics(self.shapes)

    @property
    def shapes(self) -> Any:
        """Shapes of one network."""
        return jax.eval_shape(self.model.init, self.key)


def load(config: PosteriorQuality) -> Problem:
    """The problem of a config; `ValueError` for settings that do not go together."""
    if config.num_samples % config.num_modes or config.num_single > config.num_modes:
        raise ValueError(
            f"--num-modes must divide --num-samples {config.num_samples} and be at least --num-single "
            f"{config.num_single}, got {config.num_modes}"
        )
    train, test, num_classes = _load_images(config)
    outside = {name: load_outside(config, name, test.inputs) for name in config.outside}
    shape = (int(np.prod(test.inputs.shape[1:])),) if config.network.name == "mlp" else test.inputs.shape[1:]

    def shaped(images: np.ndarray) -> jax.Array:
        return jnp.asarray(images.reshape(len(images), *shape))

    network = config.network
    is_dense = network.name in ("mlp", "optunet")
    settings: dict[str, Any] = {"hidden": network.hidden} if is_dense else {"width": network.width}
    model = models.create(network.name, shape, num_classes, **settings)
    target = density.target(
        model,
        density.Batch(shaped(train.inputs), jnp.asarray(train.targets)),
        prior=density.gaussian_prior(network.prior_scale),
    )
    images = {name: shaped(each) for name, each in outside.items()}
    problem = Problem(
        config,
        jax.random.key(config.seed),
        model,
        target,
        shaped(test.inputs),
        jnp.asarray(test.targets),
        images,
    )
    refused = [name for name in config.methods if name in NEED_A_DENSITY]
    if problem.has_batch_statistics and refused:
        raise ValueError(
            f"--methods: a batch statistic is no likelihood, so {network.name} has no {', '.join(refused)}"
        )
    return problem


def _load_images(config: PosteriorQuality) -> tuple[data.Split, data.Split, int]:
    """Training images, the images that are judged, and the number of classes."""
    loaded, num_classes = problems.labelled(config.data, seed=config.seed, flatten=False)
    if not config.num_validation:
        return loaded.train, loaded.test, num_classes
    num = len(loaded.train.targets) - config.num_validation
    if num < 2:
        raise ValueError(
            f"--num-validation must leave two training images, got {config.num_validation} of "
            f"{len(loaded.train.targets)}"
        )
    train, judged = (
        data.Split(loaded.train.inputs[part], loaded.train.targets[part])
        for part in (slice(None, num), slice(num, None))
    )
    return train, judged, num_classes


def _permuted(images: np.ndarray) -> np.ndarray:
    """One permutation of the pixels for all images: the same intensities, but no strokes."""
    flat = images.reshape(len(images), -1)
    return flat[:, np.random.default_rng(0).permutation(flat.shape[1])].reshape(images.shape)


def _rotated(images: np.ndarray) -> np.ndarray:
    """A quarter turn."""
    return np.rot90(images, axes=(1, 2))


DISTORTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"permuted": _permuted, "rotated": _rotated}


def load_outside(config: PosteriorQuality, name: str, images: np.ndarray) -> np.ndarray:
    """Images out of distribution, of the shape of `images`; smaller ones have their pixels repeated."""
    if name in DISTORTIONS:
        return DISTORTIONS[name](images)
    other = data.load(
        name,
        data_dir=config.data.directory,
        num_test=config.data.num_test,
        seed=config.seed,
        resize=config.data.image_side,
        test_only=True,
    ).test.inputs
    factor = max(1, images.shape[1] // other.shape[1])
    enlarged = other.repeat(factor, axis=1).repeat(factor, axis=2)
    if enlarged.shape[1:] != images.shape[1:]:
        raise ValueError(
            f"--outside {name} has images of shape {other.shape[1:]}, which do not enlarge to those of "
            f"{config.data.name}, {images.shape[1:]}"
        )
    return enlarged
