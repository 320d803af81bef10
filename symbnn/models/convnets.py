"""Small convolutional networks: LeNet-5 and OptuNet, both with PyTorch's default initialisation.

OptuNet is the few-hundred-parameter MNIST net of Laurent et al. (ICLR 2024): two convolutions without biases,
the second in two groups, a global average and a head. With one hidden layer of 3 units in the head it has the
355 parameters of the published OptuMNIST; without hidden layer, 392. In so small a network a convolution
spends its time on all but arithmetic: by products of windows and kernels it trains four times as fast on a
CPU (a step of 64 images on one core: 2.8 ms instead of 11), and networks side by side are no grouped
convolutions.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn import names
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
    computed_by: str = "convolutions"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of NHWC images."""
        convolve, pool = names.lookup(WAYS, self.computed_by, "computed_by")
        # The largest of nine is rectified instead of all nine, which gives the same.
        x = nn.relu(pool(convolve(2, 4, x.shape[-1], "conv1", 1)(x), 3))
        x = nn.relu(convolve(10, 5, x.shape[-1], "conv2", 2)(x))
        x = x.mean(axis=(1, 2))
        for index, units in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = nn.relu(dense(units, x.shape[-1], name)(x))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


class Windows(nn.Module):
    """`nn.Conv` without bias and padding, as a product of all windows of an image and its kernel."""

    channels: int
    side: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """NHWC."""
        channels_in, area = x.shape[-1] // self.groups, self.side**2
        shape = (self.side, self.side, channels_in, self.channels)
        kernel = self.param("kernel", fan_in_uniform(area * channels_in), shape)
        height, width = (size - self.side + 1 for size in x.shape[1:3])
        windows = jnp.stack(
            [
                x[:, top : top + height, left : left + width]
                for top in range(self.side)
                for left in range(self.side)
            ],
            axis=-1,
        )
        windows = windows.reshape(*windows.shape[:3], self.groups, channels_in, area)
        kernel = kernel.reshape(area, channels_in, self.groups, self.channels // self.groups)
        found = jnp.einsum("bhwgik,kigo->bhwgo", windows, kernel)
        return found.reshape(*found.shape[:3], self.channels)


def lenet(
    input_shape: tuple[int, ...], num_outputs: int, *, activation: str = "relu", width: float = 1.0
) -> Model:
    """LeNet-5 (61,706 parameters on 28x28 images with 10 classes); `width` multiplies every hidden width."""
    # 12 -> 6 after the first pooling, 2 after the second convolution, 1 after the second pooling.
    check_image("lenet", input_shape, smallest=12)
    activation_named(activation)
    return from_module(LeNet(num_outputs, activation, float(width)), input_shape)


def optunet(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    hidden: Sequence[int] = (3,),
    computed_by: str = "convolutions",
) -> Model:
    """OptuNet: 355 parameters on 28x28 images with 10 classes; 392 with `hidden=()`.

    `computed_by="products"` is the same function of the same parameters, four times as fast in training on a
    CPU; files of PyTorch are read with `"convolutions"`, as their layers are known by these.
    """
    # 18 -> 15 after the first convolution, 5 after the pooling, 1 after the second convolution.
    check_image("optunet", input_shape, smallest=18)
    names.lookup(WAYS, computed_by, "computed_by")
    return from_module(OptuNet(num_outputs, tuple(hidden), computed_by), input_shape)


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


def _convolved(channels: int, side: int, channels_in: int, name: str, groups: int) -> nn.Module:
    return _convolution(channels, side, channels_in, name, use_bias=False, groups=groups)


def _multiplied(channels: int, side: int, channels_in: int, name: str, groups: int) -> nn.Module:
    return Windows(channels, side, groups, name=name)


def _pool(x: jax.Array, side: int) -> jax.Array:
    return nn.max_pool(x, (side, side), (side, side))


def _most_of_squares(x: jax.Array, side: int) -> jax.Array:
    """As `_pool`, which leaves out what is left over at the far edges, too; its gradient takes no scatter."""
    height, width = (size // side for size in x.shape[1:3])
    x = x[:, : side * height, : side * width]
    return x.reshape(-1, height, side, width, side, x.shape[-1]).max(axis=(2, 4))


WAYS = {"convolutions": (_convolved, _pool), "products": (_multiplied, _most_of_squares)}
"""(layer, pooling) by what OptuNet is computed by."""
