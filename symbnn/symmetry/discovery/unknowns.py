"""Unknown exponents: one for every occurrence of an unpinned atom on a value.

For each equation the unknowns are grouped by index variable, so that what a primitive does to scales and
signs can be said variable by variable, as its rule says what it does to permutations.
"""

from dataclasses import dataclass
from typing import NamedTuple

from symbnn.symmetry.discovery.axis_words import Atom, normalise
from symbnn.symmetry.discovery.permutations import Permutations, Record
from symbnn.symmetry.discovery.rules.base import Layout, Span, Variable
from symbnn.symmetry.program import Equation, Value
from symbnn.symmetry.spec import Word, atoms, map_atoms

CONSTANT = -1
"""The value is constant along the variable: its exponent is 0."""

Entry = int | None
"""The number of an unknown, `CONSTANT`, or None: the variable is not part of this value."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """An unpinned atom on a value, with the number of its unknown exponent."""

    atom: Atom
    number: int

    @property
    def size(self) -> int:
        """Number of units."""
        return self.atom.size


class View(NamedTuple):
    """One atom of one index variable of an equation, as every operand and result has it."""

    atom: Atom
    operands: tuple[Entry, ...]
    results: tuple[Entry, ...]


class Unknowns(NamedTuple):
    """All unknowns, those of the leaves first."""

    atoms: list[Atom]
    """By number."""
    words: dict[Value, tuple[Word, ...]]
    """Words of every value with its unpinned atoms as unknowns."""
    views: list[tuple[Equation, list[View]]]
    vanishing: list[int]
    """Those that must be zero."""
    unclear: list[int]
    """Those of an axis that an equation factorises differently: they vanish, and cannot be mixed either."""


def number_unknowns(
    permutations: Permutations, leaves: list[Value], known: dict[Value, float], outputs: list[Value]
) -> Unknowns:
    """Number the unknowns, leaves first, and view every equation variable by variable."""
    unknowns = Unknowns([], {}, [], [], [])
    for value in leaves:
        _label(unknowns, permutations, value)
    for record in permutations.records:
        unknowns.views.append((record.equation, _views(unknowns, permutations, record, known)))
    for value in outputs:
        if value not in known:
            unknowns.vanishing.extend(unknown_numbers(_label(unknowns, permutations, value)))
    return unknowns


def unknown_numbers(words: tuple[Word, ...]) -> list[int]:
    """Numbers of the unknowns on a value, axis by axis, depth first."""
    return [atom.number for word in words for atom in atoms(word) if isinstance(atom, Unknown)]


def _label(unknowns: Unknowns, permutations: Permutations, value: Value) -> tuple[Word, ...]:
    """The value's words with unpinned atoms replaced by unknowns."""

    def labelled(atom: Atom) -> Atom | Unknown:
        if atom.causes:
            return atom
        unknowns.atoms.append(atom)
        return Unknown(atom, len(unknowns.atoms) - 1)

    if value not in unknowns.words:
        unknowns.words[value] = tuple(map_atoms(labelled, word) for word in permutations.words[value])
        if value.constant is not None or not value.is_float:
            unknowns.vanishing.extend(unknown_numbers(unknowns.words[value]))
    return unknowns.words[value]


def _views(
    unknowns: Unknowns, permutations: Permutations, record: Record, known: dict[Value, float]
) -> list[View]:
    equation, axis_map = record.equation, record.axis_map
    expected = {
        variable: [atom for atom in atoms(word) if not atom.causes] for variable, word in record.words.items()
    }
    sides: list[list[dict[Variable, list[int] | None]]] = []
    for values, layouts in ((equation.operands, axis_map.operands), (equation.results, axis_map.results)):
        sides.append(
            [
                {variable: None for span in spans for variable in span.variables}
                if value in known or not value.size
                else _entries(unknowns, _label(unknowns, permutations, value), spans, expected)
                for value, spans in zip(values, layouts, strict=True)
            ]
        )
    return [
        View(atom, *(tuple(_entry(entries, variable, position) for entries in side) for side in sides))
        for variable, found in expected.items()
        for position, atom in enumerate(found)
    ]


def _entries(
    unknowns: Unknowns, words: tuple[Word, ...], spans: Layout, expected: dict[Variable, list[Atom]]
) -> dict[Variable, list[int] | None]:
    """Unknowns of a value by variable; None where the value is constant along it."""
    entries: dict[Variable, list[int] | None] = {}
    for span in spans:
        if not span.axes:
            entries.update(dict.fromkeys(span.variables))
            continue
        word = normalise(factor for axis in span.axes for factor in words[axis])
        found = unknown_numbers((word,))
        wanted = [atom for variable in span.variables for atom in expected[variable]]
        if [unknowns.atoms[number] for number in found] != wanted:
            # The same axis factorised differently: nothing is known about which unknown is which.
            unknowns.vanishing.extend(found)
            unknowns.unclear.extend(found)
            entries.update(dict.fromkeys(span.variables))
            continue
        entries.update(_divided(span, found, expected))
    return entries


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
