"""Small convolutional networks: LeNet-5 and OptuNet, both with PyTorch's default initialisation.

OptuNet is the few-hundred-parameter MNIST net of Laurent et al. (ICLR 2024): two convolutions without biases,
the second in two groups, a global average and a head. With one hidden layer of 3 units in the head it has the
355 parameters of the published OptuMNIST; without hidden layer, 392. In so small a network a convolution
spends its time on all but arithmetic: by two matrix products it trains ten times as fast on a CPU (a step of
64 images on one core: 0.4 ms instead of 5.4), and networks side by side are no grouped convolutions.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
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
        x = names.lookup(WAYS, self.computed_by, "computed_by")(x)
        for index, units in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = nn.relu(dense(units, x.shape[-1], name)(x))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


class Kernel(nn.Module):
    """The kernel of an `nn.Conv`, for those who convolve by themselves."""

    shape: tuple[int, int, int, int]

    @nn.compact
    def __call__(self) -> jax.Array:
        """(height, width, channels in of a group, channels)."""
        return self.param("kernel", fan_in_uniform(math.prod(self.shape[:3])), self.shape)


def _convolved(x: jax.Array) -> jax.Array:
    """What the head of an OptuNet sees, as one writes it."""
    x = _convolution(CHANNELS[0], SIDES[0], x.shape[-1], "conv1", use_bias=False)(x)
    # The largest of nine is rectified instead of all nine, which gives the same.
    x = nn.relu(nn.max_pool(x, (POOL, POOL), (POOL, POOL)))
    x = _convolution(CHANNELS[1], SIDES[1], CHANNELS[0], "conv2", use_bias=False, groups=CHANNELS[0])(x)
    return nn.relu(x).mean(axis=(1, 2))


def _multiplied(x: jax.Array) -> jax.Array:
    """The same by two matrix products, channels and places first.

    All that is pooled into one place lies in a patch of 6 x 6 pixels, so the first convolution is a matrix of
    18 x 36, for 3 x 3 places and two channels, times all patches; the second is, for every group, the images
    times a matrix of their pixels and all places.
    """
    num_images, *size, channels_in = x.shape
    height, width = ((side - SIDES[0] + 1) // POOL for side in size)
    patch = SIDES[0] + POOL - 1
    patches = jnp.stack(
        [
            x[:, top : top + POOL * height : POOL, left : left + POOL * width : POOL]
            for top in range(patch)
            for left in range(patch)
        ]
    )
    patches = jnp.moveaxis(patches, -1, 1).reshape(patch**2 * channels_in, -1)
    kernel = Kernel((SIDES[0], SIDES[0], channels_in, CHANNELS[0]), name="conv1")()
    kernel = kernel.reshape(-1, channels_in, CHANNELS[0])
    moved = jnp.einsum("pqk,kic->cqpi", _places((patch, patch), SIDES[0]), kernel)
    moved = moved.reshape(*moved.shape[:2], -1)
    pooled = nn.relu(jnp.einsum("cqp,pn->cqn", moved, patches).max(axis=1))

    # A group is one channel of the first.
    kernel = Kernel((SIDES[1], SIDES[1], 1, CHANNELS[1]), name="conv2")()
    kernel = kernel.reshape(-1, CHANNELS[0], CHANNELS[1] // CHANNELS[0])
    moved = jnp.einsum("pqk,kgo->gpqo", _places((height, width), SIDES[1]), kernel)
    pooled = pooled.reshape(CHANNELS[0], num_images, height * width)
    found = nn.relu(jnp.einsum("gnp,gpqo->gnqo", pooled, moved)).mean(axis=2)
    return jnp.moveaxis(found, 0, 1).reshape(num_images, CHANNELS[1])


def _places(size: tuple[int, int], side: int) -> np.ndarray:
    """(pixels, places, entries) of zeros and ones: the entry of a kernel that covers a pixel from a place."""
    rows, columns = (
        np.arange(each)[:, None, None] - np.arange(each - side + 1)[:, None] == np.arange(side)
        for each in size
    )
    found = np.einsum("hak,wbl->hwabkl", rows.astype(np.float32), columns.astype(np.float32))
    return found.reshape(math.prod(size), -1, side**2)


CHANNELS, SIDES, POOL = (2, 10), (4, 5), 3
"""OptuNet's: channels and sides of the two convolutions, side of the pooling."""
WAYS = {"convolutions": _convolved, "products": _multiplied}
"""What goes before the head of OptuNet, by what it is computed by."""


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

    `computed_by="products"` is the same function of the same parameters, ten times as fast in training on a
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
