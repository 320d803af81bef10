"""Language model after GPT (Radford et al. 2019): tokens, learned positions, causal pre-norm blocks.

Norms are RMSNorm (Zhang & Sennrich 2019) and no layer has a bias, as in Llama: with its gains folded away
(`symmetry.fold_gains`) the residual stream may be rotated by any orthogonal matrix.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from symbnn.models.base import Model
from symbnn.models.layers import activation
from symbnn.models.wrapping.wrap import from_module


class DecoderBlock(nn.Module):
    """x + attention(norm(x)) to what came before, then x + mlp(norm(x))."""

    num_heads: int
    mlp_units: int

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Next value of the residual stream."""
        y = nn.RMSNorm(name="norm1")(x)
        x = x + nn.MultiHeadDotProductAttention(self.num_heads, use_bias=False, name="attention")(
            y, mask=mask
        )
        y = nn.RMSNorm(name="norm2")(x)
        y = activation("gelu")(nn.Dense(self.mlp_units, use_bias=False, name="mlp_in")(y))
        return x + nn.Dense(x.shape[-1], use_bias=False, name="mlp_out")(y)


class LanguageModel(nn.Module):
    """Tokens and positions, blocks `block0`, ..., norm, `out` at every position."""

    num_outputs: int
    dimension: int
    depth: int
    num_heads: int
    mlp_units: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits `(batch, length, symbols)` of the symbol that follows each token."""
        x = nn.Embed(self.num_outputs, self.dimension, name="tokens")(tokens)
        start = nn.initializers.normal(0.02)
        x = x + self.param("positions", start, (tokens.shape[1], self.dimension))
        mask = nn.make_causal_mask(tokens)
        for index in range(self.depth):
            x = DecoderBlock(self.num_heads, self.mlp_units, name=f"block{index}")(x, mask)
        return nn.Dense(self.num_outputs, use_bias=False, name="out")(nn.RMSNorm(name="norm")(x))


def gpt(
    input_shape: tuple[int, ...],
    num_outputs: int,
    *,
    dimension: int = 32,
    depth: int = 2,
    num_heads: int = 4,
    mlp_units: int = 128,
) -> Model:
    """Small causal language model: logits `(batch, length, num_outputs)` of whole numbers `(batch, length)`.

    Args:
        input_shape: (length,) of a sequence.
        num_outputs: Different symbols.
        dimension: Of the residual stream; a multiple of `num_heads`.
        depth: Number of blocks.
        num_heads: Of every attention.
        mlp_units: Hidden units of every block's perceptron.
    """
    if len(input_shape) != 1:
        raise ValueError(f"gpt takes sequences, input_shape (length,); got {tuple(input_shape)}")
    if dimension % num_heads:
        raise ValueError(f"num_heads must divide dimension, {dimension}; got {num_heads}")
    module = LanguageModel(num_outputs, dimension, depth, num_heads, mlp_units)
    return from_module(module, input_shape, dtype=jnp.int32)
