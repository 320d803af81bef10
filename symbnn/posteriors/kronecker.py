"""A Gaussian over weights whose covariance is, leaf by leaf, diagonal in a basis of Kronecker form.

A leaf is laid out as a matrix W of (inputs, outputs). With orthogonal matrices L and R over the two,

    W = M + L (S∘ε) Rᵀ,    ε independent unit normals, S their standard deviations,

so vec W has covariance (L ⊗ R) diag(vec S²) (L ⊗ R)ᵀ. This is the form of (A ⊗ B + δ I)⁻¹, with the
eigenvectors of A and B: the posterior where curvature is a Kronecker product (Ritter et al. 2018). It stores
in² + out² + 2 in·out numbers for a leaf of in·out weights.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import check_num, register
from symbnn.posteriors.gaussian import LOG_TWO_PI
from symbnn.types import Key, Params, Samples


@register(static=("inputs",))
@dataclasses.dataclass(frozen=True)
class Block:
    """The law of one leaf around its mean."""

    left: Any
    """L, (in, in)."""
    right: Any
    """R, (out, out)."""
    std: Any
    """S, (in, out)."""
    inputs: tuple[int, ...]
    """Axes of the leaf that are its inputs, rising; the others are its outputs. A bias has none."""

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """`ValueError` unless this is the law of a leaf of this `shape`."""
        expected = self._sizes(shape)
        given = jnp.shape(self.left), jnp.shape(self.right), jnp.shape(self.std)
        if given != ((expected[0],) * 2, (expected[1],) * 2, expected):
            raise ValueError(
                f"blocks: leaf {name!r} of shape {shape} with inputs {self.inputs} is a matrix {expected}; "
                f"left, right and std have shapes {given[0]}, {given[1]} and {given[2]}"
            )

    def turn(self, leaf: Array) -> Float[Array, "i o"]:
        """Lᵀ W R: the leaf in coordinates that are independent."""
        order = self._order(leaf.ndim)
        return self.left.T @ leaf.transpose(order).reshape(self.std.shape) @ self.right

    def turn_back(self, coordinates: Float[Array, "i o"], shape: tuple[int, ...]) -> Array:
        """The inverse of `turn`, for a leaf of this shape."""
        order = self._order(len(shape))
        matrix = self.left @ coordinates @ self.right.T
        back = sorted(range(len(shape)), key=order.__getitem__)
        return matrix.reshape([shape[axis] for axis in order]).transpose(back)

    def _order(self, num_axes: int) -> tuple[int, ...]:
        return (*self.inputs, *(axis for axis in range(num_axes) if axis not in self.inputs))

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        num_inputs = math.prod(shape[axis] for axis in self.inputs)
        return num_inputs, math.prod(shape) // num_inputs


@register()
@dataclasses.dataclass(frozen=True)
class KroneckerGaussian:
    """Leaves are independent of one another; each follows its `Block` around its mean."""

    mean: Params
    blocks: dict[str, Block]
    """By leaf name."""

    def __post_init__(self) -> None:
        leaves = tree.named_leaves(self.mean)
        if leaves.keys() != self.blocks.keys():
            missing, unknown = (
                sorted(some.keys() - other.keys())
                for some, other in ((leaves, self.blocks), (self.blocks, leaves))
            )
            raise ValueError(f"blocks: missing leaves {missing}, unknown leaves {unknown}")
        for name, leaf in leaves.items():
            self.blocks[name].check(name, jnp.shape(leaf))

    def sample(self, key: Key, num: int) -> Samples:
        """`num` draws."""
        check_num(num)

        def draw(draw_key: Key) -> Params:
            noise = tree.draw_like(draw_key, self.mean)
            return tree.map_named(self._moved, self.mean, noise)

        return jax.vmap(draw)(jax.random.split(key, num))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density."""
        tree.check_same_shapes("params", params, self.mean)

        def leaf(name: str, value: Array, mean: Array) -> Array:
            block = self.blocks[name]
            scaled = block.turn(value - mean) / block.std
            return jnp.sum(-0.5 * jnp.square(scaled) - jnp.log(block.std) - 0.5 * LOG_TWO_PI)

        return jnp.sum(jnp.stack(jax.tree.leaves(tree.map_named(leaf, params, self.mean))))

    def loadings(self, direction: Params) -> Params:
        """S∘(Lᵀ direction R), leaf by leaf (see `posteriors.Gaussian`)."""
        return tree.map_named(
            lambda name, leaf: self.blocks[name].std * self.blocks[name].turn(leaf), direction
        )

    def _moved(self, name: str, mean: Array, noise: Array) -> Array:
        block = self.blocks[name]
        return mean + block.turn_back(block.std * noise.reshape(block.std.shape), mean.shape)
