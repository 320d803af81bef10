"""Translations: directions along which weights may be moved by any amount, the others making up for it.

A key bias that softmax does not see, a value bias that moves into the output bias, the mean of what LayerNorm
centres. With an amount t every changed leaf moves by a product of t and of powers of leaves that stay:

    leaf[axes] += coefficient · Σ t[amount] Π (other[axes] + offset)^exponent

so a translation is exact at any amount, and translations follow one another. They do not commute in general,
which is why they are no part of `Element`.
"""

from dataclasses import dataclass
from typing import NamedTuple

Axis = tuple[int, ...]
"""The indices that an axis is made of, slowest first; those that occur nowhere else are free."""


class Cut(NamedTuple):
    """Some positions of an axis: so many of each of its `outer` blocks."""

    axis: int
    outer: int
    start: int
    length: int


class Place(NamedTuple):
    """A leaf, or a part of it: cut, and perhaps cut again."""

    leaf: str
    cuts: tuple[Cut, ...] = ()
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.leaf


class Power(NamedTuple):
    """(leaf + offset)^exponent."""

    place: Place
    axes: tuple[Axis, ...]
    offset: float
    exponent: float


class Change(NamedTuple):
    """How one leaf moves with the amount."""

    place: Place
    axes: tuple[Axis, ...]
    amount: tuple[Axis, ...]
    """The indices of every axis of the amount."""
    coefficient: float
    powers: tuple[Power, ...]


@dataclass(frozen=True)
class Translation:
    """One family of moves, by amounts of a shape."""

    shape: tuple[int, ...]
    changes: tuple[Change, ...]
    """That of the leaf it is named after comes first; it sums over nothing."""
    sizes: tuple[tuple[int, int], ...]
    """Length of every index."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Leaves that move."""
        return tuple(dict.fromkeys(change.place.leaf for change in self.changes))

    def __str__(self) -> str:
        first, *rest = self.changes
        own = {index for axis in first.amount for index in axis}
        along = [axis for axis, indices in enumerate(first.axes) if not {*indices} <= own]
        where = f" along axis {', '.join(map(str, along))}" if along else ""
        like = "".join(f" as {_base(power)}" for power in first.powers)
        into = ", ".join(dict.fromkeys(str(change.place) for change in rest))
        makes_up = f"; {into} {'makes' if len(rest) == 1 else 'make'} up for it" if rest else ""
        return f"{first.place}{where}{like}{makes_up}"


def _base(power: Power) -> str:
    base = f"({power.place} + {power.offset:g})" if power.offset else str(power.place)
    return base if power.exponent == 1 else f"{base}^{power.exponent:g}"
