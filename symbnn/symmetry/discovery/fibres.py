"""Over which other indices a permutation may vary: experts, heads, scanned layers, convolution groups.

A class c may vary over d if, wherever c occurs, d occurs exactly once beside it, and if within one equation
the same c-index always comes with the same d-index: then every fibre is summed or mapped inside its own d.
The last condition matters in lhs[d, c] · rhs[c, d'] with d and d' of one class.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from symbnn.symmetry.discovery.axis_words import Atom
from symbnn.symmetry.discovery.permutations import Permutations, Record, layouts
from symbnn.symmetry.program import Loop, Value
from symbnn.symmetry.spec import Segments, Word, atoms, pieces, word_size

MAX_PIECES = 64
"""Choices of segments looked at for one value; beyond, its classes vary over nothing."""

Spans = list[list[tuple[Any, Word]]]
"""Per span of a value, the variables that make it up with their words: several where they are end to end."""


class Occurrence(NamedTuple):
    """Where an atom is, as far as it can be compared within an equation, and the atom."""

    place: tuple[Any, ...]
    atom: Atom

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.atom.size


def find_fibres(
    permutations: Permutations, leaves: list[Value], known: dict[Value, float]
) -> dict[Atom, list[Atom]]:
    """For every unpinned class, the classes it varies over: transitively closed, without cycles."""
    visible: dict[Atom, dict[Atom, None] | None] = {}
    for value in leaves:
        spans = [[(axis, word)] for axis, word in enumerate(permutations.words[value])]
        _restrict(visible, [spans])
    for record in permutations.records:
        _restrict(visible, _spans(record, permutations.loops, known))
    return _acyclic({c: list(d or ()) for c, d in visible.items()})


def _spans(record: Record, loops: dict[Loop, Word], known: dict[Value, float]) -> Iterator[Spans]:
    """The spans of every value of an equation.

    A variable that the rule pins has an order, and operand and result may hold it at different places of that
    order (reversed, accumulated): across values it never counts as the same index.
    """
    for number, (value, spans) in enumerate(layouts(record, known)):
        found: Spans = []
        for span in spans:
            if not span.axes:
                continue
            entries = [
                ((variable, number) if variable in record.axis_map.pins else variable, record.words[variable])
                for variable in span.variables
            ]
            found.extend([entries] if span.is_sum else [[entry] for entry in entries])
        found.extend([(("loop", loop), loops[loop])] for loop in value.loops if loop in loops)
        yield found


def _restrict(visible: dict[Atom, dict[Atom, None] | None], values: Iterable[Spans]) -> None:
    """Keep, for each class, the classes that the values of one equation show beside it."""
    seen: dict[Occurrence, dict[Atom, Any]] = {}
    for spans in values:
        words = [tuple(_located((key,), word) for key, word in span) for span in spans]
        axes = tuple(parts[0] if len(parts) == 1 else (Segments(parts),) for parts in words)
        found = list(itertools.islice(pieces(axes), MAX_PIECES + 1))
        if len(found) > MAX_PIECES:
            visible.update({one.atom: {} for word in axes for one in atoms(word)})
            continue
        for piece in found:
            _look(seen, piece)
    for (_, c), beside in seen.items():
        if c.causes:
            continue
        before = visible.get(c)
        visible[c] = dict.fromkeys(d for d in beside if before is None or d in before)


def _look(seen: dict[Occurrence, dict[Atom, Any]], occurrences: Iterable[Occurrence]) -> None:
    count: dict[Atom, int] = {}
    for _, atom in occurrences:
        count[atom] = count.get(atom, 0) + 1
    places = {atom: place for place, atom in occurrences if count[atom] == 1}
    for here in occurrences:
        others = {d: where for d, where in places.items() if d is not here.atom}
        before = seen.get(here)
        if before is not None:
            others = {d: where for d, where in before.items() if others.get(d) == where}
        seen[here] = others


def _located(place: tuple[Any, ...], word: Word) -> Word:
    """The word with the place of every atom: the variable, the segments taken and the stride."""
    return tuple(
        Segments(tuple(_located((*place, number), part) for number, part in enumerate(factor.words)))
        if isinstance(factor, Segments)
        else Occurrence((*place, word_size(word[position + 1 :])), factor)
        for position, factor in enumerate(word)
    )


def _acyclic(over: dict[Atom, list[Atom]]) -> dict[Atom, list[Atom]]:
    """Of classes that see each other the larger varies over the smaller: that group has more elements."""
    rank = {c: (c.size, number) for number, c in enumerate(over)}

    def keeps(c: Atom, d: Atom) -> bool:
        is_mutual = d in over and c in over[d]
        return not is_mutual or rank[d] < rank[c]

    return {c: [d for d in dependent if keeps(c, d)] for c, dependent in over.items()}
