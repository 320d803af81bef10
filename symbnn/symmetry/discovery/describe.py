"""What the passes found out, written down as a `SymmetrySpec`: classes get names, leaves their words.

Free classes are groups, ordered so that each comes after those it varies over; pinned classes that groups
vary over are indices.
"""

from typing import NamedTuple

from symbnn.symmetry.discovery import reasons
from symbnn.symmetry.discovery.axis_words import Atom
from symbnn.symmetry.discovery.exponents import Shift
from symbnn.symmetry.discovery.kinds import Mixing
from symbnn.symmetry.discovery.names import name_classes
from symbnn.symmetry.discovery.permutations import Permutations
from symbnn.symmetry.discovery.redundancy import Generators
from symbnn.symmetry.discovery.roles import Roles
from symbnn.symmetry.discovery.unknowns import Unknown, Unknowns, unknown_numbers
from symbnn.symmetry.program import Equation, Value
from symbnn.symmetry.spec import (
    Factor,
    Group,
    Index,
    Leaf,
    Missing,
    Role,
    Segments,
    SymmetrySpec,
    Word,
    atoms,
)

KINDS = ("scale", "sign")


class Found(NamedTuple):
    """What the passes found out, before it is given names."""

    leaves: dict[str, Value]
    used: set[Value]
    """Values that something reads, or that are outputs; not those that are held."""
    held: dict[Value, float]
    """Leaves that keep one number."""
    permutations: Permutations
    unknowns: Unknowns
    roles: Roles
    shifts: dict[Value, Shift]
    over: dict[Atom, list[Atom]]
    scales: Generators
    signs: Generators
    kinds: dict[Atom, Mixing]
    bent: tuple[dict[Atom, Equation | None], ...]
    """By class, the first equation that allows no scales, and likewise for signs."""


def describe(found: Found) -> SymmetrySpec:
    """Give names to classes and write down what happens to every leaf."""
    classes = _classes(found)
    indices = dict.fromkeys(d for c in classes for d in found.over[c] if d.causes)
    labels = name_classes(_places(found, [*indices, *classes]), {c: found.over[c] for c in classes})
    groups = tuple(
        Group(
            labels[c],
            c.size,
            tuple(labels[d] for d in found.over[c]),
            found.scales.count(c),
            found.signs.count(c),
            *found.kinds[c],
        )
        for c in classes
    )
    leaves = tuple(_leaf(found, name, value, labels) for name, value in found.leaves.items())
    pins, notes = reasons.collect(found.leaves, found.permutations, found.used, found.held, labels)
    missing = tuple(
        Missing(labels[c], kind, reasons.missing(kind, c in bent, bent.get(c)))
        for c in classes
        for kind, generators, bent in zip(KINDS, (found.scales, found.signs), found.bent, strict=True)
        if not generators.count(c)
    )
    indexed = tuple(Index(labels[d], d.size) for d in indices)
    return SymmetrySpec(groups, leaves, indexed, tuple(pins), tuple(notes), missing=missing)


def _classes(found: Found) -> list[Atom]:
    """Free classes in order of appearance, each after those it varies over."""
    ordered: dict[Atom, None] = {}

    def visit(c: Atom) -> None:
        if c.causes or c in ordered:
            return
        for d in found.over[c]:
            visit(d)
        ordered[c] = None

    appearance = sorted(
        range(len(found.roles.ranks)), key=lambda unknown: found.roles.ranks.get(unknown, unknown)
    )
    for unknown in appearance:
        visit(found.unknowns.atoms[unknown])
    return list(ordered)


def _places(found: Found, classes: list[Atom]) -> dict[Atom, list[str]]:
    """Names of the leaves that have a class, those that produce it first."""
    ranks, labelled = found.roles.ranks, found.unknowns.words
    places: dict[Atom, list[tuple[int, str]]] = {c: [] for c in classes}
    for name, value in found.leaves.items():
        if value not in labelled:
            continue
        for factor in (factor for word in labelled[value] for factor in atoms(word)):
            atom = factor.atom if isinstance(factor, Unknown) else factor
            rank = ranks[factor.number] if isinstance(factor, Unknown) else len(ranks)
            if atom in places:
                places[atom].append((rank, name))
    return {
        c: [name for _, name in sorted(found_at, key=lambda pair: pair[0])] for c, found_at in places.items()
    }


def _leaf(found: Found, name: str, value: Value, labels: dict[Atom, str]) -> Leaf:
    if value not in found.used:
        return Leaf(name, value.shape, tuple((Factor(size),) for size in value.shape))
    words = found.unknowns.words[value]
    axes = tuple(_word(found, word, labels) for word in words)
    is_shifted = value in found.shifts and any(
        any(found.scales.exponents(unknown)) for unknown in unknown_numbers(words)
    )
    is_statistic = bool({unknown for unknown, _ in found.roles.variances} & {*unknown_numbers(words)})
    return Leaf(name, value.shape, axes, found.shifts[value].amount if is_shifted else 0.0, is_statistic)


def _word(found: Found, word: Word, labels: dict[Atom, str]) -> Word:
    factors: list[Factor | Segments] = []
    for factor in word:
        if isinstance(factor, Segments):
            described: Factor | Segments = _segments([_word(found, w, labels) for w in factor.words])
        elif isinstance(factor, Unknown):
            described = _factor(found, factor, labels)
        else:
            described = Factor(factor.size, labels.get(factor))
        if factors and _is_fixed(factors[-1]) and _is_fixed(described):
            described = Factor(factors.pop().size * described.size)
        factors.append(described)
    return tuple(factors)


def _factor(found: Found, unknown: Unknown, labels: dict[Atom, str]) -> Factor:
    return Factor(
        unknown.size,
        labels[unknown.atom],
        found.scales.exponents(unknown.number),
        tuple(int(parity) for parity in found.signs.exponents(unknown.number)),
        _role(found, unknown.number),
    )


def _role(found: Found, unknown: int) -> Role:
    produces, consumes = unknown in found.roles.produces, unknown in found.roles.consumes
    if produces and consumes:
        return "both"
    return "consumes" if consumes else "produces"


def _segments(words: list[Word]) -> Factor | Segments:
    """Words end to end; neighbours that do not move are one."""
    merged: list[Word] = []
    for word in words:
        word = word or (Factor(1),)
        if merged and _fixed_word(merged[-1]) and _fixed_word(word):
            merged.append((Factor(merged.pop()[0].size + word[0].size),))
        else:
            merged.append(word)
    if len(merged) == 1 and _fixed_word(merged[0]):
        return merged[0][0]
    return Segments(tuple(merged))


def _fixed_word(word: Word) -> bool:
    return len(word) == 1 and _is_fixed(word[0])


def _is_fixed(factor: Factor | Segments) -> bool:
    return isinstance(factor, Factor) and factor.group is None
