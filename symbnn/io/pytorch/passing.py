"""How words pass through an equation, by what its rule says about indices (`symmetry.rules.AxisMap`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from symbnn.io.pytorch.axes import Places, end_to_end, part, split
from symbnn.symmetry.discovery.rules import AxisMap, Layout

Word = tuple[Any, ...]
Words = tuple[Word | None, ...]
"""One word per axis; None where nothing is known."""


def moved(axis_map: AxisMap | None, number: int, words: Words, index: int, shape: tuple[int, ...]) -> Words:
    """Digits of a leaf on a value that is computed from it."""
    if axis_map is None:
        return (None,) * len(shape)
    found = {
        variable: word
        for variable, word in variables(words, axis_map, axis_map.operands[number]).items()
        # Pinned variables are reversed, accumulated or sorted: no longer the same positions.
        if variable not in axis_map.pins
    }
    spans = [span for span in axis_map.results[index] if span.axes]
    repeated = {axis for span in spans for axis in span.axes if not set(span.variables) & found.keys()}
    absent = {variable for span in axis_map.operands[number] if not span.axes for variable in span.variables}
    words = placed(axis_map, index, found, shape)
    # Along an axis that the operand does not have, its digits are repeated: nothing of the leaf is there.
    words = tuple(
        () if word is None and axis in repeated and _only(spans, axis, absent) else word
        for axis, word in enumerate(words)
    )
    # Parts of a leaf have no digits.
    return tuple(None if word and _is_data(word) else word for word in words)


def _only(spans: Sequence[Any], axis: int, absent: set[Any]) -> bool:
    return all(set(span.variables) <= absent for span in spans if axis in span.axes)


def variables(words: Words, axis_map: AxisMap, spans: Layout) -> dict[Any, Word]:
    """The word of every variable that a value has, as far as it is known."""
    found: dict[Any, Word] = {}
    for span in spans:
        joined = [words[axis] for axis in span.axes]
        if not span.axes or any(word is None for word in joined):
            continue
        word = sum((each for each in joined if each is not None), ())
        if len(span.variables) == 1:
            found[span.variables[0]] = word
            continue
        sizes = [int(axis_map.sizes.get(variable, 0)) for variable in span.variables]
        if not all(sizes):
            parts = None
        elif span.is_sum:
            parts = [part(word, size) for size in sizes] if _is_data(word) else None
        else:
            parts = split(word, sizes)
        found.update(zip(span.variables, parts, strict=True) if parts is not None else ())
    return found


def placed(axis_map: AxisMap | None, index: int, found: Mapping[Any, Word], shape: tuple[int, ...]) -> Words:
    """Words for the axes of a result, from those of its variables."""
    words: list[Word | None] = [() if size == 1 else None for size in shape]
    for span in axis_map.results[index] if axis_map is not None else ():
        known = [found[variable] for variable in span.variables if variable in found]
        sizes = [shape[axis] for axis in span.axes]
        if not span.axes or not known:
            continue
        if len(span.variables) > 1 and span.is_sum:
            data = all(map(_is_data, known))
            parts = [end_to_end(known, sizes[0])] if data and len(sizes) == 1 else None
        elif len(known) < len(span.variables):
            parts = None
        else:
            parts = split(sum(known, ()), sizes)
        for axis, word in zip(span.axes, parts or (), strict=False):
            words[axis] = word
    return tuple(words)


def _is_data(word: Word) -> bool:
    return all(isinstance(factor, Places) for factor in word)
