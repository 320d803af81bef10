"""Matching costs of one group for a block of networks, in one jitted call.

With every network moved by its current element, cost[i, j] is the inner product of what the target holds at
unit i with what the network holds at unit j, over every feature that has the group. Choosing σ gains exactly
Σ_i cost[i, σ(i)] − cost[i, i] when each feature has the group once. Where a feature has it twice (recurrent
weights) the sum over both occurrences is the gradient of a quadratic objective.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from symbnn.symmetry.act import Element, act_leaf
from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.spec import Group, Leaf, SymmetrySpec

Permutations = dict[str, jax.Array]


def occurrences(leaf: Leaf, group: str) -> list[int]:
    """Axes of a feature that carry the group."""
    return [axis for axis, factor in leaf.factors() if factor.group == group]


def is_simple(spec: SymmetrySpec, leaves: tuple[Leaf, ...], group: str) -> bool:
    """Whether the objective is linear in the group's permutation and no other group varies over it."""
    return all(len(occurrences(leaf, group)) <= 1 for leaf in leaves) and not any(
        group in other.over for other in spec.groups
    )


@partial(jax.jit, static_argnames=("spec", "leaves", "group"))
def block_cost(
    spec: SymmetrySpec,
    leaves: tuple[Leaf, ...],
    group: str,
    targets: Arrays,
    arrays: Arrays,
    fixed: Float[Array, "items *over n n"] | None,
    index: Int[Array, "b"],
    permutations: Permutations,
) -> Float[Array, "b *over n n"]:
    """Cost of `group` for the networks at `index`; `fixed` adds what does not depend on other groups.

    `leaves`, `targets` and `arrays` hold only features that have the group.
    """
    current = {name: value[index] for name, value in permutations.items()}
    own = current.pop(group)
    if not is_simple(spec, leaves, group):
        current[group] = own
    total = None if fixed is None else fixed[index]
    for leaf, target, array in zip(leaves, targets, arrays, strict=True):
        moved = jax.vmap(lambda perms, one, leaf=leaf: act_leaf(spec, Element(perms, {}, {}), leaf, one))(
            current, array[index]
        )
        part = pair_cost(spec, leaf, spec.group(group), target, moved)
        total = part if total is None else total + part
    assert total is not None
    if group in current:
        return total
    return jnp.take_along_axis(total, own[..., None, :], axis=-1)


def pair_cost(spec: SymmetrySpec, leaf: Leaf, group: Group, target: jax.Array, moved: jax.Array) -> jax.Array:
    """Inner products of the group's units in one feature, summed over the axes that carry it."""
    axes = [factor.group for _, factor in leaf.factors()]
    total = None
    for axis in occurrences(leaf, group.name):
        left, right = list(range(len(axes))), list(range(len(axes)))
        right[axis] = len(axes)
        over = [axes.index(name) for name in group.over]
        batch = len(axes) + 1
        part = jnp.einsum(
            target,
            left,
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
    permutations: Permutations,
) -> Float[Array, "items"]:
    """Σ_features ⟨target, g · array⟩ of every network."""

    def one(one_permutations: Permutations, one_arrays: Arrays) -> jax.Array:
        element = Element(one_permutations, {}, {})
        return sum(
            (
                jnp.vdot(target, act_leaf(spec, element, leaf, array))
                for leaf, target, array in zip(leaves, targets, one_arrays, strict=True)
            ),
            start=jnp.zeros(()),
        )

    # One network at a time: moving all of them at once would hold a second copy of every array.
    return jax.lax.map(lambda both: one(*both), (permutations, arrays))
