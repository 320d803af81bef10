"""Wide residual network WRN-28-10 (Zagoruyko & Komodakis 2016): pre-activation blocks with BatchNorm."""

import jax
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import batch_norm, check_dropout, check_image, convolution, dense, scaled
from symbnn.models.wrapping.wrap import from_module


class WideBlock(nn.Module):
    """Norm, relu, convolution, twice; a projection reads the activated input, as in the authors' code."""

    channels: int
    stride: int
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Next value of the residual stream."""
        activated = nn.relu(batch_norm(train, name="norm1")(x))
        y = convolution(self.channels, 3, self.stride, name="conv1")(activated)
        y = nn.relu(batch_norm(train, name="norm2")(y))
        y = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(y)
        y = convolution(self.channels, 3, name="conv2")(y)
        if x.shape[-1] != self.channels or self.stride != 1:
            x = convolution(self.channels, 1, self.stride, name="shortcut_conv")(activated)
        return x + y


class WideResNet(nn.Module):
    """Stem, three stages `layer1_0`, ..., norm, relu, global average, `out`."""

    num_blocks: int
    widen: float
    num_outputs: int
    dropout: float = 0.0
    stem_channels: int = 16

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Logits of NHWC images."""
        x = convolution(self.stem_channels, 3, name="conv1")(x)
        for stage in range(3):
            for index in range(self.num_blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                channels = scaled(16 * 2**stage, self.widen)
                x = WideBlock(channels, stride, self.dropout, name=f"layer{stage + 1}_{index}")(x, train)
        x = nn.relu(batch_norm(train, name="norm")(x)).mean(axis=(1, 2))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


def wrn28_10(
    input_shape: tuple[int, ...], num_outputs: int, *, width: float = 1.0, dropout: float = 0.0
) -> Model:
    """WRN-28-10 (36,479,194 parameters for CIFAR-10); `width` multiplies the widening factor 10."""
    check_image("wrn28_10", input_shape, smallest=4)
    check_dropout(dropout)
    return from_module(WideResNet(4, 10.0 * width, num_outputs, float(dropout)), input_shape)
