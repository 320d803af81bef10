"""Which weights are shared, and where each lies in one flat vector.

By default the kernels: every leaf called `kernel`, of convolutions, dense layers and attention. Biases,
scales and shifts of normalisation layers, embeddings and running statistics stay as they are
(deterministic)."""

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.types import Params


def is_kernel(name: str) -> bool:
    """Whether the leaf `name` is shared by default."""
    return name.rsplit("/", 1)[-1] == "kernel"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names and shapes of the shared leaves, in tree order; hashable, static to jit."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weights of every leaf."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def num_weights(self) -> int:
        """All shared weights."""
        return sum(self.sizes)


def layout_of(params: Params, *, select: Callable[[str], bool] = is_kernel) -> Layout:
    """The leaves whose name `select` accepts; `ValueError` if there are none."""
    leaves = {name: leaf for name, leaf in tree.named_leaves(params).items() if select(name)}
    if not leaves:
        raise ValueError(
            f"no leaf is selected for sharing; the leaves are {sorted(tree.named_leaves(params))}"
        )
    return Layout(tuple(leaves), tuple(tuple(map(int, leaf.shape)) for leaf in leaves.values()))


def flatten(layout: Layout, params: Params) -> Float[Array, " n"]:
    """The shared weights of `params` as one vector."""
    leaves = tree.named_leaves(params)
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        found = jnp.shape(leaves[name]) if name in leaves else None
        if found != shape:
            raise ValueError(f"leaf {name!r} has shape {found}; the shared weights need {shape}")
    return jnp.concatenate([jnp.ravel(leaves[name]) for name in layout.names])


def insert(layout: Layout, params: Params, flat: Float[Array, " n"]) -> Params:
    """`params` with its shared leaves cut from `flat`; they may be placeholders (see `remainder`)."""
    leaves = dict(zip(layout.names, tree.cut(flat, layout.shapes), strict=True))
    return tree.map_named(lambda name, leaf: leaves.get(name, leaf), params)


def remainder(layout: Layout, params: Params) -> Params:
    """`params` with an empty array in the place of every shared leaf: what is left to keep."""
    empty = jnp.zeros((0,), jnp.float32)
    return tree.map_named(lambda name, leaf: empty if name in layout.names else jnp.asarray(leaf), params)
