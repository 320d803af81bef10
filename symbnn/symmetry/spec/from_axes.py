"""Specs written by hand, in git-re-basin's form: a name or None for every axis of every leaf."""

from collections.abc import Mapping
from fractions import Fraction

from symbnn import names as known_names
from symbnn import tree
from symbnn.symmetry.spec.spec import Factor, Group, Leaf, SymmetrySpec
from symbnn.symmetry.spec.words import Word
from symbnn.types import Params

Axes = Mapping[str, tuple[str | None, ...]]


def from_axes(
    axes: Axes, params: Params, *, scales: Axes | None = None, signs: Axes | None = None
) -> SymmetrySpec:
    """Spec with one permutation group per name in `axes`.

    Args:
        axes: By leaf, a group's name or None for every axis; leaves that are not named do not move. For one
            hidden layer `{"hidden/kernel": (None, "h"), "hidden/bias": ("h",), "out/kernel": ("h", None)}`.
        params: The weights; shapes are enough.
        scales: In the same form, the axes that a positive factor multiplies (`"+"`) or divides (`"-"`):
            `{"hidden/kernel": (None, "+"), "hidden/bias": ("+",), "out/kernel": ("-", None)}` for ReLU.
        signs: Likewise the axes that a flip of the unit changes (`"±"`), for odd activations.
    """
    leaves = tree.named_leaves(params)
    scales, signs = scales or {}, signs or {}
    for name in (*axes, *scales, *signs):
        if name not in leaves:
            raise ValueError(f"unknown leaf {name!r}; {known_names.nearest(name, leaves)}")
    sizes: dict[str, int] = {}
    for name, leaf in leaves.items():
        _check_axes(name, tuple(leaf.shape), axes, scales, signs, sizes)
    scaled, signed = _marked_groups(axes, scales), _marked_groups(axes, signs)
    described = []
    for name, leaf in leaves.items():
        unmarked = (None,) * leaf.ndim
        marks = zip(
            leaf.shape,
            axes.get(name, unmarked),
            scales.get(name, unmarked),
            signs.get(name, unmarked),
            strict=True,
        )
        words = tuple(
            _word(size, group, scale, sign, group in scaled, group in signed)
            for size, group, scale, sign in marks
        )
        described.append(Leaf(name, tuple(leaf.shape), words))
    return SymmetrySpec(
        groups=tuple(
            Group(name, size, num_scales=int(name in scaled), num_signs=int(name in signed))
            for name, size in sizes.items()
        ),
        leaves=tuple(described),
    )


def _check_axes(
    name: str, shape: tuple[int, ...], axes: Axes, scales: Axes, signs: Axes, sizes: dict[str, int]
) -> None:
    """One mark per axis, and every group of one size, which is noted in `sizes`."""
    for marks in (axes, scales, signs):
        if name in marks and len(marks[name]) != len(shape):
            raise ValueError(
                f"leaf {name!r} has shape {shape}, so it needs {len(shape)} marks; got {marks[name]}"
            )
    for size, group in zip(shape, axes.get(name, ()), strict=False):
        if group is not None and sizes.setdefault(group, size) != size:
            raise ValueError(f"leaf {name!r} has shape {shape}; group {group!r} has {sizes[group]} units")


def _marked_groups(axes: Axes, marks: Axes) -> set[str]:
    return {
        group
        for name, leaf_marks in marks.items()
        for group, mark in zip(axes.get(name, ()), leaf_marks, strict=False)
        if mark is not None and group is not None
    }


def _word(
    size: int, group: str | None, scale: str | None, sign: str | None, is_scaled: bool, is_signed: bool
) -> Word:
    if scale not in (None, "+", "-"):
        raise ValueError(f"a mark in scales must be '+', '-' or None; got {scale!r}")
    if sign not in (None, "±"):
        raise ValueError(f"a mark in signs must be '±' or None; got {sign!r}")
    exponent = {"+": Fraction(1), "-": Fraction(-1), None: Fraction(0)}[scale]
    return (
        Factor(
            size,
            group,
            scales=(exponent,) if is_scaled else (),
            signs=(int(sign is not None),) if is_signed else (),
        ),
    )
