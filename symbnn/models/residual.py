"""Residual networks with BatchNorm (He et al. 2016), with torchvision's strides, paddings and names.

The stride of a bottleneck sits on its 3x3 convolution. Paddings are symmetric, as in PyTorch: XLA's "SAME"
pads a strided convolution on one side only, and imported weights would compute something else.

Where a block changes shape, its shortcut is a 1x1 convolution (option B of the paper, all nets for ImageNet)
or has no parameters (option A, the paper's nets for CIFAR): every second position, and zeros for the new
channels, half of them before and half behind the old ones, as in the common PyTorch code.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import batch_norm, check_image, convolution, dense, scaled
from symbnn.models.wrapping.wrap import from_module

Stem = Literal["cifar", "imagenet"]
Shortcut = Literal["projected", "padded"]
STAGE_CHANNELS = (64, 128, 256, 512)
CIFAR_STAGE_CHANNELS = (16, 32, 64)
# From this side on the 7x7 stem with pooling leaves the last stage at least 4x4 positions.
SMALLEST_IMAGENET_SIDE = 128


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 for a bottleneck, added to the (projected or padded) input."""

    channels: int
    stride: int = 1
    bottleneck: bool = False
    shortcut: Shortcut = "projected"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Next value of the residual stream."""
        widened = self.channels * (4 if self.bottleneck else 1)
        if self.bottleneck:
            layers = [(self.channels, 1, 1), (self.channels, 3, self.stride), (widened, 1, 1)]
        else:
            layers = [(self.channels, 3, self.stride), (self.channels, 3, 1)]
        y = x
        for index, (channels, kernel, stride) in enumerate(layers, start=1):
            y = convolution(channels, kernel, stride, name=f"conv{index}")(y)
            y = batch_norm(train, name=f"norm{index}")(y)
            y = nn.relu(y) if index < len(layers) else y
        if x.shape[-1] == widened and self.stride == 1:
            return nn.relu(x + y)
        if self.shortcut == "padded":
            x = padded_shortcut(x, widened, self.stride)
        else:
            x = convolution(widened, 1, self.stride, name="shortcut_conv")(x)
            x = batch_norm(train, name="shortcut_norm")(x)
        return nn.relu(x + y)


def padded_shortcut(x: jax.Array, channels: int, stride: int) -> jax.Array:
    """Every `stride`-th position of NHWC features; zeros around their channels until there are `channels`."""
    new = channels - x.shape[-1]
    return jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)))


class ResNet(nn.Module):
    """Stem, stages `layer1_0`, `layer1_1`, ..., global average, `out`."""

    blocks: tuple[int, ...]
    num_outputs: int
    bottleneck: bool
    stem: Stem
    width: float = 1.0
    stages: tuple[int, ...] = STAGE_CHANNELS
    shortcut: Shortcut = "projected"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Logits of NHWC images."""
        kernel, stride = (3, 1) if self.stem == "cifar" else (7, 2)
        x = convolution(scaled(self.stages[0], self.width), kernel, stride, name="conv1")(x)
        x = nn.relu(batch_norm(train, name="norm1")(x))
        if self.stem == "imagenet":
            x = nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1), (1, 1)))
        for stage, (num, channels) in enumerate(zip(self.blocks, self.stages, strict=True), start=1):
            for index in range(num):
                stride = 2 if stage > 1 and index == 0 else 1
                channels_here, name = scaled(channels, self.width), f"layer{stage}_{index}"
                x = Block(channels_here, stride, self.bottleneck, self.shortcut, name=name)(x, train)
        x = x.mean(axis=(1, 2))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


def resnet20(input_shape: tuple[int, ...], num_outputs: int, *, width: float = 1.0) -> Model:
    """ResNet-20 of He et al. for CIFAR (269,722 parameters for CIFAR-10), with shortcuts without parameters.

    `width` multiplies the number of channels everywhere.
    """
    check_image("resnet20", input_shape, smallest=1)
    network = ResNet(
        (3, 3, 3), num_outputs, False, "cifar", float(width), CIFAR_STAGE_CHANNELS, shortcut="padded"
    )
    return from_module(network, input_shape)


def resnet18(
    input_shape: tuple[int, ...], num_outputs: int, *, stem: Stem | None = None, width: float = 1.0
) -> Model:
    """ResNet-18 (11,689,512 parameters for ImageNet). See `resnet50` for the settings."""
    return _resnet("resnet18", (2, 2, 2, 2), False, input_shape, num_outputs, stem, width)


def resnet50(
    input_shape: tuple[int, ...], num_outputs: int, *, stem: Stem | None = None, width: float = 1.0
) -> Model:
    """ResNet-50 (25,557,032 parameters for ImageNet).

    `stem`: "imagenet" (7x7, stride 2, pooling) or "cifar" (3x3); by default "imagenet" for images of at least
    128 pixels a side. `width` multiplies the number of channels everywhere.
    """
    return _resnet("resnet50", (3, 4, 6, 3), True, input_shape, num_outputs, stem, width)


def _resnet(
    name: str,
    blocks: tuple[int, ...],
    bottleneck: bool,
    input_shape: tuple[int, ...],
    num_outputs: int,
    stem: Stem | None,
    width: float,
) -> Model:
    check_image(name, input_shape, smallest=1)
    if stem not in (None, "cifar", "imagenet"):
        raise ValueError(f"stem must be 'cifar', 'imagenet' or None; got {stem!r}")
    chosen: Stem = stem or ("imagenet" if min(input_shape[:2]) >= SMALLEST_IMAGENET_SIDE else "cifar")
    return from_module(ResNet(blocks, num_outputs, bottleneck, chosen, float(width)), input_shape)
