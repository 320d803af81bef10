"""Random changes of training images: shifted, mirrored, cropped, of other colours; every image on its own.

A change is called with a key and a batch (n, height, width, channels) and returns a batch of that shape. It
is a frozen dataclass, hence hashable: compiled training steps are known by the loss, which holds its changes.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from configs.weight_sharing.parts import Pretraining
from experiments.common.problem import SCALES, Problem
from symbnn import keys
from symbnn.density import Batch
from symbnn.inference.training.train import Loss
from symbnn.types import Key, Params

Images = Float[Array, "n height width channels"]
Change = Callable[[Key, Images], Images]
# Shapes of a crop that are tried before the whole image is taken.
NUM_TRIES = 10
# How bright the eye finds red, green and blue (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)


@dataclasses.dataclass(frozen=True)
class Augmented:
    """A loss whose images are changed at random, by one change after the other."""

    loss: Loss
    changes: tuple[Change, ...]

    def __call__(self, weights: Params, statistics: Params, batch: Batch, key: Key) -> tuple[Array, Params]:
        """The loss of the augmented batch."""
        inputs = augment(keys.named(key, "augmentation"), batch.inputs, self.changes)
        return self.loss(weights, statistics, Batch(inputs, batch.targets), key)


def augmented(problem: Problem, loss: Loss) -> Loss:
    """The loss with batches changed as the config of the problem says; `ValueError` for what is no image."""
    config = problem.config
    changes = changes_of(config.pretraining, problem.data.name)
    if not changes:
        return loss
    shape = problem.data.input_shape
    if len(shape) != 3 or (config.pretraining.jitter is not None and shape[-1] != 3):
        raise ValueError(
            "--pretraining.shift, flip and crop are for images, and jitter for colour images; "
            f"{problem.network} takes inputs of shape {shape}"
        )
    return Augmented(loss, changes)


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
        scale = (tuple(part.tolist()) for part in SCALES.get(data_name, ()))
        changes.append(Jitter(*settings.jitter, *scale))
    return tuple(changes)


def augment(key: Key, images: Images, changes: Sequence[Change]) -> Images:
    """The batch after all changes, each with a key of its own."""
    for change, own in zip(changes, jax.random.split(key, len(changes)), strict=True):
        images = change(own, images)
    return images


@dataclasses.dataclass(frozen=True)
class Shift:
    """Moved by up to `pixels` each way; what moves in is zeros, or with `reflect` the mirrored edge."""

    pixels: int
    reflect: bool = False

    def __call__(self, key: Key, images: Images) -> Images:
        """The shifted images."""
        num, *shape = images.shape
        border = (self.pixels, self.pixels)
        padded = jnp.pad(
            images, ((0, 0), border, border, (0, 0)), mode="reflect" if self.reflect else "constant"
        )
        starts = jax.random.randint(key, (num, 2), 0, 2 * self.pixels + 1)
        return jax.vmap(lambda image, at: jax.lax.dynamic_slice(image, (at[0], at[1], 0), shape))(
            padded, starts
        )


@dataclasses.dataclass(frozen=True)
class Flip:
    """Left and right exchanged in half of the images."""

    def __call__(self, key: Key, images: Images) -> Images:
        """The mirrored images among the others."""
        is_flipped = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
        return jnp.where(is_flipped, images[:, :, ::-1], images)


@dataclasses.dataclass(frozen=True)
class Crop:
    """A rectangle of the image scaled back to full size (random resized crop; Szegedy et al. 2015, sec. 6).

    Its share of the area is uniform in [smallest, 1] and the logarithm of its aspect ratio in ± log widest;
    what does not fit into the image is drawn again, and after ten draws the image stays whole.
    """

    smallest: float
    widest: float = 4 / 3

    def __call__(self, key: Key, images: Images) -> Images:
        """The crops, interpolated linearly."""
        key_size, key_start = jax.random.split(key)
        sizes = self.sizes(key_size, len(images))
        starts = jax.random.uniform(key_start, sizes.shape) * (1.0 - sizes)
        return jax.vmap(_enlarge)(images, starts, sizes)

    def sizes(self, key: Key, num: int) -> Float[Array, "num 2"]:
        """Height and width of every crop, as shares of the image's."""
        key_area, key_ratio = jax.random.split(key)
        area = jax.random.uniform(key_area, (num, NUM_TRIES), minval=self.smallest, maxval=1.0)
        widest = math.log(self.widest)
        ratio = jnp.exp(jax.random.uniform(key_ratio, (num, NUM_TRIES), minval=-widest, maxval=widest))
        tried = jnp.sqrt(jnp.stack([area / ratio, area * ratio], axis=-1))
        fits = jnp.all(tried <= 1.0, axis=-1)
        first = jnp.take_along_axis(tried, jnp.argmax(fits, axis=1)[:, None, None], axis=1)[:, 0]
        return jnp.where(jnp.any(fits, axis=1)[:, None], first, 1.0)


@dataclasses.dataclass(frozen=True)
class Jitter:
    """Brightness, contrast and saturation times 1 ± so much, hue turned by ± so much of the circle.

    All four are drawn for every image, their order for every batch. Colours are those of pixels in [0, 1],
    and stay there: of images that were normalised `mean` and `std` say how.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, key: Key, images: Images) -> Images:
        """The images in other colours."""
        key_amount, key_order = jax.random.split(key)
        most = jnp.array([self.brightness, self.contrast, self.saturation, self.hue])
        drawn = jax.random.uniform(key_amount, (4, len(images)), minval=-1.0, maxval=1.0)
        amounts = (most[:, None] * drawn)[:, :, None, None, None]

        def recolour(pixels: Images, kind: Int[Array, ""]) -> tuple[Images, None]:
            return jnp.clip(jax.lax.switch(kind, RECOLOURINGS, pixels, amounts[kind]), 0.0, 1.0), None

        mean, std = jnp.array(self.mean), jnp.array(self.std)
        order = jax.random.permutation(key_order, len(RECOLOURINGS))
        pixels, _ = jax.lax.scan(recolour, images * std + mean, order)
        return (pixels - mean) / std


def brighten(pixels: Images, amount: Float[Array, "n 1 1 1"]) -> Images:
    """Away from black."""
    return _away_from(jnp.zeros_like(pixels), pixels, amount)


def add_contrast(pixels: Images, amount: Float[Array, "n 1 1 1"]) -> Images:
    """Away from the mean grey of the image."""
    return _away_from(jnp.mean(_grey(pixels), axis=(1, 2, 3), keepdims=True), pixels, amount)


def saturate(pixels: Images, amount: Float[Array, "n 1 1 1"]) -> Images:
    """Away from the grey of each pixel."""
    return _away_from(_grey(pixels), pixels, amount)


def turn_hue(pixels: Images, amount: Float[Array, "n 1 1 1"]) -> Images:
    """Hue of the hexagonal cone (HSV) turned by `amount` of the circle; value and saturation stay."""
    red, green, blue = jnp.split(pixels, 3, axis=-1)
    value = jnp.max(pixels, axis=-1, keepdims=True)
    chroma = value - jnp.min(pixels, axis=-1, keepdims=True)
    # Grey has no hue, and any will do: its chroma is zero.
    safe = jnp.where(chroma > 0.0, chroma, 1.0)
    sextant = jnp.where(
        value == red,
        (green - blue) / safe,
        jnp.where(value == green, (blue - red) / safe + 2.0, (red - green) / safe + 4.0),
    )
    # A channel is brightest within one sextant of its own hue and darkest from two sextants on.
    distance = jnp.mod(jnp.array([5.0, 3.0, 1.0]) + sextant + 6.0 * amount, 6.0)
    return value - chroma * jnp.clip(jnp.minimum(distance, 4.0 - distance), 0.0, 1.0)


RECOLOURINGS = (brighten, add_contrast, saturate, turn_hue)


def _away_from(origin: Array, pixels: Images, amount: Array) -> Images:
    return pixels + amount * (pixels - origin)


def _grey(pixels: Images) -> Float[Array, "n height width 1"]:
    return jnp.sum(pixels * jnp.array(LUMA), axis=-1, keepdims=True)


def _enlarge(
    image: Float[Array, "height width channels"], start: Float[Array, " 2"], size: Float[Array, " 2"]
) -> Float[Array, "height width channels"]:
    """The rectangle at `start` of `size`, both as shares of the image, as an image."""
    sides = jnp.array(image.shape[:2])
    # Nothing is made smaller, so there is nothing to smooth.
    return jax.image.scale_and_translate(
        image, image.shape, (0, 1), 1.0 / size, -start * sides / size, "linear", antialias=False
    )
