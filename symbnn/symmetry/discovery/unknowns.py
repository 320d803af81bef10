"""Unknown exponents: one for every occurrence of an unpinned atom on a value.

For each equation the slots are grouped by index variable, so that what a primitive does to scales and signs
can be said variable by variable, as its rule says what it does to permutations.
"""

from dataclasses import dataclass
from typing import NamedTuple

from symbnn.symmetry.discovery.axis_words import Atom, Sum, Word, atoms, normalise
from symbnn.symmetry.discovery.permutations import Assignment, Record
from symbnn.symmetry.discovery.rules.base import Layout, Span, Variable
from symbnn.symmetry.program import Equation, Value

CONSTANT = -1
"""The value is constant along the variable: its exponent is 0."""

Entry = int | None
"""An unknown, `CONSTANT`, or None: the variable is not part of this value."""


@dataclass(frozen=True, eq=False)
class Slot:
    """An unpinned atom on a value, with the number of its unknown exponent."""

    atom: Atom
    unknown: int

    @property
    def size(self) -> int:
        """Number of units."""
        return self.atom.size


class View(NamedTuple):
    """One atom of one index variable of an equation, as every operand and result has it."""

    atom: Atom
    operands: tuple[Entry, ...]
    results: tuple[Entry, ...]


class Slots(NamedTuple):
    """All unknowns: those of the leaves, the views of each equation, and those that must vanish."""

    atoms: list[Atom]
    values: dict[Value, tuple[Word, ...]]
    views: list[tuple[Equation, list[View]]]
    vanishing: list[int]


def number_slots(
    assignment: Assignment, leaves: list[Value], known: dict[Value, float], outputs: list[Value]
) -> Slots:
    """Number the unknowns, leaves first, and view every equation variable by variable."""
    slots = Slots([], {}, [], [])
    for value in leaves:
        _label(slots, assignment, value)
    for record in assignment.records:
        slots.views.append((record.equation, _views(slots, assignment, record, known)))
    for value in outputs:
        if value not in known:
            slots.vanishing.extend(unknowns(_label(slots, assignment, value)))
    return slots


def unknowns(words: tuple[Word, ...]) -> list[int]:
    """Numbers of the slots on a value, axis by axis, depth first."""
    return [slot.unknown for word in words for slot in atoms(word) if isinstance(slot, Slot)]


def _label(slots: Slots, assignment: Assignment, value: Value) -> tuple[Word, ...]:
    """The value's words with unpinned atoms replaced by slots."""
    if value not in slots.values:
        slots.values[value] = tuple(_labelled(slots, word) for word in assignment.words[value])
        if value.constant is not None or not value.is_float:
            slots.vanishing.extend(unknowns(slots.values[value]))
    return slots.values[value]


def _labelled(slots: Slots, word: Word) -> Word:
    factors: list[Atom | Sum | Slot] = []
    for factor in word:
        if isinstance(factor, Sum):
            factors.append(Sum(tuple(_labelled(slots, inner) for inner in factor.words)))
        elif factor.causes:
            factors.append(factor)
        else:
            factors.append(Slot(factor, len(slots.atoms)))
            slots.atoms.append(factor)
    return tuple(factors)


def _views(slots: Slots, assignment: Assignment, record: Record, known: dict[Value, float]) -> list[View]:
    equation, alignment = record.equation, record.alignment
    expected = {
        variable: [atom for atom in atoms(word) if not atom.causes] for variable, word in record.words.items()
    }
    sides: list[list[dict[Variable, list[int] | None]]] = []
    for values, layouts in (
        (equation.operands, alignment.operands),
        (equation.results, alignment.results),
    ):
        sides.append(
            [
                _constant(spans)
                if value in known or not value.size
                else _entries(slots, _label(slots, assignment, value), spans, expected)
                for value, spans in zip(values, layouts, strict=True)
            ]
        )
    return [
        View(atom, *(tuple(_entry(entries, variable, position) for entries in side) for side in sides))
        for variable, found in expected.items()
        for position, atom in enumerate(found)
    ]


def _entries(
    slots: Slots, words: tuple[Word, ...], spans: Layout, expected: dict[Variable, list[Atom]]
) -> dict[Variable, list[int] | None]:
    """Unknowns of a value by variable; None where the value is constant along it."""
    entries: dict[Variable, list[int] | None] = {}
    for span in spans:
        if not span.axes:
            entries.update(dict.fromkeys(span.variables))
            continue
        word = normalise(factor for axis in span.axes for factor in words[axis])
        found = [slot for slot in atoms(word) if isinstance(slot, Slot)]
        wanted = [atom for variable in span.variables for atom in expected[variable]]
        if [slot.atom for slot in found] != wanted:
            # The same axis factorised differently: nothing is known about which slot is which.
            slots.vanishing.extend(slot.unknown for slot in found)
            entries.update(dict.fromkeys(span.variables))
            continue
        entries.update(_divided(span, [slot.unknown for slot in found], expected))
    return entries


def _constant(spans: Layout) -> dict[Variable, list[int] | None]:
    return {variable: None for span in spans for variable in span.variables}


def _divided(
    span: Span, found: list[int], expected: dict[Variable, list[Atom]]
) -> dict[Variable, list[int] | None]:
    parts: dict[Variable, list[int] | None] = {}
    for variable in span.variables:
        count = len(expected[variable])
        parts[variable], found = found[:count], found[count:]
    return parts


def _entry(entries: dict[Variable, list[int] | None], variable: Variable, position: int) -> Entry:
    if variable not in entries:
        return None
    found = entries[variable]
    return CONSTANT if found is None else found[position]
