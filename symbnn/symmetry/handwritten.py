"""Specs written by hand, in git-re-basin's form: a name or None for every axis of every leaf."""

from collections.abc import Mapping
from fractions import Fraction

from symbnn import names as known_names
from symbnn import tree
from symbnn.symmetry.spec import Factor, Group, Leaf, SymmetrySpec, Word
from symbnn.types import Params

Axes = Mapping[str, tuple[str | None, ...]]


def from_axes(axes: Axes, params: Params, *, scales: Axes | None = None) -> SymmetrySpec:
    """Spec with one permutation group per name in `axes`; leaves that are not named do not move.

    `scales` marks, in the same form, the axes that a positive factor multiplies (`"+"`) or divides (`"-"`):
    `{"hidden/kernel": (None, "+"), "hidden/bias": ("+",), "out/kernel": ("-", None)}` for a ReLU layer.
    """
    leaves = tree.named_leaves(params)
    scales = scales or {}
    for name in (*axes, *scales):
        if name not in leaves:
            raise ValueError(f"unknown leaf {name!r}; {known_names.nearest(name, leaves)}")
    sizes: dict[str, int] = {}
    scaled = _scaled_groups(axes, scales)
    described = []
    for name, leaf in leaves.items():
        groups = axes.get(name, (None,) * leaf.ndim)
        if len(groups) != leaf.ndim:
            raise ValueError(f"leaf {name!r} has {leaf.ndim} axes; the spec names {len(groups)}")
        for axis, group in enumerate(groups):
            if group is not None and sizes.setdefault(group, leaf.shape[axis]) != leaf.shape[axis]:
                raise ValueError(
                    f"leaf {name!r} has shape {tuple(leaf.shape)}; group {group!r} has {sizes[group]} units"
                )
        words = tuple(
            _word(size, group, mark, group in scaled)
            for size, group, mark in zip(
                leaf.shape, groups, scales.get(name, (None,) * leaf.ndim), strict=True
            )
        )
        described.append(Leaf(name, tuple(leaf.shape), words))
    return SymmetrySpec(
        groups=tuple(Group(name, size, num_scales=int(name in scaled)) for name, size in sizes.items()),
        leaves=tuple(described),
    )


def _scaled_groups(axes: Axes, scales: Axes) -> set[str]:
    marked = {
        group
        for name, marks in scales.items()
        for group, mark in zip(axes.get(name, ()), marks, strict=True)
        if mark is not None and group is not None
    }
    return marked


def _word(size: int, group: str | None, mark: str | None, scaled: bool) -> Word:
    if mark not in (None, "+", "-"):
        raise ValueError(f"a scale mark is '+', '-' or None, not {mark!r}")
    exponent = {"+": Fraction(1), "-": Fraction(-1), None: Fraction(0)}[mark]
    return (Factor(size, group, scales=(exponent,) if scaled and group is not None else ()),)
