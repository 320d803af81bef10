"""Relabelling alone: the permutation part of a spec, without scales and signs."""

from collections.abc import Mapping
from dataclasses import replace

import jax

from symbnn import tree
from symbnn.symmetry.group.act import Element, act_leaf
from symbnn.symmetry.spec import Factor, Leaf, SymmetrySpec, map_atoms
from symbnn.types import Params


def permutations_only(spec: SymmetrySpec) -> SymmetrySpec:
    """The same groups with no generator of scales or signs."""
    return SymmetrySpec(
        groups=tuple(replace(group, num_scales=0, num_signs=0) for group in spec.groups),
        leaves=tuple(
            Leaf(leaf.name, leaf.shape, tuple(map_atoms(_permuted, word) for word in leaf.axes))
            for leaf in spec.leaves
        ),
        indices=spec.indices,
    )


def permute(spec: SymmetrySpec, permutations: Mapping[str, jax.Array], params: Params) -> Params:
    """The network with the units of the given groups relabelled; the other groups stay."""
    leaves = {leaf.name: leaf for leaf in permutations_only(spec).leaves}
    element = Element(dict(permutations), {}, {})
    return tree.map_named(lambda name, array: act_leaf(spec, element, leaves[name], array), params)


def _permuted(factor: Factor) -> Factor:
    return Factor(factor.size, factor.group)
