"""What is compared when two networks are matched: arrays whose axes carry groups.

A feature is a leaf-like description (one plain factor per axis) and an array. Weight matching compares the
pieces of the weights, activation matching compares activations, alignment of Gaussians compares means and
standard deviations; the search over permutations does not know the difference. All of them maximise

    Σ_features ⟨target, g · array⟩.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.numerics import unit_of
from symbnn.symmetry.spec import Factor, Leaf, Role, SymmetrySpec, pieces, split
from symbnn.symmetry.spec.layer_order import producing_axes
from symbnn.types import Params, Samples

ACTIVATION = "activation"
"""Name of the features that are activations."""

Arrays = tuple[jax.Array, ...]


class Features(NamedTuple):
    """Descriptions of the features, and the function that takes them from stacked networks."""

    leaves: tuple[Leaf, ...]
    extract: Callable[[Samples], Arrays]


def weight_features(spec: SymmetrySpec, params: Params) -> Features:
    """Every piece of every floating-point leaf that some group moves."""
    floating = frozenset(
        name for name, leaf in tree.named_leaves(params).items() if jnp.issubdtype(leaf.dtype, jnp.floating)
    )
    leaves = tuple(
        plain_leaf(leaf.name, factors)
        for leaf in spec.leaves
        if leaf.name in floating
        for factors in pieces(leaf.axes)
        if is_moved(spec, factors)
    )
    return Features(leaves, lambda samples: _weight_pieces(spec, floating, samples))


def in_units(features: Features, params: Params) -> tuple[Features, float]:
    """The features measured in those of one network where their products would leave float32; the unit."""
    one = features.extract(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params))
    unit = unit_of(max(float(jnp.max(jnp.abs(array))) for array in one))
    if unit == 1.0:
        return features, unit
    return Features(features.leaves, lambda samples: tuple(a / unit for a in features.extract(samples))), unit


def plain_leaf(name: str, factors: tuple[Factor, ...]) -> Leaf:
    """Description of a piece by sizes, groups, signs and roles: matching does not rescale."""
    roles: list[Role] = ["produces" if writes else "consumes" for writes in producing_axes(factors)]
    described = zip(factors, roles, strict=True)
    plain = tuple((Factor(f.size, f.group, signs=f.signs, role=role),) for f, role in described)
    return Leaf(name, tuple(factor.size for factor in factors), plain)


def is_moved(spec: SymmetrySpec, factors: tuple[Factor, ...]) -> bool:
    """Whether some group relabels an axis of the piece."""
    groups = {group.name for group in spec.groups}
    return any(factor.group in groups for factor in factors)


@partial(jax.jit, static_argnames=("spec", "floating"))
def _weight_pieces(spec: SymmetrySpec, floating: frozenset[str], samples: Samples) -> Arrays:
    arrays = tree.named_leaves(samples)
    return tuple(
        piece
        for leaf in spec.leaves
        if leaf.name in floating
        for piece in _moved_pieces(spec, leaf, arrays[leaf.name])
    )


def _moved_pieces(spec: SymmetrySpec, leaf: Leaf, array: jax.Array) -> list[jax.Array]:
    described = pieces(leaf.axes)
    # Sums of squares of float16 weights overflow at 65,504.
    array = array.astype(jnp.promote_types(array.dtype, jnp.float32))
    arrays = jax.vmap(lambda one: [piece.array for piece in split(leaf.axes, one)])(array)
    return [piece for factors, piece in zip(described, arrays, strict=True) if is_moved(spec, factors)]
