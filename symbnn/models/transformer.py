"""Vision transformer (Dosovitskiy et al. 2021): patches, class token, pre-norm blocks."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import activation, check_dropout, check_image
from symbnn.models.wrapping.wrap import from_module

# The original code, torchvision and timm agree on this value, which is not Flax's default.
LAYER_NORM_EPSILON = 1e-6


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    num_heads: int
    mlp_units: int
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Next value of the residual stream."""
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, name="norm1")(x)
        y = nn.MultiHeadDotProductAttention(self.num_heads, name="attention")(y)
        x = x + nn.Dropout(self.dropout, deterministic=not train, name="dropout1")(y)
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, name="norm2")(x)
        y = activation("gelu")(nn.Dense(self.mlp_units, name="mlp_in")(y))
        y = nn.Dropout(self.dropout, deterministic=not train, name="dropout2")(y)
        y = nn.Dense(x.shape[-1], name="mlp_out")(y)
        return x + nn.Dropout(self.dropout, deterministic=not train, name="dropout3")(y)


class VisionTransformer(nn.Module):
    """Patch embedding, class token, positions, blocks `block0`, ..., norm, `out` on the class token."""

    num_outputs: int
    patch: int
    dimension: int
    depth: int
    num_heads: int
    mlp_units: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Logits of NHWC images."""
        window = (self.patch, self.patch)
        x = nn.Conv(self.dimension, window, strides=window, padding="VALID", name="patches")(x)
        x = x.reshape(x.shape[0], -1, self.dimension)
        token = self.param("token", nn.initializers.zeros, (1, 1, self.dimension))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.dimension)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.02), (1, x.shape[1], self.dimension))
        x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
        for index in range(self.depth):
            x = EncoderBlock(self.num_heads, self.mlp_units, self.dropout, name=f"block{index}")(x, train)
        x = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, name="norm")(x)
        return nn.Dense(self.num_outputs, name="out")(x[:, 0])


def vit(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    patch: int = 4,
    dimension: int = 64,
    depth: int = 4,
    num_heads: int = 4,
    mlp_units: int = 128,
    dropout: float = 0.0,
) -> Model:
    """Small vision transformer.

    Args:
        input_shape: (height, width, channels).
        num_outputs: Width of the last layer.
        patch: Side of a patch in pixels; divides height and width.
        dimension: Of a token; a multiple of `num_heads`.
        depth: Number of encoder blocks.
        num_heads: Of every attention.
        mlp_units: Hidden units of every block's perceptron.
        dropout: Probability of dropping a number, in training mode only.
    """
    check_image("vit", input_shape, smallest=patch)
    check_dropout(dropout)
    if input_shape[0] % patch or input_shape[1] % patch:
        raise ValueError(f"patch must divide the sides of images of shape {tuple(input_shape)}; got {patch}")
    if dimension % num_heads:
        raise ValueError(f"num_heads must divide dimension, {dimension}; got {num_heads}")
    module = VisionTransformer(num_outputs, patch, dimension, depth, num_heads, mlp_units, float(dropout))
    return from_module(module, input_shape)


def vit_b16(
    input_shape: tuple[int, ...], num_outputs: int, *, width: float = 1.0, dropout: float = 0.0
) -> Model:
    """ViT-B/16 (86,567,656 parameters for ImageNet at 224 pixels).

    `width` multiplies the dimension of a head and the units of the perceptrons.
    """
    return vit(
        input_shape,
        num_outputs,
        patch=16,
        dimension=12 * max(1, round(64 * width)),
        depth=12,
        num_heads=12,
        mlp_units=max(1, round(3072 * width)),
        dropout=dropout,
    )
