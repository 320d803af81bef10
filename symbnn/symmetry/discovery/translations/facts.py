"""What is known of values along an axis: products of leaves, profiles, and sums that are constant.

A *direction* along an axis is a product of powers of leaves that vary along it alone; ones is the empty
product. A value has the *profile* u along an axis if it is u times something constant along it, and it is
*constrained* along c if Σ c z is the same for all data: zero behind a subtracted mean, one behind softmax.
"""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from symbnn.symmetry.discovery.translations.terms import (
    Axis,
    Power,
    Sizes,
    Term,
    aligned,
    of_leaf,
    product,
    raised,
    scaled,
    summed,
)
from symbnn.symmetry.discovery.translations.views import is_view, targets, viewed
from symbnn.symmetry.program import Equation, Loop, Program, Value

class Base(NamedTuple):
    """leaf + offset; of every axis of the leaf whether it is the direction's, or that of a loop."""

    leaf: Value
    offset: float
    axes: tuple[bool | Loop, ...]


Direction = tuple[tuple[Base, float], ...]
"""Every base with its exponent."""
ONES: Direction = ()


class Constraint(NamedTuple):
    """Σ direction · value along an axis is the sum of `total`, terms without axes, whatever the data are."""

    axis: int
    direction: Direction
    total: tuple[Term, ...]


class Facts:
    """Of one program; computed once for all, in its order."""

    def __init__(self, program: Program, leaves: Iterable[Value], known: dict[Value, float]) -> None:
        self.sizes = Sizes()
        self.known = known
        self.makers = {value: equation for equation in program.equations for value in equation.results}
        self.readers = program.readers()
        self.order = {equation: number for number, equation in enumerate(program.equations)}
        self.outputs = {*program.outputs}
        self.terms: dict[Value, Term] = {leaf: of_leaf(leaf, self.sizes) for leaf in leaves if leaf.is_float}
        self.constraints: dict[Value, list[Constraint]] = {}
        for equation in program.equations:
            if equation.primitive == "scan_x":
                self.sizes[equation.params["loop"]] = equation.params["loop"].length
            term = self._term(equation)
            if term is not None:
                self.terms[equation.results[0]] = term
                continue
            found = list(self._constrained(equation))
            if found:
                self.constraints[equation.results[0]] = found

    def term(self, value: Value) -> Term | None:
        """The value as a product of leaves; None if it is none."""
        if value in self.known:
            return Term(self.sizes.axes(value.shape), self.known[value])
        return self.terms.get(value)

    def profile(self, value: Value, axis: int) -> Direction | None:
        """The direction of a value along an axis; None if nothing is known."""
        if not value.shape or value.shape[axis] == 1:
            return ONES
        term = self.term(value)
        if term is not None and (found := direction_of(term, axis)) is not None:
            return found[0]
        equation = self.makers.get(value)
        if equation is None:
            return None
        if is_view(equation):
            places = list(targets(equation))
            if axis in places and equation.operands[0].shape[places.index(axis)] == value.shape[axis]:
                return self.profile(equation.operands[0], places.index(axis))
            return ONES if equation.primitive == "broadcast_in_dim" else None
        if equation.primitive in ("mul", "div"):
            both = [self.profile(operand, axis) for operand in equation.operands]
            if both[0] is None or both[1] is None:
                return None
            return times(both[0], both[1], 1 if equation.primitive == "mul" else -1)
        return None

    def root(self, value: Value) -> Value:
        """The value before conversions of its type."""
        equation = self.makers.get(value)
        while equation is not None and is_view(equation) and equation.operands[0].shape == value.shape:
            if list(targets(equation)) != list(range(len(value.shape))):
                break
            value = equation.operands[0]
            equation = self.makers.get(value)
        return value

    def sum_of(self, value: Value, axis: int) -> tuple[Value, float] | None:
        """(x, k) if the value is k Σ x along the axis, repeated along it."""
        equation, factor = self.makers.get(value), 1.0
        while equation is not None and equation.primitive != "reduce_sum":
            if is_view(equation):
                value = equation.operands[0]
            elif equation.primitive in ("div", "mul"):
                numbers = [self.known.get(operand) for operand in equation.operands]
                which = 1 if numbers[1] is not None else 0
                number = numbers[which]
                if number is None or not number or (equation.primitive == "div" and which == 0):
                    return None
                factor *= number if equation.primitive == "mul" else 1 / number
                value = equation.operands[1 - which]
            else:
                return None
            equation = self.makers.get(value)
        if equation is None or tuple(equation.params["axes"]) != (axis,):
            return None
        return self.root(equation.operands[0]), factor

    def _term(self, equation: Equation) -> Term | None:
        if len(equation.results) != 1 or not equation.operands or not equation.results[0].is_float:
            return None
        terms = [self.term(operand) for operand in equation.operands]
        name, shape = equation.primitive, equation.results[0].shape
        if any(term is None for term in terms) or equation.results[0] in self.known:
            return None
        first = terms[0]
        assert first is not None
        if is_view(equation):
            return viewed(equation, first, self.sizes)
        if name == "neg":
            return scaled(first, -1)
        if name in ("sqrt", "rsqrt", "square", "integer_pow"):
            exponent = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2.0}.get(name) or equation.params["y"]
            return raised(first, exponent)
        if name in ("add", "sub"):
            return self._offset(equation)
        if name in ("mul", "div"):
            second = terms[1] if name == "mul" else raised(terms[1], -1)  # type: ignore[arg-type]
            return None if second is None else multiplied(first, second, shape, self.sizes)
        if name == "dot_general":
            return contracted(equation, first, terms[1], self.sizes)  # type: ignore[arg-type]
        if name == "reduce_sum":
            return summed(first, equation.params["axes"], self.sizes)
        return None

    def _offset(self, equation: Equation) -> Term | None:
        """A leaf plus a number."""
        numbers = [self.known.get(operand) for operand in equation.operands]
        which = next((n for n, number in enumerate(numbers) if number is not None), None)
        if which is None:
            return None
        term, number = self.term(equation.operands[1 - which]), numbers[which]
        assert number is not None
        if term is None or len(term.powers) != 1 or term.coefficient != 1:
            return None
        if equation.primitive == "sub":
            if which == 0:
                return None
            number = -number
        power = term.powers[0]
        if power.exponent != 1 or equation.operands[1 - which].shape != equation.results[0].shape:
            return None
        return Term(term.axes, powers=(power.__class__(power.leaf, power.axes, power.offset + number),))

    def _constrained(self, equation: Equation) -> Iterable[Constraint]:
        name, operands = equation.primitive, equation.operands
        if not operands or len(equation.results) != 1:
            return
        if name == "sub":
            for axis in range(len(operands[0].shape)):
                found = self.sum_of(operands[1], axis)
                size = operands[0].shape[axis]
                if found and found[0] is self.root(operands[0]) and abs(found[1] * size - 1) < 1e-6:
                    yield Constraint(axis, ONES, ())
        if name == "div":
            for axis in range(len(operands[0].shape)):
                found = self.sum_of(operands[1], axis)
                if found and found[0] is self.root(operands[0]):
                    yield Constraint(axis, ONES, (Term((), 1 / found[1]),))
        if is_view(equation):
            places = targets(equation)
            for one in self.constraints.get(operands[0], ()):
                place = places[one.axis]
                if place is not None:
                    yield one._replace(axis=place)
        if name in ("mul", "div", "add", "sub"):
            for which in (0, 1) if name in ("mul", "add") else (0,):
                for one in self.constraints.get(operands[which], ()):
                    yield from self._carried(equation, one, operands[1 - which])

    def _carried(self, equation: Equation, one: Constraint, other: Value) -> Iterable[Constraint]:
        """A constraint after a product with, or a sum with, another value."""
        term, shape = self.term(other), equation.results[0].shape
        if other.shape and len(other.shape) != len(shape):
            return
        if equation.primitive in ("mul", "div"):
            profile = self.profile(other, one.axis)
            if profile is None:
                return
            sign = -1 if equation.primitive == "mul" else 1
            only_here = term is not None and _depends_only_on(term, one.axis)
            if not one.total or (only_here and profile and _is_unit(term)):  # type: ignore[arg-type]
                yield one._replace(direction=times(one.direction, profile, sign))
        elif term is not None and _depends_only_on(term, one.axis):
            axes: tuple[Axis, ...] = self.sizes.axes((shape[one.axis],))
            whole = multiplied(
                direction_term(one.direction, axes[0]),
                Term((term.axes[one.axis] if term.axes else (),), term.coefficient, term.powers),
                (shape[one.axis],),
                self.sizes,
            )
            if whole is not None:
                sign = 1 if equation.primitive == "add" else -1
                added = summed(scaled(whole, sign), (0,), self.sizes)
                yield one._replace(total=(*one.total, added))


def _is_unit(term: Term) -> bool:
    return term.coefficient == 1


def _depends_only_on(term: Term, axis: int) -> bool:
    own = {*term.axes[axis]} if term.axes else set()
    others = {index for number, each in enumerate(term.axes) if number != axis for index in each}
    return not term.occurring & others and not term.amount and term.occurring <= own


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


def multiplied(left: Term, right: Term, shape: tuple[int, ...], sizes: Sizes) -> Term | None:
    """Elementwise; scalars and axes of length 1 are repeated."""
    pairs = [(axis, axis) for axis in range(len(shape))] if left.axes and right.axes else []
    both = aligned(left, right, pairs, sizes)
    if both is None:
        return None
    one, other = both
    axes = tuple(
        reduce(lambda a, b: a or b, [term.axes[axis] for term in (one, other) if term.axes], ())
        for axis in range(len(shape))
    )
    return product(one, other, axes)


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
