"""Specs written by hand, in git-re-basin's form: a name or None for every axis of every leaf."""

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from symbnn import tree
from symbnn.names import lookup, nearest
from symbnn.symmetry.spec.spec import Factor, Group, Kind, Leaf, SymmetrySpec
from symbnn.types import Params

Axes = Mapping[str, tuple[str | None, ...]]

EXPONENTS: dict[str | None, Fraction] = {"+": Fraction(1), "-": Fraction(-1), None: Fraction(0)}


def from_axes(
    axes: Axes,
    params: Params,
    *,
    scales: Axes | None = None,
    signs: Axes | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> SymmetrySpec:
    """Spec with one group per name in `axes`.

    Args:
        axes: By leaf, a group's name or None for every axis; leaves that are not named do not move. For one
            hidden layer `{"hidden/kernel": (None, "h"), "hidden/bias": ("h",), "out/kernel": ("h", None)}`.
        params: The weights; shapes are enough.
        scales: In the same form, the axes that a positive factor multiplies (`"+"`) or divides (`"-"`):
            `{"hidden/kernel": (None, "+"), "hidden/bias": ("+",), "out/kernel": ("-", None)}` for ReLU.
        signs: Likewise the axes that a flip of the unit changes (`"±"`), for odd activations.
        kinds: By group, what acts on it where that is more than permutations: `"orthogonal"` or
            `"invertible"` matrices. An invertible group needs a mark in `scales` on every axis it lies on:
            `"+"` where the matrix multiplies, `"-"` where its inverse does.
    """
    leaves = tree.named_leaves(params)
    tables = (axes, scales or {}, signs or {})
    for name in (name for table in tables for name in table):
        if name not in leaves:
            raise ValueError(f"unknown leaf {name!r}; {nearest(name, leaves)}")
    marked = {name: _marks(name, tuple(leaf.shape), tables) for name, leaf in leaves.items()}
    sizes: dict[str, int] = {}
    for name, marks in marked.items():
        for mark in marks:
            if mark.group is not None and sizes.setdefault(mark.group, mark.size) != mark.size:
                raise ValueError(
                    f"leaf {name!r} has shape {leaves[name].shape}; group {mark.group!r} has "
                    f"{sizes[mark.group]} units"
                )
    moved = [mark for marks in marked.values() for mark in marks if mark.group is not None]
    scaled = {mark.group for mark in moved if mark.scale is not None}
    signed = {mark.group for mark in moved if mark.sign is not None}
    kinds = kinds or {}
    for name in kinds:
        lookup(sizes, name, "group")
    for name, marks in marked.items():
        for mark in marks:
            if mark.group and kinds.get(mark.group) == "invertible" and mark.scale is None:
                raise ValueError(
                    f"group {mark.group!r} is invertible, so scales must say '+' or '-' wherever it lies; "
                    f"leaf {name!r} has no such mark"
                )
    return SymmetrySpec(
        groups=tuple(
            Group(name, size, (), int(name in scaled), int(name in signed), kinds.get(name, "permutation"))
            for name, size in sizes.items()
        ),
        leaves=tuple(
            Leaf(name, tuple(leaves[name].shape), tuple((_factor(mark, scaled, signed),) for mark in marks))
            for name, marks in marked.items()
        ),
    )


class _Mark(NamedTuple):
    """What is said about one axis."""

    size: int
    group: str | None
    scale: str | None
    sign: str | None


def _marks(name: str, shape: tuple[int, ...], tables: tuple[Axes, ...]) -> list[_Mark]:
    for table in tables:
        if name in table and len(table[name]) != len(shape):
            raise ValueError(
                f"leaf {name!r} has shape {shape}, so it needs {len(shape)} marks; got {table[name]}"
            )
    columns = [table.get(name, (None,) * len(shape)) for table in tables]
    return [_Mark(*marks) for marks in zip(shape, *columns, strict=True)]


def _factor(mark: _Mark, scaled: set, signed: set) -> Factor:
    if mark.scale not in EXPONENTS:
        raise ValueError(f"a mark in scales must be '+', '-' or None; got {mark.scale!r}")
    if mark.sign not in (None, "±"):
        raise ValueError(f"a mark in signs must be '±' or None; got {mark.sign!r}")
    return Factor(
        mark.size,
        mark.group,
        scales=(EXPONENTS[mark.scale],) if mark.group in scaled else (),
        signs=(int(mark.sign is not None),) if mark.group in signed else (),
    )
