"""Mean and variance of the features of many networks, each moved by its permutations and signs."""

from functools import partial

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.alignment.features import Arrays, element_of
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.search import HostPermutations, groups_only, on_device
from symbnn.symmetry.group import act_leaf
from symbnn.symmetry.spec import Leaf, SymmetrySpec


def mean_features(matching: Matching, permutations: HostPermutations) -> tuple[Arrays, Arrays]:
    """Mean and variance over the networks of their features, each moved by its permutations."""
    num = tree.num_samples(matching.samples)
    sums: tuple[Arrays, Arrays] | None = None
    for chunk, arrays in matching.chunks():
        here = on_device({name: value[chunk] for name, value in permutations.items()})
        part = _moved_sums(groups_only(matching.spec), matching.features.leaves, arrays, here)
        sums = part if sums is None else jax.tree.map(jnp.add, sums, part)
    assert sums is not None
    mean = tuple(total / num for total in sums[0])
    return mean, tuple(jnp.maximum(s / num - m**2, 0) for s, m in zip(sums[1], mean, strict=True))


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _moved_sums(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], arrays: Arrays, permutations: dict[str, jax.Array]
) -> tuple[Arrays, Arrays]:
    """Sums over the networks of the moved features and of their squares, one network at a time."""

    def add(sums: tuple[Arrays, Arrays], one: tuple[Arrays, dict]) -> tuple[tuple[Arrays, Arrays], None]:
        element = element_of(one[1])
        moved = tuple(
            act_leaf(spec, element, leaf, array) for leaf, array in zip(leaves, one[0], strict=True)
        )
        first = tuple(total + array for total, array in zip(sums[0], moved, strict=True))
        second = tuple(total + array**2 for total, array in zip(sums[1], moved, strict=True))
        return (first, second), None

    zeros = tuple(jnp.zeros(array.shape[1:], array.dtype) for array in arrays)
    return jax.lax.scan(add, (zeros, zeros), (arrays, permutations))[0]
