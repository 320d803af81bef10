"""Over which other indices a permutation may vary: experts, heads, scanned layers, convolution groups.

A class c may vary over d if, wherever c occurs, d occurs exactly once beside it, and if within one equation
the same c-index always comes with the same d-index: then every fibre is summed or mapped inside its own d.
The last condition matters in lhs[d, c] · rhs[c, d'] with d and d' of one class.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from symbnn.symmetry.discovery.axis_words import Atom, Sum, Word, atoms, word_size
from symbnn.symmetry.discovery.permutations import Assignment, Record, layouts
from symbnn.symmetry.program import Loop, Value

MAX_PIECES = 64
"""Choices of segments looked at for one value; beyond, its classes vary over nothing."""

Occurrence = tuple[Any, Atom]
"""Where an atom is, as far as it can be compared within an equation, and the atom."""


def dependencies(
    assignment: Assignment, leaves: list[Value], known: dict[Value, float]
) -> dict[Atom, list[Atom]]:
    """For every unpinned class, the classes it varies over: transitively closed, without cycles."""
    visible: dict[Atom, dict[Atom, None] | None] = {}
    for value in leaves:
        spans = [[(axis, word)] for axis, word in enumerate(assignment.words[value])]
        _restrict(visible, [spans])
    for record in assignment.records:
        _restrict(visible, _pieces(record, assignment.loops, known))
    return _acyclic({c: list(d or ()) for c, d in visible.items()})


def _pieces(
    record: Record, loops: dict[Loop, Word], known: dict[Value, float]
) -> Iterator[list[list[tuple[Any, Word]]]]:
    """Per value: per span, the variables that make it up, several where they are laid end to end.

    A variable that the rule pins has an order, and operand and result may hold it at different places of that
    order (reversed, accumulated): across values it never counts as the same index.
    """
    for number, (value, spans) in enumerate(layouts(record, known)):
        piece: list[list[tuple[Any, Word]]] = []
        for span in spans:
            if not span.axes:
                continue
            entries = [
                (
                    (variable, number) if variable in record.alignment.pins else variable,
                    record.words[variable],
                )
                for variable in span.variables
            ]
            piece.extend([entries] if span.is_sum else [[entry] for entry in entries])
        piece.extend([(("loop", loop), loops[loop])] for loop in value.loops if loop in loops)
        yield piece


def _restrict(
    visible: dict[Atom, dict[Atom, None] | None], pieces: Iterable[list[list[tuple[Any, Word]]]]
) -> None:
    """Keep, for each class, the classes that the pieces of one equation show beside it."""
    seen: dict[Occurrence, dict[Atom, Any]] = {}
    for piece in pieces:
        choices = [[way for key, word in span for way in _ways((key,), word)] for span in piece]
        if math.prod(map(len, choices)) > MAX_PIECES:
            for atom in (atom for span in piece for _, word in span for atom in atoms(word)):
                visible[atom] = {}
            continue
        for choice in itertools.product(*choices):
            _look(seen, [occurrence for part in choice for occurrence in part])
    for (_, c), beside in seen.items():
        if c.causes:
            continue
        before = visible.get(c)
        visible[c] = dict.fromkeys(d for d in beside if before is None or d in before)


def _look(seen: dict[Occurrence, dict[Atom, Any]], occurrences: list[Occurrence]) -> None:
    count: dict[Atom, int] = {}
    for _, atom in occurrences:
        count[atom] = count.get(atom, 0) + 1
    places = {atom: place for place, atom in occurrences if count[atom] == 1}
    for place, c in occurrences:
        others = {d: where for d, where in places.items() if d is not c}
        before = seen.get((place, c))
        if before is not None:
            others = {d: where for d, where in before.items() if others.get(d) == where}
        seen[place, c] = others


def _ways(place: tuple[Any, ...], word: Word) -> Iterator[list[Occurrence]]:
    """The ways through the sums of a word; a place is the variable, the segments taken and the stride."""
    head: list[Occurrence] = []
    for position, factor in enumerate(word):
        stride = word_size(word[position + 1 :])
        if isinstance(factor, Sum):
            for number, segment in enumerate(factor.words):
                for way in _ways((*place, number), segment):
                    yield [*head, *way]
            return
        head.append(((*place, stride), factor))
    yield head


def _acyclic(over: dict[Atom, list[Atom]]) -> dict[Atom, list[Atom]]:
    """Of classes that see each other the larger varies over the smaller: that group has more elements."""
    rank = {c: (c.size, number) for number, c in enumerate(over)}

    def keeps(c: Atom, d: Atom) -> bool:
        is_mutual = d in over and c in over[d]
        return not is_mutual or rank[d] < rank[c]

    return {c: [d for d in dependent if keeps(c, d)] for c, dependent in over.items()}
