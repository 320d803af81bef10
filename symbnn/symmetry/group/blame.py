"""Which leaf of a wrong spec is to blame.

The groups are tried one by one. For the first that changes the outputs, the description of each leaf is
altered in turn (the group taken away, put on a free axis, an exponent changed): the alteration that restores
the outputs names the leaf.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from symbnn.symmetry.group.act import Element, act
from symbnn.symmetry.spec import Factor, Group, Leaf, Segments, Slices, SymmetrySpec, Word
from symbnn.types import Params

EXPONENTS = tuple(Fraction(number) for number in (0, 1, -1, 2, -2))


class Culprit(NamedTuple):
    """What broke: a kind of action of a group, and the leaf that is described wrongly."""

    leaf: str
    group: str
    kind: str
    repaired: bool
    """Whether describing that leaf alone differently restores the outputs."""

    def __str__(self) -> str:
        sure = (
            "another description of it alone would leave the outputs unchanged"
            if self.repaired
            else "the most likely one, but no other description of it alone helps"
        )
        return f"the first wrong leaf of group {self.group!r} ({self.kind}) is {self.leaf!r}: {sure}"


def find_culprit(
    spec: SymmetrySpec,
    error: Callable[[Params], float],
    params: Params,
    elements: list[Element],
    kind: str,
    tolerance: float,
) -> Culprit | None:
    """The first group that changes outputs, and the leaf whose other description would not."""
    for group in spec.groups:
        for element in elements:
            parts = ({name: value for name, value in part.items() if name == group.name} for part in element)
            alone = Element(*parts)
            if not error(act(spec, alone, params)) <= tolerance:
                return _blame(spec, error, params, alone, group, kind, tolerance)
    return None


def _blame(
    spec: SymmetrySpec,
    error: Callable[[Params], float],
    params: Params,
    element: Element,
    group: Group,
    kind: str,
    tolerance: float,
) -> Culprit:
    best: tuple[float, str] | None = None
    for number, leaf in enumerate(spec.leaves):
        for altered in _alterations(leaf, group, kind):
            leaves = (*spec.leaves[:number], altered, *spec.leaves[number + 1 :])
            wrong = error(act(replace(spec, leaves=leaves), element, params))
            if wrong <= tolerance:
                return Culprit(leaf.name, group.name, kind, repaired=True)
            if best is None or wrong < best[0]:
                best = wrong, leaf.name
    first = next(leaf.name for leaf in spec.leaves if _has(leaf, group))
    return Culprit(best[1] if best else first, group.name, kind, repaired=False)


def _alterations(leaf: Leaf, group: Group, kind: str) -> Iterator[Leaf]:
    """Other descriptions of a leaf with respect to one group."""
    for axes in _altered_axes(leaf.axes, group, kind):
        candidate = replace(leaf, axes=axes)
        if not _has(candidate, group) or _has_all(candidate, group.over):
            yield candidate


def _altered(items: tuple, others: Callable[[Any], Iterator[Any]]) -> Iterator[tuple]:
    """The items with one of them replaced by each of its alternatives in turn."""
    for number, item in enumerate(items):
        for other in others(item):
            yield (*items[:number], other, *items[number + 1 :])


def _altered_axes(axes: tuple[Word, ...], group: Group, kind: str) -> Iterator[tuple[Word, ...]]:
    return _altered(axes, lambda word: _altered_words(word, group, kind))


def _altered_words(word: Word, group: Group, kind: str) -> Iterator[Word]:
    return _altered(word, lambda factor: _altered_factors(factor, group, kind))


def _altered_factors(factor: Any, group: Group, kind: str) -> Iterator[Any]:
    if isinstance(factor, Slices):
        parts = _altered(factor.parts, lambda axes: _altered_axes(axes, group, kind))
        yield from (replace(factor, parts=other) for other in parts)
        return
    if isinstance(factor, Segments):
        yield from map(Segments, _altered(factor.words, lambda word: _altered_words(word, group, kind)))
        return
    if factor.size != group.size or factor.group not in (None, group.name):
        return
    present = Factor(
        group.size,
        group.name,
        factor.scales or (Fraction(0),) * group.num_scales,
        factor.signs or (0,) * group.num_signs,
    )
    yield Factor(factor.size) if factor.group else present
    if kind in ("scale", "matrix", "all"):
        for scales in _altered(present.scales, lambda exponent: iter(EXPONENTS)):
            yield replace(present, scales=scales)
    if kind in ("sign", "all"):
        for signs in _altered(present.signs, lambda exponent: iter([1 - exponent])):
            yield replace(present, signs=signs)


def _has(leaf: Leaf, group: Group) -> bool:
    return any(factor.group == group.name for _, factor in leaf.factors())


def _has_all(leaf: Leaf, names: tuple[str, ...]) -> bool:
    present = {factor.group for _, factor in leaf.factors()}
    return all(name in present for name in names)
