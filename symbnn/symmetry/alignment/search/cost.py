"""Matching costs of one group for a block of networks, in one jitted call.

With every network moved by its current element, cost[i, j] is the inner product of what the target holds at
unit i with what the network holds at unit j, over every feature that has the group. Choosing σ gains exactly
Σ_i cost[i, σ(i)] − cost[i, i] when each feature has the group once. Where a feature has it twice (recurrent
weights) the sum over both axes_with is the gradient of a quadratic objective. Features of different parity
(`signs`) have costs of their own.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbnn.symmetry.alignment.features import Arrays, element_of
from symbnn.symmetry.alignment.features.signs import Parity, character, matrix_key, sign_key
from symbnn.symmetry.group import act_leaf
from symbnn.symmetry.group.act import transposed
from symbnn.symmetry.spec import Group, Leaf, SymmetrySpec

DevicePermutations = Mapping[str, jax.Array | np.ndarray]
"""By group; signs are kept beside them (`signs.sign_key`). A compiled function copies arrays of the host,
ten times as fast as `device_put`."""


def axes_with(leaf: Leaf, group: str) -> list[int]:
    """Axes of a feature that carry the group."""
    return [axis for axis, factor in leaf.factors() if factor.group == group]


def is_simple(spec: SymmetrySpec, leaves: tuple[Leaf, ...], group: str) -> bool:
    """Whether the objective is linear in the group's permutation and no other group varies over it."""
    return all(len(axes_with(leaf, group)) <= 1 for leaf in leaves) and not any(
        group in other.over for other in spec.groups
    )


@partial(jax.jit, static_argnames=("spec", "leaves", "group", "odd"))
def block_cost(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    group: str,
    targets: Arrays,
    arrays: Arrays,
    fixed: Float[Array, "items *over n n"] | None,
    index: Int[Array, " b"],
    permutations: DevicePermutations,
    odd: Parity = (),
) -> Float[Array, "b *over n n"]:
    """Cost of `group` for the networks at `index`; `fixed` adds what does not depend on other groups.

    `leaves`, `targets` and `arrays` hold only features that have the group, all of one parity. A target is
    shared, or has a leading axis over the networks.
    """
    current = {name: value[index] for name, value in permutations.items()}
    keys = (group, sign_key(group), matrix_key(group))
    own, own_signs, own_matrices = (current.get(key) for key in keys)
    if is_simple(spec, leaves, group):
        current = {name: value for name, value in current.items() if name not in keys}
    total = None if fixed is None else fixed[index]
    for leaf, target, array in zip(leaves, targets, arrays, strict=True):
        moved = moved_feature(spec, leaf, current, array[index])
        part = pair_cost(spec, leaf, spec.group(group), target_at(leaf, target, index), moved)
        total = part if total is None else total + part
    assert total is not None
    if group in current:
        return total
    assert own is not None
    cost = jnp.take_along_axis(total, own[..., None, :], axis=-1)
    if own_signs is not None and any(odd):
        cost = cost * character(odd, jnp.moveaxis(own_signs, 1, 0)).astype(cost.dtype)[..., None, :]
    return cost if own_matrices is None else cost @ transposed(own_matrices)


def target_at(leaf: Leaf, target: jax.Array, index: jax.Array | np.ndarray) -> jax.Array:
    """Targets of some networks where each has its own, else the one of all."""
    return target[index] if target.ndim > len(leaf.shape) else target


def moved_feature(spec: SymmetrySpec, leaf: Leaf, moves: DevicePermutations, arrays: jax.Array) -> jax.Array:
    """A feature of several networks, each moved by its permutations and signs."""
    return jax.vmap(lambda move, one: act_leaf(spec, element_of(move), leaf, one))(moves, arrays)


def pair_cost(spec: SymmetrySpec, leaf: Leaf, group: Group, target: jax.Array, moved: jax.Array) -> jax.Array:
    """Inner products of the group's units in one feature, summed over the axes that carry it."""
    axes = [factor.group for _, factor in leaf.factors()]
    total = None
    for axis in axes_with(leaf, group.name):
        left, right = list(range(len(axes))), list(range(len(axes)))
        right[axis] = len(axes)
        over = [axes.index(name) for name in group.over]
        batch = len(axes) + 1
        part = jnp.einsum(
            target,
            [batch, *left] if target.ndim > len(axes) else left,
            moved,
            [batch, *right],
            [batch, *over, left[axis], right[axis]],
            preferred_element_type=jnp.float32 if moved.dtype.itemsize < 4 else moved.dtype,
        )
        total = part if total is None else total + part
    assert total is not None
    return total


@partial(jax.jit, static_argnames=("spec", "leaves"))
def inner_product(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    targets: Arrays,
    arrays: Arrays,
    permutations: DevicePermutations,
) -> Float[Array, " items"]:
    """Σ_features ⟨target, g · array⟩ of every network."""

    def one(number: jax.Array, one_permutations: DevicePermutations, one_arrays: Arrays) -> jax.Array:
        element = element_of(one_permutations)
        return sum(
            (
                jnp.vdot(target_at(leaf, target, number), act_leaf(spec, element, leaf, array))
                for leaf, target, array in zip(leaves, targets, one_arrays, strict=True)
            ),
            start=jnp.zeros(()),
        )

    # One network at a time: moving all of them at once would hold a second copy of every array.
    numbers = jnp.arange(len(arrays[0]))
    return jax.lax.map(lambda item: one(*item), (numbers, permutations, arrays))
