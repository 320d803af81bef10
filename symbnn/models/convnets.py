"""Small convolutional networks: LeNet-5 and OptuNet, both with PyTorch's default initialisation.

OptuNet is the few-hundred-parameter MNIST net of Laurent et al. (ICLR 2024): two convolutions without biases,
the second in two groups, a global average and a head. With one hidden layer of 3 units in the head it has the
355 parameters of the published OptuMNIST; without hidden layer, 392.

In so small networks a convolution spends its time on all but arithmetic. By matrix products they train faster
on a CPU (a step on one core, of 64 images of OptuNet 0.4 ms instead of 5.4, of 50 of LeNet 4.3 ms instead of
12), and networks side by side are no grouped convolutions.
"""

import math
from collections.abc import Callable, Sequence

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
    computed_by: str = "convolutions"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of NHWC images."""
        phi, convolve = activation_named(self.activation), LENET_BY[self.computed_by]
        x = convolve(x, [scaled(channels, self.width) for channels in (6, 16)], phi).reshape(x.shape[0], -1)
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
        x = OPTUNET_BY[self.computed_by](x)
        for index, units in enumerate(self.hidden):
            name = "hidden" if len(self.hidden) == 1 else f"hidden{index}"
            x = nn.relu(dense(units, x.shape[-1], name)(x))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


class Kernel(nn.Module):
    """The parameters of an `nn.Conv`, for those who convolve by themselves."""

    shape: tuple[int, int, int, int]
    use_bias: bool = False

    @nn.compact
    def __call__(self) -> dict[str, jax.Array]:
        """`kernel` (height, width, channels in of a group, channels), and `bias` if there is one."""
        shapes = {"kernel": self.shape} | ({"bias": self.shape[3:]} if self.use_bias else {})
        init = fan_in_uniform(math.prod(self.shape[:3]))
        return {name: self.param(name, init, shape) for name, shape in shapes.items()}


def _lenet_convolved(x: jax.Array, channels: list[int], phi: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """What the dense layers of a LeNet see, NHWC, as one writes it."""
    for name, number, padding in zip(("conv1", "conv2"), channels, ("SAME", "VALID"), strict=True):
        x = phi(_convolution(number, LENET_SIDE, x.shape[-1], name, padding=padding)(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
    return x


def _lenet_multiplied(x: jax.Array, channels: list[int], phi: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The same by matrix products."""
    margin = (LENET_SIDE // 2, LENET_SIDE // 2)
    x = jnp.pad(jnp.moveaxis(x, -1, 0), ((0, 0), (0, 0), margin, margin))
    for name, number in zip(("conv1", "conv2"), channels, strict=True):
        held = Kernel((LENET_SIDE, LENET_SIDE, x.shape[0], number), use_bias=True, name=name)()
        bias = jnp.expand_dims(held["bias"], (1, 2, 3, 4))
        x = phi(_before_pooling(x, held["kernel"], 2) + bias).max(axis=1)
    return jnp.moveaxis(x, 0, -1)


def _optunet_convolved(x: jax.Array) -> jax.Array:
    """What the head of an OptuNet sees, as one writes it."""
    x = _convolution(CHANNELS[0], SIDES[0], x.shape[-1], "conv1", use_bias=False)(x)
    # The largest of nine is rectified instead of all nine, which gives the same.
    x = nn.relu(nn.max_pool(x, (POOL, POOL), (POOL, POOL)))
    x = _convolution(CHANNELS[1], SIDES[1], CHANNELS[0], "conv2", use_bias=False, groups=CHANNELS[0])(x)
    return nn.relu(x).mean(axis=(1, 2))


def _optunet_multiplied(x: jax.Array) -> jax.Array:
    """The same by matrix products; the second multiplies, for every group, images by all places at once."""
    kernel = Kernel((SIDES[0], SIDES[0], x.shape[-1], CHANNELS[0]), name="conv1")()["kernel"]
    x = nn.relu(_before_pooling(jnp.moveaxis(x, -1, 0), kernel, POOL).max(axis=1))
    # A group is one channel of the first.
    kernel = Kernel((SIDES[1], SIDES[1], 1, CHANNELS[1]), name="conv2")()["kernel"]
    kernel = kernel.reshape(-1, CHANNELS[0], CHANNELS[1] // CHANNELS[0])
    moved = jnp.einsum("pqk,kgo->gpqo", _places(x.shape[2:], SIDES[1]), kernel)
    x = x.reshape(*x.shape[:2], -1)
    x = nn.relu(jnp.einsum("gnp,gpqo->gnqo", x, moved)).mean(axis=2)
    return jnp.moveaxis(x, 0, 1).reshape(-1, CHANNELS[1])


def _before_pooling(x: jax.Array, kernel: jax.Array, pool: int) -> jax.Array:
    """A convolution without padding of (channels, images, height, width), one matrix product.

    All that is pooled into one value lies in a patch: of 6 x 6 pixels, if 3 x 3 places are pooled and the
    kernel has 4 x 4. The kernel, moved to every one of these places, is a matrix that multiplies all patches.
    Gives (channels, places of a patch, images, height, width), to be pooled over the second axis.
    """
    side, _, channels_in, channels = kernel.shape
    height, width = ((size - side + 1) // pool for size in x.shape[2:])
    patch = side + pool - 1
    patches = jnp.stack(
        [
            x[:, :, top : top + pool * height : pool, left : left + pool * width : pool]
            for top in range(patch)
            for left in range(patch)
        ]
    )
    moved = jnp.einsum(
        "pqk,kic->cqpi", _places((patch, patch), side), kernel.reshape(-1, channels_in, channels)
    )
    found = jnp.einsum(
        "cqp,pn->cqn", moved.reshape(channels, pool**2, -1), patches.reshape(patch**2 * channels_in, -1)
    )
    return found.reshape(channels, pool**2, x.shape[1], height, width)


def _places(size: Sequence[int], side: int) -> np.ndarray:
    """(pixels, places, entries) of zeros and ones: the entry of a kernel that covers a pixel from a place."""
    rows, columns = (
        np.arange(each)[:, None, None] - np.arange(each - side + 1)[:, None] == np.arange(side)
        for each in size
    )
    found = np.einsum("hak,wbl->hwabkl", rows.astype(np.float32), columns.astype(np.float32))
    return found.reshape(math.prod(size), -1, side**2)


LENET_SIDE = 5
"""Of both convolutions of LeNet."""
CHANNELS, SIDES, POOL = (2, 10), (4, 5), 3
"""OptuNet's: channels and sides of the two convolutions, side of the pooling."""
LENET_BY = {"convolutions": _lenet_convolved, "products": _lenet_multiplied}
OPTUNET_BY = {"convolutions": _optunet_convolved, "products": _optunet_multiplied}
"""What goes before the dense layers, by `computed_by`."""


def lenet(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    activation: str = "relu",
    width: float = 1.0,
    computed_by: str = "convolutions",
) -> Model:
    """LeNet-5 (61,706 parameters on 28x28 images with 10 classes); `width` multiplies every hidden width.

    `computed_by="products"` is the same function of the same parameters, three times as fast in training on a
    CPU; files of PyTorch are read with `"convolutions"`, as their layers are known by these.
    """
    # 12 -> 6 after the first pooling, 2 after the second convolution, 1 after the second pooling.
    check_image("lenet", input_shape, smallest=12)
    activation_named(activation)
    names.lookup(LENET_BY, computed_by, "computed_by")
    return from_module(LeNet(num_outputs, activation, float(width), computed_by), input_shape)


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
    names.lookup(OPTUNET_BY, computed_by, "computed_by")
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
