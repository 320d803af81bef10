"""All translations of a program: every leaf as a whole, and along each of its axes.

Along an axis a leaf may move by t ⊗ u with a direction u: ones, or, where it reads a value of which a weighed
sum is constant, those weights (LayerNorm's output y with gain γ and shift β has Σ (y − β)/γ = 0).
"""

import math
from collections.abc import Iterator, Mapping

from symbnn.symmetry.discovery.translations.blind import Blind
from symbnn.symmetry.discovery.translations.directions import ONES, Direction, direction_term
from symbnn.symmetry.discovery.translations.facts import Facts
from symbnn.symmetry.discovery.translations.pushing import Moved, Pushing
from symbnn.symmetry.discovery.translations.terms import Index, Power, Term, product
from symbnn.symmetry.discovery.translations.views import is_view, targets
from symbnn.symmetry.program import Loop, Program, Value
from symbnn.symmetry.spec.translations import Axis, Change, Place, Translation
from symbnn.symmetry.spec.translations import Power as Described


def find_translations(
    program: Program,
    places: Mapping[Value, Place],
    known: dict[Value, float],
    *,
    held: frozenset[Value] = frozenset(),
    statistics: frozenset[Value] = frozenset(),
) -> tuple[Translation, ...]:
    """Translations of the leaves with those places; held ones, and those that nothing reads, do not move."""
    facts = Facts(program, places, known)
    blind = Blind(facts)
    barred = held | {leaf for leaf in places if not leaf.is_float or leaf.dtype.kind == "c"}

    def pushed(leaf: Value, term: Term) -> Iterator[list[Moved]]:
        """By the leaves that make up for it soonest; where those lie before it, also by those behind it."""
        first = Pushing(facts, blind, barred, statistics)
        if (moved := first.push(leaf, term)) is not None:
            yield moved
        if first.has_reached:
            others = Pushing(facts, blind, barred, statistics, reaches=False).push(leaf, term)
            yield from [] if others is None else [others]

    found: list[list[Moved]] = []
    for leaf in places:
        if leaf in barred or not leaf.size or leaf not in facts.readers:
            continue
        axes = facts.sizes.axes(leaf.shape)
        whole = Term(axes, amount=tuple(axis for axis in axes if axis))
        found += (moved := list(pushed(leaf, whole)))
        if moved:
            continue
        for axis, size in enumerate(leaf.shape):
            for direction in dict.fromkeys(_directions(facts, leaf, axis) if size > 1 else ()):
                if (term := _along(facts, leaf, axis, direction)) is not None:
                    found += pushed(leaf, term)
    return tuple(_described(one, places, facts) for one in _different(found))


def _different(found: list[list[Moved]]) -> Iterator[list[Moved]]:
    """Without those that move the same leaves, each as a whole: one leaf for another, and back."""
    seen: set[frozenset[Value]] = set()
    for moved in found:
        if moved[0].term.powers or moved[0].term.occurring != {i for a in moved[0].term.axes for i in a}:
            yield moved
        elif (leaves := frozenset(one.leaf for one in moved)) not in seen:
            seen.add(leaves)
            yield moved


def _along(facts: Facts, leaf: Value, axis: int, direction: Direction) -> Term | None:
    """t ⊗ direction, with the direction along one axis."""
    axes = facts.sizes.axes(leaf.shape)
    loops = {mark for base, _ in direction for mark in base.axes if isinstance(mark, Loop)}
    if loops:
        # The direction varies from one iteration to the next, so the leaf must be one that is scanned.
        if {equation.params.get("loop") for equation in facts.readers[leaf]} != loops or not axis:
            return None
        axes = (tuple(loops), *axes[1:])
    amount = Term(axes, amount=tuple(each for n, each in enumerate(axes) if n != axis and each))
    return product(amount, direction_term(direction, axes[axis]), axes)


def _directions(facts: Facts, value: Value, axis: int) -> Iterator[Direction]:
    """Ones, and the weights of what is contracted with the axis."""
    yield ONES
    for equation in facts.readers.get(value, ()):
        which = equation.operands.index(value)
        if is_view(equation):
            place = targets(equation)[axis]
            if place is not None and equation.results[0].shape[place] == value.shape[axis]:
                yield from _directions(facts, equation.results[0], place)
        elif equation.primitive == "dot_general":
            sides, _ = equation.params["dimension_numbers"]
            if axis in sides[which]:
                place = sides[1 - which][sides[which].index(axis)]
                for one in facts.constraints.get(equation.operands[1 - which], ()):
                    if one.axis == place:
                        yield one.direction


def _described(moved: list[Moved], places: Mapping[Value, Place], facts: Facts) -> Translation:
    """With numbers for indices and names for leaves."""
    numbers: dict[Index, int] = {}

    def axis_of(axis: tuple[Index, ...]) -> Axis:
        return tuple(numbers.setdefault(index, len(numbers)) for index in axis)

    def power_of(power: Power) -> Described:
        return Described(
            places[power.leaf], tuple(map(axis_of, power.axes)), power.offset, float(power.exponent)
        )

    changes = tuple(
        Change(
            places[one.leaf],
            tuple(map(axis_of, one.term.axes)),
            tuple(map(axis_of, one.term.amount)),
            float(one.term.coefficient),
            tuple(map(power_of, one.term.powers)),
        )
        for one in moved
    )
    shape = tuple(math.prod(facts.sizes[index] for index in axis) for axis in moved[0].term.amount)
    sizes = tuple((number, facts.sizes[index]) for index, number in numbers.items())
    return Translation(shape, changes, sizes)
