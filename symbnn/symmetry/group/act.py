"""The symmetry group of a network at work: elements and their action on weights.

For a group c over d with permutations π, ρ, scales s and exponent e the action on a leaf is

    new[i, j] = s[i, j]^e · old[ρ(i), π[i](j)],

so every array of an element is indexed by the *new* labels, and the arrays of an element transform under
another element exactly like leaves. Where matrices M act (`Group.kind`) they come last:

    new[i, :] = M[i] · s[i]^e · old[ρ(i), π[i]],

and on axes with a negative exponent it is M^-T. Permutations, scales and signs of such a group are matrices
too, so several elements do the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.names import lookup
from symbnn.symmetry.spec import Factor, Group, Leaf, Piece, SymmetrySpec, check_params, join, split
from symbnn.types import Params


class Element(NamedTuple):
    """Element of the symmetry group, dicts by group name; stacks over samples like any pytree.

    What it says nothing about stays as it is.
    """

    permutations: dict[str, jax.Array]
    """Index arrays `(*over, n)`."""
    scales: dict[str, jax.Array]
    """Positive `(num_scales, *over, n)`; only groups that have any."""
    signs: dict[str, jax.Array]
    """±1, `(num_signs, *over, n)`; only groups that have any."""
    matrices: dict[str, jax.Array] = {}  # noqa: RUF012
    """Orthogonal or invertible `(*over, n, n)`; only groups of such a kind."""


def act(spec: SymmetrySpec, element: Element, params: Params) -> Params:
    """The network with its units relabelled, rescaled, flipped and mixed; it computes the same function."""
    check_params(spec, params)
    check_element(spec, element)
    leaves = {leaf.name: leaf for leaf in spec.leaves}
    return tree.map_named(lambda name, array: act_leaf(spec, element, leaves[name], array), params)


def act_leaf(spec: SymmetrySpec, element: Element, leaf: Leaf, array: jax.Array) -> jax.Array:
    """The action on one weight array."""
    if not any(factor.group in part for _, factor in leaf.factors() for part in element):
        return array
    pieces = split(leaf.axes, array)
    return join(leaf.axes, [act_piece(spec, element, piece, leaf.shift) for piece in pieces])


def act_piece(spec: SymmetrySpec, element: Element, piece: Piece, shift: float = 0.0) -> jax.Array:
    """The action on an array with one axis per factor."""
    names = [factor.group for factor in piece.factors]
    array = permute(spec, element, names, piece.array)
    for axis in range(len(names)):
        value = multiplier(spec, element, piece.factors, axis)
        if value is not None:
            value = value.astype(array.dtype)
            array = (array + shift) * value - shift if shift else array * value
    for axis, name in enumerate(names):
        if name in element.matrices:
            array = _mix(spec, element, piece.factors, axis, array)
    return array


def relabel(spec: SymmetrySpec, element: Element, group: Group, array: jax.Array) -> jax.Array:
    """new[i, j] = array[ρ(i), π[i](j)] for an array `(*over, n)` indexed like the group's permutation."""
    return permute(spec, element, (*group.over, group.name), array)


def check_element(spec: SymmetrySpec, element: Element) -> None:
    """`ValueError` for a group that the spec does not have, or has nothing of that kind for."""
    numbers = {group.name: (1, group.num_scales, group.num_signs, group.is_linear) for group in spec.groups}
    for kind, part in enumerate(element):
        for name in part:
            if not lookup(numbers, name, "group")[kind]:
                raise ValueError(f"the spec has no {Element._fields[kind]} for group {name!r}")


def multiplier(
    spec: SymmetrySpec, element: Element, factors: Sequence[Factor], axis: int
) -> jax.Array | None:
    """Π s^e · Π sign^e of the atom on `axis`, shaped to multiply a piece; None where it is one."""
    factor = factors[axis]
    if factor.group is None or not (any(factor.scales) or any(factor.signs)):
        return None
    values = [
        _power(scale, exponent)
        for scale, exponent in _pairs(element.scales, factor.group, factor.scales)
        if exponent
    ] + [sign for sign, parity in _pairs(element.signs, factor.group, factor.signs) if parity % 2]
    if not values:
        return None
    product = values[0]
    for value in values[1:]:
        product = product * value
    return _spread(spec, [inner.group for inner in factors], axis, product)


def permute(spec: SymmetrySpec, element: Element, names: Sequence[str | None], array: jax.Array) -> jax.Array:
    """Relabel every axis by the group it is named after; groups that others vary over go first."""
    for group in spec.groups:
        if group.name not in element.permutations:
            continue
        for axis, name in enumerate(names):
            if name == group.name:
                permutation = element.permutations[group.name]
                if permutation.ndim == 1:
                    array = jnp.take(array, permutation, axis=axis)
                else:
                    array = jnp.take_along_axis(array, _spread(spec, names, axis, permutation), axis=axis)
    return array


def transposed(matrices: jax.Array) -> jax.Array:
    """Of every matrix of a stack."""
    return jnp.swapaxes(matrices, -1, -2)


def _mix(
    spec: SymmetrySpec, element: Element, factors: Sequence[Factor], axis: int, array: jax.Array
) -> jax.Array:
    """The atom on `axis` multiplied by its group's matrices, as a vector or as a dual."""
    group = spec.group(factors[axis].group)  # type: ignore[arg-type]
    exponent = next((value for value in factors[axis].scales if value), 1)
    matrices = element.matrices[group.name]
    if group.kind == "invertible" and exponent < 0:
        matrices = transposed(jnp.linalg.inv(matrices))
    names, new = [factor.group for factor in factors], len(factors)
    kept = list(range(new))
    moved = [*kept[:axis], new, *kept[axis + 1 :]]
    over = [names.index(name) for name in group.over]
    # Half precision has no matrix inverse and would round every sum.
    wide = jnp.promote_types(array.dtype, jnp.float32)
    mixed = jnp.einsum(
        matrices.astype(jnp.promote_types(matrices.dtype, jnp.float32)),
        [*over, new, axis],
        array.astype(wide),
        kept,
        moved,
        precision="highest",
    )
    return mixed.astype(array.dtype)


def _pairs(arrays: dict[str, jax.Array], group: str, exponents: Sequence) -> Iterator[tuple[jax.Array, Any]]:
    return zip(arrays[group], exponents, strict=True) if group in arrays else iter(())


def _spread(spec: SymmetrySpec, names: Sequence[str | None], axis: int, value: jax.Array) -> jax.Array:
    """Put the axes `(*over, n)` of `value` where the piece has them, 1 elsewhere."""
    group = spec.group(names[axis])  # type: ignore[arg-type]
    positions = [names.index(name) for name in group.over] + [axis]
    order = sorted(range(len(positions)), key=positions.__getitem__)
    shape = [1] * len(names)
    for position, size in zip(positions, value.shape, strict=True):
        shape[position] = size
    return value.transpose(order).reshape(shape)


def _power(scale: jax.Array, exponent) -> jax.Array:
    # ±1 is what plain layers have, and worth the exact product.
    if exponent == 1:
        return scale
    return 1 / scale if exponent == -1 else scale ** float(exponent)
