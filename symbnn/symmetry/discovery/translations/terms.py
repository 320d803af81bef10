"""Products of leaves with named indices, as einsum writes them, and what primitives do to them.

A term describes an array: every axis is made of indices, and powers of leaves and perhaps an amount t stand
over them. An index of an axis that stands nowhere else is one along which the array is constant; one that
stands nowhere on the axes is summed over.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from symbnn.symmetry.program import Equation, Loop, Value

Index = int | Loop
"""Those of loops are the same wherever they occur."""
Axis = tuple[Index, ...]

_numbers = itertools.count()


@dataclass(frozen=True)
class Power:
    """(leaf + offset)^exponent over indices."""

    leaf: Value
    axes: tuple[Axis, ...]
    offset: float = 0.0
    exponent: float = 1.0


@dataclass(frozen=True)
class Term:
    """coefficient · t[amount] Π powers, as an array with the given axes."""

    axes: tuple[Axis, ...]
    coefficient: float = 1.0
    powers: tuple[Power, ...] = ()
    amount: tuple[Axis, ...] = ()

    @property
    def occurring(self) -> set[Index]:
        """Indices along which something varies."""
        over = [*self.amount, *(axis for power in self.powers for axis in power.axes)]
        return {index for axis in over for index in axis}

    def is_constant(self, axis: int) -> bool:
        """Whether the array is constant along an axis."""
        return not self.occurring & {*self.axes[axis]}


class Sizes(dict[Index, int]):
    """Lengths of indices."""

    def fresh(self, size: int) -> Index:
        """A new index."""
        index = next(_numbers)
        self[index] = size
        return index

    def axes(self, shape: tuple[int, ...]) -> tuple[Axis, ...]:
        """New indices for all axes of a shape; none for axes of length 1."""
        return tuple((self.fresh(size),) if size > 1 else () for size in shape)


def of_leaf(leaf: Value, sizes: Sizes) -> Term:
    """The leaf itself."""
    axes = sizes.axes(leaf.shape)
    return Term(axes, powers=(Power(leaf, axes),))


def renamed(term: Term, names: Mapping[Index, Axis]) -> Term:
    """Indices replaced by others, or by several."""

    def axis_of(axis: Axis) -> Axis:
        return tuple(new for index in axis for new in names.get(index, (index,)))

    return replace(
        term,
        axes=tuple(map(axis_of, term.axes)),
        powers=tuple(replace(power, axes=tuple(map(axis_of, power.axes))) for power in term.powers),
        amount=tuple(map(axis_of, term.amount)),
    )


def freshened(term: Term, sizes: Sizes) -> Term:
    """The same with indices of its own, so that it may stand beside another."""
    found = {*term.occurring, *(index for axis in term.axes for index in axis)}
    names: dict[Index, Axis] = {
        index: (sizes.fresh(sizes[index]),) for index in found if not isinstance(index, Loop)
    }
    return renamed(term, names)


def scaled(term: Term, factor: float) -> Term:
    """Times a number."""
    return replace(term, coefficient=term.coefficient * factor)


def raised(term: Term, exponent: float) -> Term | None:
    """To a power, where that is a product again: nothing is summed, and roots are of what is positive."""
    on_axes = {index for axis in term.axes for index in axis}
    is_plain = term.occurring <= on_axes and not term.amount
    is_defined = term.coefficient > 0 or (term.coefficient and float(exponent).is_integer())
    if not is_plain or not is_defined:
        return None
    powers = tuple(replace(power, exponent=power.exponent * exponent) for power in term.powers)
    return replace(term, coefficient=term.coefficient**exponent, powers=powers)


def aligned(left: Term, right: Term, pairs: list[tuple[int, int]], sizes: Sizes) -> tuple[Term, Term] | None:
    """Both with the same indices on pairs of axes; None where their axes are made up differently."""
    right = freshened(right, sizes)
    for here, there in pairs:
        first, second = left.axes[here], right.axes[there]
        if math.prod(sizes[i] for i in first) != math.prod(sizes[i] for i in second):
            # An axis of length 1 is repeated.
            if first and second:
                return None
            continue
        cut = _common(first, second, sizes)
        if cut is None:
            return None
        splits, merged = cut
        left, right = renamed(left, splits), renamed(right, splits)
        names = dict(merged)
        if any(isinstance(index, Loop) for index in names):
            return None
        right = renamed(right, names)
    return left, right


def _common(first: Axis, second: Axis, sizes: Sizes) -> tuple[dict[Index, Axis], dict[Index, Axis]] | None:
    """Indices to split so that two axes are made of the same lengths; those of the second by the first's."""
    splits: dict[Index, Axis] = {}
    one, other = list(first), list(second)
    left: list[Index] = []
    right: list[Index] = []
    while one and other:
        a, b = one.pop(0), other.pop(0)
        if sizes[a] == sizes[b]:
            left.append(a)
            right.append(b)
            continue
        big, small, rest = (a, b, one) if sizes[a] > sizes[b] else (b, a, other)
        if sizes[big] % sizes[small] or isinstance(big, Loop):
            return None
        parts = (sizes.fresh(sizes[small]), sizes.fresh(sizes[big] // sizes[small]))
        splits[big] = parts
        rest[:0] = parts
        (other if big == a else one).insert(0, small)
    return splits, {b: (a,) for a, b in zip(left, right, strict=True) if a != b}


def product(left: Term, right: Term, axes: tuple[Axis, ...]) -> Term:
    """Of two terms that were aligned, with the axes of the result."""
    return Term(
        axes, left.coefficient * right.coefficient, left.powers + right.powers, left.amount + right.amount
    )


def summed(term: Term, axes: Any, sizes: Sizes) -> Term:
    """Summed over axes: indices along which it is constant count."""
    counted = [i for axis in axes for i in term.axes[axis] if i not in term.occurring]
    kept = tuple(axis for number, axis in enumerate(term.axes) if number not in axes)
    return replace(scaled(term, math.prod(sizes[i] for i in counted)), axes=kept)


def multiplied(left: Term, right: Term, shape: tuple[int, ...], sizes: Sizes) -> Term | None:
    """Elementwise; scalars and axes of length 1 are repeated."""
    pairs = [(axis, axis) for axis in range(len(shape))] if left.axes and right.axes else []
    both = aligned(left, right, pairs, sizes)
    if both is None:
        return None
    axes = tuple(
        next((term.axes[axis] for term in both if term.axes and term.axes[axis]), ())
        for axis in range(len(shape))
    )
    return product(*both, axes)


def contracted(equation: Equation, left: Term, right: Term, sizes: Sizes) -> Term | None:
    """dot_general of two terms."""
    (lhs, rhs), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
    both = aligned(left, right, list(zip((*lhs, *lhs_batch), (*rhs, *rhs_batch), strict=True)), sizes)
    if both is None:
        return None
    left, right = both
    batch = [left.axes[axis] for axis in lhs_batch]
    free = [axis for number, axis in enumerate(left.axes) if number not in (*lhs, *lhs_batch)]
    free += [axis for number, axis in enumerate(right.axes) if number not in (*rhs, *rhs_batch)]
    whole = product(left, right, ())
    counted = [i for axis in lhs for i in left.axes[axis] if i not in whole.occurring]
    for index in counted:
        whole = scaled(whole, sizes[index])
    return Term((*batch, *free), whole.coefficient, whole.powers, whole.amount)
