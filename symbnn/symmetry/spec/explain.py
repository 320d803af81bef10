"""A spec as text: what may move, what may not, and why."""

from collections.abc import Iterator
from fractions import Fraction

from symbnn.symmetry.spec.spec import Factor, Group, Leaf, Pin, SymmetrySpec
from symbnn.symmetry.spec.words import Word, atoms, slices_of

FEW = 3
"""Generators whose exponents are all written out."""


def explain(spec: SymmetrySpec) -> str:
    """Groups with leaves and exponents; pinned axes by cause, unexpected ones with their line; notes."""
    expected = _by_cause(pin for pin in spec.pins if pin.expected)
    sections = [
        ("groups", list(_groups(spec))),
        ("translations (free to move, by any amount)", list(map(str, spec.translations))),
        ("pinned axes (their order matters), as expected", list(expected)),
        ("pinned axes, perhaps without need", [_loss(pin) for pin in spec.pins if not pin.expected]),
        ("notes", list(spec.notes)),
    ]
    lines = [
        line
        for title, body in sections
        if body
        for line in (f"{title}:", *(f"  {text}" for text in body), "")
    ]
    return (
        "\n".join(lines)
        if spec.groups or spec.translations
        else "\n".join(["no symmetries found", "", *lines])
    )


def _groups(spec: SymmetrySpec) -> Iterator[str]:
    for group in spec.groups:
        yield group_title(spec, group)
        for missing in spec.missing:
            if missing.group == group.name:
                yield f"  no {missing.kind}: {missing.reason}"
        for leaf in spec.leaves:
            for place, factor in _places(leaf):
                if factor.group == group.name:
                    shift = f" (acts on leaf + {leaf.shift:g})" if leaf.shift and any(factor.scales) else ""
                    yield f"  {place}{_actions(factor)}{_representation(group, factor)}{shift}"


def _places(leaf: Leaf) -> Iterator[tuple[str, Factor]]:
    """Every atom with the leaf, slice and axis it lies on."""
    for name, words in named_slices(leaf):
        for axis, word in enumerate(words):
            yield from ((f"{name} axis {axis}", factor) for factor in atoms(word))


def named_slices(leaf: Leaf) -> Iterator[tuple[str, tuple[Word, ...]]]:
    """The words of every slice of a leaf by its name; of the whole where it has none."""
    yield from _named(leaf.name, leaf.axes)


def slice_name(leaf: str, axis: int, outer: int, start: int, length: int) -> str:
    """`kernel[2]`, `kernel[:, 2:4]`: how a slice is written.

    Of an axis that is read as blocks, `kernel[(:, 2:4)]` takes those positions of every block.
    """
    place = f"{start}" if length == 1 else f"{start}:{start + length}"
    return f"{leaf}[{':, ' * axis}{place if outer == 1 else f'(:, {place})'}]"


def _named(name: str, axes: tuple[Word, ...]) -> Iterator[tuple[str, tuple[Word, ...]]]:
    sliced, start = slices_of(axes), 0
    if sliced is None:
        yield name, axes
        return
    for words, length in zip(sliced.parts, sliced.lengths(), strict=True):
        yield from _named(slice_name(name, sliced.axis, sliced.outer, start, length), words)
        start += length


def group_title(spec: SymmetrySpec, group: Group) -> str:
    """`hidden: 16 units; 1 scale, no signs`."""
    over = "".join(f" over {name} ({spec.size(name)})" for name in group.over)
    counts = f"{_count(group.num_scales, 'scale')}, {_count(group.num_signs, 'sign')}"
    return f"{group.name}: {group.size} units{over}; {_mixing(group)}{counts}"


def _mixing(group: Group) -> str:
    if not group.is_linear:
        return ""
    return f"any {group.kind} matrix{' that fixes the vector of ones' if group.centred else ''}, "


def _representation(group: Group, factor: Factor) -> str:
    if group.kind != "invertible":
        return ""
    return " as dual" if any(exponent < 0 for exponent in factor.scales) else " as vector"


def _actions(factor: Factor) -> str:
    parts = [f" {factor.role}" if factor.role else ""]
    parts.append(_exponents("scale", [_exponent(exponent) for exponent in factor.scales]))
    parts.append(_exponents("sign", [str(parity) for parity in factor.signs]))
    return "".join(parts)


def _exponents(kind: str, exponents: list[str]) -> str:
    """`scale +1 0`; with many generators only those that act, as `scale[7] +1`."""
    if len(exponents) <= FEW:
        return f" {kind} {' '.join(exponents)}" if exponents else ""
    return "".join(f" {kind}[{number}] {value}" for number, value in enumerate(exponents) if value != "0")


def _exponent(exponent: Fraction) -> str:
    return f"+{exponent}" if exponent > 0 else str(exponent)


def _by_cause(pins: Iterator[Pin]) -> Iterator[str]:
    causes: dict[str, dict[str, None]] = {}
    for pin in pins:
        causes.setdefault(pin.reason, {})[f"{pin.leaf} axis {pin.axis}"] = None
    for reason, places in causes.items():
        yield f"{reason}: {', '.join(places)}"


def _loss(pin: Pin) -> str:
    return f"{pin.leaf} axis {pin.axis} (size {pin.size}): {pin.reason}"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
