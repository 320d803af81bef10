"""The symmetry group of a network: elements, their products, and their action on weights.

For a group c over d with permutations π, ρ, scales s and exponent e the action on a leaf is

    new[i, j] = s[i, j]^e · old[ρ(i), π[i](j)],

so every array of an element is indexed by the *new* labels, and the arrays of an element transform under
another element exactly like leaves. act(compose(g, h), params) = act(g, act(h, params)).
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.names import lookup
from symbnn.symmetry.spec import Factor, Group, Leaf, Piece, SymmetrySpec, check_params, join, split
from symbnn.types import Key, Params


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


def identity(spec: SymmetrySpec) -> Element:
    """The element that changes nothing."""
    return Element(
        permutations={
            group.name: jnp.broadcast_to(jnp.arange(group.size, dtype=jnp.int32), spec.shape(group))
            for group in spec.groups
        },
        scales={g.name: jnp.ones((g.num_scales, *spec.shape(g))) for g in spec.groups if g.num_scales},
        signs={g.name: jnp.ones((g.num_signs, *spec.shape(g))) for g in spec.groups if g.num_signs},
    )


def random_element(spec: SymmetrySpec, key: Key, *, log_scale: float = 0.5) -> Element:
    """Uniform permutations and signs; scales exp(log_scale · N(0, 1))."""
    return _random_element(spec, key, jnp.asarray(log_scale))


def compose(spec: SymmetrySpec, g: Element, h: Element) -> Element:
    """The element that acts as h first, then g."""
    g, h = _completed(spec, g), _completed(spec, h)
    return Element(
        {name: relabel(spec, g, spec.group(name), value) for name, value in h.permutations.items()},
        {name: g.scales[name] * value for name, value in _relabelled(spec, g, h.scales).items()},
        {name: g.signs[name] * value for name, value in _relabelled(spec, g, h.signs).items()},
    )


def inverse(spec: SymmetrySpec, g: Element) -> Element:
    """The element that undoes g."""
    g = _completed(spec, g)
    permutations: dict[str, jax.Array] = {}
    for group in spec.groups:
        # π'[ρ(i)] = π[i]^-1: invert row by row, then move the rows by the inverse of what g does to them.
        undone = Element(permutations, {}, {})
        rows = jnp.argsort(g.permutations[group.name], axis=-1)
        permutations[group.name] = _permute(spec, undone, group.over, rows)
    undone = Element(permutations, {}, {})
    inverted = {name: 1 / value for name, value in g.scales.items()}
    return Element(permutations, _relabelled(spec, undone, inverted), _relabelled(spec, undone, g.signs))


def act(spec: SymmetrySpec, element: Element, params: Params) -> Params:
    """The network with its units relabelled, rescaled and flipped; it computes the same function."""
    check_params(spec, params)
    _check_element(spec, element)
    leaves = {leaf.name: leaf for leaf in spec.leaves}
    return tree.map_named(lambda name, array: act_leaf(spec, element, leaves[name], array), params)


def act_leaf(spec: SymmetrySpec, element: Element, leaf: Leaf, array: jax.Array) -> jax.Array:
    """The action on one weight array."""
    if not any(factor.group in part for _, factor in leaf.factors() for part in element):
        return array
    pieces = split(leaf.axes, array)
    return join(leaf.axes, [_act_piece(spec, element, piece, leaf.shift) for piece in pieces])


def relabel(spec: SymmetrySpec, element: Element, group: Group, array: jax.Array) -> jax.Array:
    """new[i, j] = array[ρ(i), π[i](j)] for an array `(*over, n)` indexed like the group's permutation."""
    return _permute(spec, element, (*group.over, group.name), array)


def _check_element(spec: SymmetrySpec, element: Element) -> None:
    """`ValueError` for a group that the spec does not have, or has nothing of that kind for."""
    numbers = {group.name: (1, group.num_scales, group.num_signs) for group in spec.groups}
    for kind, part in enumerate(element):
        for name in part:
            if not lookup(numbers, name, "group")[kind]:
                raise ValueError(f"the spec has no {Element._fields[kind]} for group {name!r}")


def _completed(spec: SymmetrySpec, element: Element) -> Element:
    """The element with the identity wherever it says nothing."""
    _check_element(spec, element)
    return Element(*(none | given for none, given in zip(identity(spec), element, strict=True)))


def _relabelled(spec: SymmetrySpec, element: Element, arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The same for the arrays of several generators, by group."""
    return {
        name: jax.vmap(functools.partial(relabel, spec, element, spec.group(name)))(value)
        for name, value in arrays.items()
    }


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


def _pairs(arrays: dict[str, jax.Array], group: str, exponents: Sequence) -> Iterator[tuple[jax.Array, Any]]:
    return zip(arrays[group], exponents, strict=True) if group in arrays else iter(())


@functools.partial(jax.jit, static_argnums=0)
def _random_element(spec: SymmetrySpec, key: Key, log_scale: jax.Array) -> Element:
    """One draw of each kind for all groups together: a sort per group would compile for long."""
    none = identity(spec)
    rows = np.asarray([g.size for g in spec.groups for _ in range(math.prod(spec.shape(g)[:-1]))], int)
    row = np.repeat(np.arange(len(rows)), rows)
    within = np.arange(len(row)) - (np.cumsum(rows) - rows)[row]
    total = {name: sum(value.size for value in part.values()) for name, part in none._asdict().items()}
    order = jax.random.uniform(keys.named(key, "permutation"), (total["permutations"],))
    # Sorted by row, then by chance: the positions within each row come out shuffled.
    *_, positions = jax.lax.sort((jnp.asarray(row), order, jnp.asarray(within)), num_keys=2)
    scales = jnp.exp(log_scale * jax.random.normal(keys.named(key, "scale"), (total["scales"],)))
    signs = jax.random.rademacher(keys.named(key, "sign"), (total["signs"],), dtype=scales.dtype)
    return Element(
        _shaped_like(none.permutations, positions),
        _shaped_like(none.scales, scales),
        _shaped_like(none.signs, signs),
    )


def _shaped_like(arrays: dict[str, jax.Array], flat: jax.Array) -> dict[str, jax.Array]:
    result, start = {}, 0
    for name, array in arrays.items():
        result[name] = flat[start : start + array.size].reshape(array.shape)
        start += array.size
    return result


def _act_piece(spec: SymmetrySpec, element: Element, piece: Piece, shift: float) -> jax.Array:
    names = [factor.group for factor in piece.factors]
    array = _permute(spec, element, names, piece.array)
    for axis in range(len(names)):
        value = multiplier(spec, element, piece.factors, axis)
        if value is not None:
            value = value.astype(array.dtype)
            array = (array + shift) * value - shift if shift else array * value
    return array


def _permute(
    spec: SymmetrySpec, element: Element, names: Sequence[str | None], array: jax.Array
) -> jax.Array:
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
