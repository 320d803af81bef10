"""Small convolutional networks: LeNet-5 and OptuNet, both with PyTorch's default initialisation.

OptuNet is the few-hundred-parameter MNIST net of Laurent et al. (ICLR 2024): two convolutions without biases,
the second in two groups, a global average and a head. With one hidden layer of 3 units in the head it has the
355 parameters of the published OptuMNIST; without hidden layer, 392.
"""

import math
from collections.abc import Sequence

import jax
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import activation as activation_named
from symbnn.models.layers import check_image, dense, fan_in_uniform, scaled
from symbnn.models.wrapping.wrap import from_module


class LeNet(nn.Module):
    """Two convolutions with max pooling, two dense layers, `out`."""

    num_outputs: int
    activation: str = "relu"
    width: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of NHWC images."""
        phi = activation_named(self.activation)
        for name, channels, padding in (("conv1", 6, "SAME"), ("conv2", 16, "VALID")):
            x = phi(_convolution(scaled(channels, self.width), 5, x.shape[-1], name, padding=padding)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for name, units in (("hidden0", 120), ("hidden1", 84)):
            x = phi(dense(scaled(units, self.width), x.shape[-1], name)(x))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


class OptuNet(nn.Module):
    """Convolution, max pooling, grouped convolution, global average, head."""

    num_outputs: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of NHWC images."""
        x = nn.relu(_convolution(2, 4, x.shape[-1], "conv1", use_bias=False)(x))
        x = nn.max_pool(x, (3, 3), (3, 3))
        x = nn.relu(_convolution(10, 5, x.shape[-1], "conv2", use_bias=False, groups=2)(x))
        x = x.mean(axis=(1, 2))
        for index, units in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = nn.relu(dense(units, x.shape[-1], name)(x))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


def lenet(
    input_shape: tuple[int, ...], num_outputs: int, *, activation: str = "relu", width: float = 1.0
) -> Model:
    """LeNet-5 (61,706 parameters on 28x28 images with 10 classes); `width` multiplies every hidden width."""
    # 12 -> 6 after the first pooling, 2 after the second convolution, 1 after the second pooling.
    check_image("lenet", input_shape, smallest=12)
    activation_named(activation)
    return from_module(LeNet(num_outputs, activation, float(width)), input_shape)


def optunet(input_shape: tuple[int, ...], num_outputs: int, *, hidden: Sequence[int] = (3,)) -> Model:
    """OptuNet: 355 parameters on 28x28 images with 10 classes; 392 with `hidden=()`."""
    # 18 -> 15 after the first convolution, 5 after the pooling, 1 after the second convolution.
    check_image("optunet", input_shape, smallest=18)
    return from_module(OptuNet(num_outputs, tuple(hidden)), input_shape)


def _convolution(
    channels: int,
    kernel: int,
    channels_in: int,
    name: str,
    *,
    use_bias: bool = True,
    groups: int = 1,
    padding: str = "VALID",
) -> nn.Conv:
    init = fan_in_uniform(math.prod((kernel, kernel, channels_in // groups)))
    return nn.Conv(
        channels,
        (kernel, kernel),
        feature_group_count=groups,
        padding=padding,
        use_bias=use_bias,
        kernel_init=init,
        bias_init=init,
        name=name,
    )
