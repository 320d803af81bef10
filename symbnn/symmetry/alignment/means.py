"""Mean and variance of the features of many networks, each moved by its permutations and signs."""

from functools import partial

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.alignment.features import Arrays, element_of
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.search import DevicePermutations, HostPermutations, groups_only
from symbnn.symmetry.group import act_leaf
from symbnn.symmetry.spec import Leaf, SymmetrySpec


def mean_features(matching: Matching, permutations: HostPermutations) -> Arrays:
    """Mean over the networks of their features, each moved by its permutations."""
    return _average(matching, permutations, None)


def variance_of_features(matching: Matching, permutations: HostPermutations) -> Arrays:
    """Their variance, in a second pass about the mean: E[x²] − m² would cancel in float32."""
    return _average(matching, permutations, mean_features(matching, permutations))


@jax.jit
def squared_lengths(arrays: Arrays) -> jax.Array:
    """‖x‖² of every network."""
    return sum((jnp.sum(array**2, axis=range(1, array.ndim)) for array in arrays), start=jnp.zeros(()))


def _average(matching: Matching, permutations: HostPermutations, centre: Arrays | None) -> Arrays:
    """Of the moved features, or of their squared distances from a centre."""
    num = tree.num_samples(matching.samples)
    sums: Arrays | None = None
    for chunk, arrays in matching.chunks():
        here = {name: value[chunk] for name, value in permutations.items()}
        part = _moved_sums(groups_only(matching.spec), matching.features.leaves, arrays, here, centre)
        sums = part if sums is None else jax.tree.map(jnp.add, sums, part)
    assert sums is not None
    return tuple(total / num for total in sums)


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _moved_sums(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    arrays: Arrays,
    permutations: DevicePermutations,
    centre: Arrays | None,
) -> Arrays:
    """Sums over the networks, one network at a time."""

    def add(sums: Arrays, one: tuple[Arrays, DevicePermutations]) -> tuple[Arrays, None]:
        element = element_of(one[1])
        moved = [act_leaf(spec, element, leaf, array) for leaf, array in zip(leaves, one[0], strict=True)]
        if centre is not None:
            moved = [(array - middle) ** 2 for array, middle in zip(moved, centre, strict=True)]
        return tuple(total + array for total, array in zip(sums, moved, strict=True)), None

    zeros = tuple(jnp.zeros(array.shape[1:], array.dtype) for array in arrays)
    return jax.lax.scan(add, zeros, (arrays, permutations))[0]
