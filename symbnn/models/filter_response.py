"""ResNet-20 with filter response normalisation: no batch statistics, so its posterior is well defined.

FRN (Singh & Krishnan 2020) divides each channel of each image by its root mean square over positions,
    y = max(γ x / √(mean x² + ε) + β, τ),
where the learnt threshold τ is the thresholded linear unit. As in Izmailov et al. (2021) an activation
(swish) follows; "identity" leaves the threshold alone. Their network, of which the full-batch HMC reference
was made, also has a bias in every convolution, 274,042 parameters in all, which FRN does not take out; ours
has none.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import activation as activation_named
from symbnn.models.layers import check_image, convolution, dense, scaled
from symbnn.models.wrapping.wrap import from_module


class FilterResponseNorm(nn.Module):
    """γ x / √(mean x² + ε) + β, then the maximum with τ; the mean is over the positions of one image."""

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalised and thresholded NHWC features."""
        channels = (x.shape[-1],)
        scale = self.param("scale", nn.initializers.ones, channels)
        bias = self.param("bias", nn.initializers.zeros, channels)
        threshold = self.param("threshold", nn.initializers.zeros, channels)
        power = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True)
        return jnp.maximum(scale * x * jax.lax.rsqrt(power + self.epsilon) + bias, threshold)


class FilterResponseBlock(nn.Module):
    """Two normalised 3x3 convolutions added to the (projected) input, then the activation."""

    channels: int
    stride: int
    activation: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Next value of the residual stream."""
        phi = activation_named(self.activation)
        y = convolution(self.channels, 3, self.stride, name="conv1")(x)
        y = phi(FilterResponseNorm(name="norm1")(y))
        y = FilterResponseNorm(name="norm2")(convolution(self.channels, 3, name="conv2")(y))
        if x.shape[-1] != self.channels or self.stride != 1:
            x = convolution(self.channels, 1, self.stride, name="shortcut_conv")(x)
            x = FilterResponseNorm(name="shortcut_norm")(x)
        return phi(x + y)


class FilterResponseResNet(nn.Module):
    """Stem, three stages `layer1_0`, ..., global average, `out`."""

    num_blocks: int
    num_outputs: int
    activation: str
    width: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of NHWC images."""
        x = convolution(scaled(16, self.width), 3, name="conv1")(x)
        x = activation_named(self.activation)(FilterResponseNorm(name="norm1")(x))
        for stage in range(3):
            for index in range(self.num_blocks):
                channels, stride = scaled(16 * 2**stage, self.width), 2 if stage > 0 and index == 0 else 1
                name = f"layer{stage + 1}_{index}"
                x = FilterResponseBlock(channels, stride, self.activation, name=name)(x)
        x = x.mean(axis=(1, 2))
        return dense(self.num_outputs, x.shape[-1], "out")(x)


def resnet20_frn(
    input_shape: tuple[int, ...], num_outputs: int, *, activation: str = "swish", width: float = 1.0
) -> Model:
    """ResNet-20-FRN (273,258 parameters for CIFAR-10); `width` multiplies the number of channels."""
    check_image("resnet20_frn", input_shape, smallest=4)
    activation_named(activation)
    return from_module(FilterResponseResNet(3, num_outputs, activation, float(width)), input_shape)
