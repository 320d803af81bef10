"""What is known of values along an axis: products of leaves, profiles, and sums that are constant.

A value has the *profile* u along an axis if it is u times something constant along it, and it is
*constrained* along c if Σ c z is the same for all data: zero behind a subtracted mean, one behind softmax.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from symbnn.symmetry.discovery.translations.directions import (
    ONES,
    Direction,
    direction_of,
    direction_term,
    times,
)
from symbnn.symmetry.discovery.translations.terms import (
    Axis,
    Sizes,
    Term,
    contracted,
    multiplied,
    of_leaf,
    raised,
    scaled,
    summed,
)
from symbnn.symmetry.discovery.translations.views import is_view, targets, viewed
from symbnn.symmetry.program import Equation, Loop, Program, Value


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
            number = self.known[value]
            return Term(self.sizes.axes(value.shape), number) if math.isfinite(number) else None
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
        """(x, k) if the value is k Σ x along the axis, repeated along it; other axes are where x has them."""
        factor, places = 1.0, list[int | None](range(len(value.shape)))
        while (equation := self.makers.get(value)) is not None and equation.primitive != "reduce_sum":
            if is_view(equation):
                goes, operand = targets(equation), equation.operands[0]
                if any(place is None and size > 1 for place, size in zip(goes, operand.shape, strict=True)):
                    return None
                places = [None if place is None else places[place] for place in goes]
                value = operand
                continue
            if equation.primitive not in ("mul", "div"):
                return None
            numbers = [self.known.get(operand) for operand in equation.operands]
            which = 1 if numbers[1] is not None else 0
            number = numbers[which]
            if not number or not math.isfinite(number):
                return None
            value = equation.operands[1 - which]
            if (equation.primitive == "div" and not which) or value.shape != equation.results[0].shape:
                return None
            factor *= number if equation.primitive == "mul" else 1 / number
        if equation is None or tuple(equation.params["axes"]) != (axis,):
            return None
        found = equation.operands[0]
        kept = [number for number in range(len(found.shape)) if number != axis]
        is_in_place = all(
            found.shape[number] == 1 or place == number for number, place in zip(kept, places, strict=True)
        )
        return (self.root(found), factor) if is_in_place else None

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
        if name in ("slice", "dynamic_slice"):
            for one in self.constraints.get(operands[0], ()):
                if operands[0].shape[one.axis] == equation.results[0].shape[one.axis]:
                    yield one
        if name == "reduce_sum":
            axes = equation.params["axes"]
            count = math.prod(operands[0].shape[axis] for axis in axes)
            for one in self.constraints.get(operands[0], ()):
                if one.axis not in axes:
                    place = one.axis - sum(axis < one.axis for axis in axes)
                    yield Constraint(place, one.direction, tuple(scaled(t, count) for t in one.total))
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
    """Along no other axis; that it differs from one iteration of a loop to the next does not matter."""
    own = {*term.axes[axis]} if term.axes else set()
    return {index for index in term.occurring if not isinstance(index, Loop)} <= own
