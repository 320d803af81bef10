"""Sorting of hidden units: a labelling that depends on the weights alone, not on a reference.

Layers are sorted from input to output, each by a key of its incoming weights after their input axis was
sorted, as in Laurent, Aldea & Franchi, "A symmetry-aware exploration of Bayesian neural network posteriors"
(2024). Their code sorts by the first incoming weight (`"first"`), their text by the largest (`"max"`).
Groups that vary over another one are sorted inside it first, so that its own key is well defined.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.names import lookup
from symbnn.symmetry.group import Element, act
from symbnn.symmetry.numerics import length
from symbnn.symmetry.spec import Group, Piece, SymmetrySpec, check_params, split
from symbnn.symmetry.spec.layer_order import depth_order, is_bias, is_weight, producing_axes
from symbnn.types import Params


def sort_units(spec: SymmetrySpec, params: Params, *, key: str = "first") -> Params:
    """The network with the units of every group in descending order of `key`.

    Jits and vmaps; equal keys keep their order.

    Args:
        spec: The network's symmetries.
        params: The weights.
        key: `"first"`, `"max"`, `"mean"` or `"median"` of a unit's incoming weights, or `"mass"`, their sum
            of squares.
    """
    check_params(spec, params)
    statistic = lookup(SORT_KEYS, key, "sort key")
    for name in inner_first(spec, depth_order(spec)):
        group = spec.group(name)
        value = statistic(incoming(spec, group, params))
        order = jnp.argsort(-value, axis=-1, stable=True)
        params = act(spec, Element({name: order}, {}, {}), params)
    return params


def inner_first(spec: SymmetrySpec, order: tuple[str, ...]) -> list[str]:
    """The order with every group moved behind the groups that vary over it."""
    waiting, result = list(order), []
    while waiting:
        ready = next(name for name in waiting if not any(name in spec.group(other).over for other in waiting))
        waiting.remove(ready)
        result.append(ready)
    return result


def incoming(spec: SymmetrySpec, group: Group, params: Params) -> jax.Array:
    """Incoming weights of every unit, `(*over, n, k)`."""
    pieces = occurrences(spec, group, params)
    chosen = kernels_first(group, [one for one in pieces if one.is_written and not one.is_added]) or pieces
    return rows(group, chosen)


class Occurrence(NamedTuple):
    """One axis of one piece that carries a group."""

    piece: Piece
    axis: int
    is_added: bool
    """The leaf is a bias."""
    is_written: bool
    """The piece writes the group's units."""


def occurrences(spec: SymmetrySpec, group: Group, params: Params) -> list[Occurrence]:
    """Every place where weights carry the group, as what is scaled; running statistics do not count."""
    arrays = tree.named_leaves(params)
    return [
        Occurrence(piece, axis, is_bias(leaf), producing_axes(piece.factors)[axis])
        for leaf in spec.leaves
        if is_weight(leaf) and jnp.issubdtype(arrays[leaf.name].dtype, jnp.floating)
        for piece in split(leaf.axes, arrays[leaf.name] + leaf.shift if leaf.shift else arrays[leaf.name])
        for axis, factor in enumerate(piece.factors)
        if factor.group == group.name
    ]


def kernels_first(group: Group, found: list[Occurrence]) -> list[Occurrence]:
    """Those that join a unit to others, where there are any; else the vectors with one value per unit."""
    return [one for one in found if one.piece.array.size > _units(one.piece, one.axis, group)] or found


def rows(group: Group, found: list[Occurrence]) -> jax.Array:
    """Weights of every unit side by side, `(*over, n, k)`."""
    return jnp.concatenate([_rows(group, one.piece, one.axis) for one in found], axis=-1)


def _units(piece: Piece, axis: int, group: Group) -> int:
    units = piece.factors[axis].size
    for factor in piece.factors:
        if factor.group in group.over:
            units *= factor.size
    return units


def _rows(group: Group, piece: Piece, axis: int) -> jax.Array:
    names = [factor.group for factor in piece.factors]
    front = [names.index(name) for name in group.over] + [axis]
    rest = [position for position in range(len(names)) if position not in front]
    array = piece.array.transpose(front + rest)
    return array.reshape(*array.shape[: len(front)], -1)


SORT_KEYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "first": lambda weights: weights[..., 0],
    "max": lambda weights: jnp.max(weights, axis=-1),
    "mean": lambda weights: jnp.mean(weights, axis=-1),
    "median": lambda weights: jnp.median(weights, axis=-1),
    # Its root, which sorts alike and stays in range.
    "mass": lambda weights: length(weights, -1),
}
