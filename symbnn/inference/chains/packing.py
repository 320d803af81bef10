"""The weights of a chain as one vector while it moves, and as a tree wherever it is kept.

Of a network with ten leaves a transition is hundreds of programs on a handful of numbers each, which cost a
small network as much as its gradient; on one vector they are a tenth as many.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from symbnn.density import LogDensity
from symbnn.inference.chains.kernels import Kernel


class Packing(NamedTuple):
    """A log-density over what `pack` makes of weights; `unpack` undoes `pack`."""

    density: LogDensity
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def pack(kernel: Kernel, chain: Any, density: LogDensity) -> Packing:
    """How a chain moves: as one vector if its kernel takes that and all weights have one dtype."""
    params = chain.sampler.position
    leaves = jax.tree.leaves(params)
    structure: Any = jax.tree.structure(params)
    if not kernel.takes_vectors or len(leaves) == 1 or len({leaf.dtype for leaf in leaves}) > 1:
        return Packing(density, lambda chain: chain, lambda chain: chain)
    shapes = [leaf.shape for leaf in leaves]
    _, unravel = ravel_pytree(params)

    def is_like_params(node: Any) -> bool:
        return jax.tree.structure(node) == structure and list(map(jnp.shape, jax.tree.leaves(node))) == shapes

    places, outline = jax.tree.flatten(chain, is_leaf=is_like_params)
    is_vector = [is_like_params(place) for place in places]

    def change(convert: Callable[[Any], Any], chain: Any) -> Any:
        flags = jax.tree.unflatten(outline, is_vector)
        return jax.tree.map(lambda here, part: convert(part) if here else part, flags, chain)

    return Packing(
        LogDensity(lambda vector: density(unravel(vector))),
        lambda chain: change(lambda tree: ravel_pytree(tree)[0], chain),
        lambda chain: change(unravel, chain),
    )
