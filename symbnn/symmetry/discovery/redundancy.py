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
    """Drop from every class the generators that classes varying over it induce, together if need be."""
    found = [
        [atom for atom in piece if isinstance(atom, Unknown)] for words in leaves for piece in pieces(words)
    ]
    vectors = dict(generators.vectors)
    for d in generators.members:
        varying = [c for c, varied in over.items() if d in varied and c in generators.members]
        here = [piece for piece in found if any(one.atom is d for one in piece)]
        if not varying or not vectors[d]:
            continue
        induced = [
            _along(generators, here, c, number, d) for c in varying for number in range(generators.count(c))
        ]
        own = {_along(generators, here, d, number, d): vector for number, vector in enumerate(vectors[d])}
        vectors[d] = [own[tuple(vector)] for vector in independent(own, induced, modulus=modulus)]
    return Generators(generators.members, vectors, generators.classes)


def _along(generators: Generators, found: list[list[Unknown]], c: Atom, number: int, d: Atom) -> Vector:
    """What a generator of c, constant along c, does to every occurrence of d, piece by piece."""
    exponents = []
    for piece in found:
        places = [one for one in piece if one.atom is d]
        for place in places:
            factors = [place] if c is d else [one for one in piece if one.atom is c]
            exponents.append(sum((generators.exponents(one.number)[number] for one in factors), Fraction(0)))
    return tuple(exponents)
