"""Generators of rescalings and flips per class, without those that another class already has.

If c varies over d, a factor for c that is constant along c is a factor for d. Such a generator of d says
nothing new, and would leave a flat direction in every problem over the scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from symbnn.symmetry.discovery.axis_words import Atom
from symbnn.symmetry.discovery.linear import Form, independent
from symbnn.symmetry.discovery.unknowns import Unknown
from symbnn.symmetry.spec import Word, pieces

Vector = tuple[Fraction, ...]


@dataclass(frozen=True)
class Generators:
    """Per class, vectors of exponents over the unknowns that the class has on leaves."""

    members: dict[Atom, list[int]]
    vectors: dict[Atom, list[Vector]]
    classes: list[Atom]

    @staticmethod
    def from_forms(atoms: Sequence[Atom], forms: Sequence[Form], ranks: dict[int, int]) -> "Generators":
        """Exponents of the leaves' unknowns in free unknowns; each free unknown is a generator."""
        members: dict[Atom, list[int]] = {}
        for unknown in range(len(forms)):
            members.setdefault(atoms[unknown], []).append(unknown)
        vectors = {}
        for atom, own in members.items():
            free = sorted(
                {inner for unknown in own for inner in forms[unknown]}, key=lambda u: ranks.get(u, u)
            )
            vectors[atom] = [
                tuple(forms[unknown].get(inner, Fraction(0)) for unknown in own) for inner in free
            ]
        return Generators(members, vectors, list(atoms[: len(forms)]))

    def count(self, atom: Atom) -> int:
        """Number of generators of a class."""
        return len(self.vectors[atom])

    def exponents(self, unknown: int) -> Vector:
        """The exponents of one unknown of a leaf, one per generator."""
        atom = self.classes[unknown]
        position = self.members[atom].index(unknown)
        return tuple(vector[position] for vector in self.vectors[atom])


def remove_redundant(
    generators: Generators,
    over: dict[Atom, list[Atom]],
    leaves: list[tuple[Word, ...]],
    *,
    modulus: int | None = None,
) -> Generators:
    """Drop from every class the generators that classes varying over it induce."""
    found = [
        [atom for atom in piece if isinstance(atom, Unknown)] for words in leaves for piece in pieces(words)
    ]
    vectors = dict(generators.vectors)
    for d in generators.members:
        induced = [
            vector
            for c, varied in over.items()
            if d in varied and c in generators.members
            for number in range(generators.count(c))
            if (vector := _induced(generators, found, c, number, d)) is not None
        ]
        if induced:
            vectors[d] = [tuple(v) for v in independent(generators.vectors[d], induced, modulus=modulus)]
    return Generators(generators.members, vectors, generators.classes)


def _induced(
    generators: Generators, found: list[list[Unknown]], c: Atom, number: int, d: Atom
) -> Vector | None:
    """Exponents on d of c's generator, constant along c; None if d's unknowns cannot express it."""
    induced: dict[int, Fraction] = {}
    for piece in found:
        total = sum((generators.exponents(one.number)[number] for one in piece if one.atom is c), Fraction(0))
        for one in piece:
            if one.atom is d and induced.setdefault(one.number, total) != total:
                return None
    return tuple(induced.get(unknown, Fraction(0)) for unknown in generators.members[d])
