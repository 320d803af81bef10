"""Generators of rescalings and flips per class, without those that another class already has.

If c varies over d, a factor for c that is constant along c is a factor for d. Such a generator of d says
nothing new, and would leave a flat direction in every problem over the scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from symbnn.symmetry.discovery.axis_words import Atom, Sum, Word
from symbnn.symmetry.discovery.linear import Form, independent
from symbnn.symmetry.discovery.unknowns import Slot

Vector = tuple[Fraction, ...]


@dataclass(frozen=True)
class Generators:
    """Per class, vectors of exponents over the class's leaf slots."""

    slots: dict[Atom, list[int]]
    vectors: dict[Atom, list[Vector]]
    classes: list[Atom]

    @staticmethod
    def from_forms(atoms: Sequence[Atom], forms: Sequence[Form], ranks: dict[int, int]) -> "Generators":
        """Exponents of leaf slots in free unknowns; each free unknown is a generator."""
        slots: dict[Atom, list[int]] = {}
        for unknown in range(len(forms)):
            slots.setdefault(atoms[unknown], []).append(unknown)
        vectors = {}
        for atom, members in slots.items():
            free = sorted(
                {inner for unknown in members for inner in forms[unknown]}, key=lambda u: ranks.get(u, u)
            )
            vectors[atom] = [
                tuple(forms[unknown].get(inner, Fraction(0)) for unknown in members) for inner in free
            ]
        return Generators(slots, vectors, list(atoms[: len(forms)]))

    def count(self, atom: Atom) -> int:
        """Number of generators of a class."""
        return len(self.vectors[atom])

    def exponents(self, unknown: int) -> Vector:
        """The exponents of one leaf slot, one per generator."""
        atom = self.classes[unknown]
        position = self.slots[atom].index(unknown)
        return tuple(vector[position] for vector in self.vectors[atom])


def remove_redundant(
    generators: Generators,
    over: dict[Atom, list[Atom]],
    leaves: list[tuple[Word, ...]],
    *,
    modulus: int | None = None,
) -> Generators:
    """Drop from every class the generators that classes varying over it induce."""
    pieces = [piece for words in leaves for piece in _pieces(words)]
    vectors = dict(generators.vectors)
    for d in generators.slots:
        induced = [
            vector
            for c, varied in over.items()
            if d in varied and c in generators.slots
            for number in range(generators.count(c))
            if (vector := _induced(generators, pieces, c, number, d)) is not None
        ]
        if induced:
            vectors[d] = [tuple(v) for v in independent(generators.vectors[d], induced, modulus=modulus)]
    return Generators(generators.slots, vectors, generators.classes)


def _induced(
    generators: Generators, pieces: list[list[Slot]], c: Atom, number: int, d: Atom
) -> Vector | None:
    """Exponents on d's slots of c's generator, constant along c; None if d's slots cannot express it."""
    found: dict[int, Fraction] = {}
    for piece in pieces:
        total = sum(
            (generators.exponents(slot.unknown)[number] for slot in piece if slot.atom is c), Fraction(0)
        )
        for slot in piece:
            if slot.atom is d and found.setdefault(slot.unknown, total) != total:
                return None
    return tuple(found.get(unknown, Fraction(0)) for unknown in generators.slots[d])


def _pieces(words: tuple[Word, ...]) -> list[list[Slot]]:
    """The slots of a leaf, once for every choice of segments."""
    pieces: list[list[Slot]] = [[]]
    for word in words:
        pieces = [[*piece, *way] for piece in pieces for way in _ways(word)]
    return pieces


def _ways(word: Word) -> list[list[Slot]]:
    ways: list[list[Slot]] = [[]]
    for factor in word:
        if isinstance(factor, Sum):
            return [[*ways[0], *way] for segment in factor.words for way in _ways(segment)]
        if isinstance(factor, Slot):
            ways[0].append(factor)
    return ways
