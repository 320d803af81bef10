"""Directions along an axis: products of powers of leaves that vary along it alone; ones is empty."""

from typing import NamedTuple

from symbnn.symmetry.discovery.translations.terms import Axis, Power, Term
from symbnn.symmetry.program import Loop, Value


class Base(NamedTuple):
    """leaf + offset; of every axis of the leaf whether it is the direction's, or that of a loop."""

    leaf: Value
    offset: float
    axes: tuple[bool | Loop, ...]


Direction = tuple[tuple[Base, float], ...]
"""Every base with its exponent."""
ONES: Direction = ()


def direction_of(term: Term, axis: int) -> tuple[Direction, Term] | None:
    """A term as a direction along an axis times the rest, which is constant along it."""
    own = {*term.axes[axis]}
    inside = [p for p in term.powers if own & {i for each in p.axes for i in each}]
    if own & {index for each in term.amount for index in each}:
        return None
    for power in inside:
        wide = [each for each in power.axes if each and not isinstance(each[0], Loop)]
        if wide != [term.axes[axis]]:
            return None
    rest = tuple(p for p in term.powers if p not in inside)
    direction: Direction = ()
    for power in inside:
        axes = tuple(each[0] if each and isinstance(each[0], Loop) else bool(each) for each in power.axes)
        direction = times(direction, ((Base(power.leaf, power.offset, axes), power.exponent),))
    kept = tuple(each if number != axis else () for number, each in enumerate(term.axes))
    return direction, Term(kept, term.coefficient, rest, term.amount)


def direction_term(direction: Direction, axis: Axis) -> Term:
    """The direction as an array of one axis."""
    powers = tuple(
        Power(
            base.leaf,
            tuple((mark,) if isinstance(mark, Loop) else axis if mark else () for mark in base.axes),
            base.offset,
            exponent,
        )
        for base, exponent in direction
    )
    return Term((axis,), powers=powers)


def times(left: Direction, right: Direction, sign: int = 1) -> Direction:
    """The product, or the quotient for a sign of −1."""
    exponents = dict(left)
    for base, exponent in right:
        exponents[base] = exponents.get(base, 0.0) + sign * exponent
    kept = ((base, exponent) for base, exponent in exponents.items() if exponent)
    return tuple(sorted(kept, key=lambda item: (id(item[0].leaf), item[0].offset)))
