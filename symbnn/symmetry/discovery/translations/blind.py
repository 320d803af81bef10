"""Whether a network is blind to a change of a value along one direction of an axis.

The value changes by f u: u is a direction along the axis, f anything that is constant along it and may depend
on the data. Near the value the change is followed exactly, as a number times f, or times f and the value or
its sum, so that x − mean(x), a softmax and E[x²] − E[x]² are seen to lose it. Where it goes on into another
value (a residual stream), that value is asked in turn. Whatever is not followed counts as seen.
"""

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

from symbnn.symmetry.discovery.translations.directions import ONES, Direction, times
from symbnn.symmetry.discovery.translations.facts import Facts
from symbnn.symmetry.discovery.translations.passing import Lost, pass_on
from symbnn.symmetry.discovery.translations.views import is_view, targets
from symbnn.symmetry.program import Equation, Value

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
EXTREMES = {"max": -math.inf, "min": math.inf}
"""With the number that does not matter to them."""
ROUNDING = 1e-6
"""Of numbers that programs hold in single precision, as 1/n is."""


class Question(NamedTuple):
    """A value, an axis of it and a direction."""

    value: Value
    axis: int
    direction: Direction = ONES


class Change(NamedTuple):
    """factor · f, or factor · f · s with s the value itself (`power` 1) or its sum along the axis (2)."""

    factor: float
    power: int
    places: tuple[int | None, ...]
    """The axis of the value that was asked about which every axis is; None along which it is repeated."""

    def fits(self, other: "Change", axis: int) -> bool:
        """Whether both are multiples of one array: f does not vary along the axis itself."""
        here, there = ([None if p == axis else p for p in c.places] for c in (self, other))
        return self.power == other.power and here == there


class Blind:
    """Answers for one program, kept."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._answers: dict[Question, bool] = {}

    def __call__(self, value: Value, axis: int, direction: Direction = ONES) -> bool:
        """Whether no output depends on the change."""
        asked = Question(value, axis, direction)
        if asked not in self._answers:
            self._explore(asked)
        return self._answers[asked]

    def _explore(self, asked: Question) -> None:
        """All questions behind one. In loops they go round: harmless is what nothing proves seen."""
        asked_by: dict[Question, list[Question]] = {asked: []}
        waiting, seen = [asked], []
        while waiting:
            question = waiting.pop()
            try:
                others = list(_Local(self._facts, question).passed_on())
            except Lost:
                seen.append(question)
                continue
            for other in others:
                if other in self._answers:
                    seen += [] if self._answers[other] else [question]
                    continue
                if other not in asked_by:
                    waiting.append(other)
                asked_by.setdefault(other, []).append(question)
        self._answers |= dict.fromkeys(asked_by, True)
        while seen:
            question = seen.pop()
            if self._answers[question]:
                self._answers[question] = False
                seen += asked_by[question]


class _Local:
    """The change of one value, followed until it is cancelled or goes on into another."""

    def __init__(self, facts: Facts, asked: Question) -> None:
        self.facts = facts
        self.asked = asked
        self.changes: dict[Value, Change] = {}
        self.sums: dict[Value, tuple[int, float]] = {asked.value: (1, 1.0)}
        """Values that are a number times the value itself (1) or its sum along the axis (2)."""
        self.others: dict[Question, None] = {}
        self.waiting: list[int] = []
        self.equations: dict[int, Equation] = {}

    def passed_on(self) -> Iterable[Question]:
        """Questions on whose answers the answer depends; raises `Lost`."""
        shape = self.asked.value.shape
        self._note(self.asked.value, Change(1.0, 0, tuple(a if n > 1 else None for a, n in enumerate(shape))))
        while self.waiting:
            self._follow(self.equations[heapq.heappop(self.waiting)])
        return self.others

    def _note(self, value: Value, change: Change) -> None:
        if value in self.facts.outputs:
            raise Lost
        self.changes[value] = change
        for equation in self.facts.readers.get(value, ()):
            number = self.facts.order[equation]
            if number not in self.equations:
                self.equations[number] = equation
                heapq.heappush(self.waiting, number)

    def _ask(self, result: Value, axis: int | None, direction: Direction | None) -> None:
        """The change goes on into the result, with an f of its own."""
        if axis is None or direction is None:
            raise Lost
        self.others[Question(result, axis, direction)] = None

    def _axis(self, change: Change) -> int:
        """Where the axis is now; a change that is no plain multiple of f cannot go on by itself."""
        if change.power or self.asked.axis not in change.places:
            raise Lost
        return change.places.index(self.asked.axis)

    def _follow(self, equation: Equation) -> None:
        name = equation.primitive
        changes = [self.changes.get(operand) for operand in equation.operands]
        (which, change), *more = ((n, c) for n, c in enumerate(changes) if c is not None)
        if is_view(equation):
            self._view(equation, change)
        elif self._is_square(equation):
            self._squared(equation, change)
        elif name in ("mul", "div") and not more:
            self._multiplied(equation, which, change)
        elif name in ("add", "sub", "add_any") or name in COMPARISONS or name in EXTREMES:
            if more:
                self._joined(equation, change, more[0][1])
            else:
                self._met(equation, which, change)
        elif name == "neg":
            self._note(equation.results[0], change._replace(factor=-change.factor))
        elif name in ("reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"):
            self._reduced(equation, change)
        elif more:
            raise Lost
        else:
            axis = self._axis(change)
            for result, place in pass_on(self.facts, equation, which, axis, self.asked.direction):
                self._ask(result, place, self.asked.direction)

    def _view(self, equation: Equation, change: Change) -> None:
        operand, result = equation.operands[0], equation.results[0]
        goes = targets(equation)
        places: list[int | None] = [None] * len(result.shape)
        for axis, place in enumerate(change.places):
            target = goes[axis]
            if place is None:
                continue
            if target is None or result.shape[target] != operand.shape[axis]:
                # Other axes are merged or split: f is another function there.
                own = goes[self._axis(change)]
                self._ask(result, own, self.asked.direction)
                return
            places[target] = place
        if operand in self.sums:
            self.sums[result] = self.sums[operand]
        self._note(result, change._replace(places=tuple(places)))

    def _is_square(self, equation: Equation) -> bool:
        operands = equation.operands
        if equation.primitive == "mul":
            return operands[0] is operands[1]
        return equation.primitive == "square" or (
            equation.primitive == "integer_pow" and equation.params["y"] == 2
        )

    def _squared(self, equation: Equation, change: Change) -> None:
        """The square of the value, or of its sum, changes by 2 f times that, and by f² that cancels too."""
        if change.power or equation.operands[0] not in self.sums or self.asked.direction != ONES:
            raise Lost
        power, factor = self.sums[equation.operands[0]]
        self._note(equation.results[0], Change(2 * change.factor * factor, power, change.places))

    def _multiplied(self, equation: Equation, which: int, change: Change) -> None:
        operand, other, result = equation.operands[which], equation.operands[1 - which], equation.results[0]
        is_product = equation.primitive == "mul"
        if len(operand.shape) != len(result.shape) or (not is_product and which == 1):
            raise Lost
        number = self.facts.known.get(other)
        if number and math.isfinite(number):
            factor = number if is_product else 1 / number
            if operand in self.sums:
                power, before = self.sums[operand]
                self.sums[result] = power, before * factor
            self._note(result, change._replace(factor=change.factor * factor))
            return
        axis = self._axis(change)
        profile = self.facts.profile(other, axis) if other.shape else ONES
        if profile is None:
            raise Lost
        self._ask(result, axis, times(self.asked.direction, profile, 1 if is_product else -1))

    def _joined(self, equation: Equation, left: Change, right: Change) -> None:
        """Sums, differences, comparisons and extremes of two values that change alike."""
        name, result = equation.primitive, equation.results[0]
        if not left.fits(right, self.asked.axis):
            raise Lost
        if name in COMPARISONS or name in EXTREMES:
            if left.power or not math.isclose(left.factor, right.factor, rel_tol=ROUNDING):
                raise Lost
            if name in EXTREMES:
                self._note(result, left)
            return
        other = -right.factor if name == "sub" else right.factor
        if not math.isclose(left.factor, -other, rel_tol=ROUNDING):
            wider = left if self.asked.axis in left.places else right
            self._note(result, wider._replace(factor=left.factor + other))

    def _met(self, equation: Equation, which: int, change: Change) -> None:
        """A sum with, or an extreme of, something that does not change."""
        name, result, other = equation.primitive, equation.results[0], equation.operands[1 - which]
        if len(equation.operands[which].shape) != len(result.shape) or name in COMPARISONS:
            raise Lost
        if name in EXTREMES:
            if self.facts.known.get(other) != EXTREMES[name]:
                raise Lost
            self._note(result, change)
            return
        self._ask(result, self._axis(change), self.asked.direction)

    def _reduced(self, equation: Equation, change: Change) -> None:
        name, operand, result = equation.primitive, equation.operands[0], equation.results[0]
        axes = tuple(equation.params["axes"])
        places = tuple(place for axis, place in enumerate(change.places) if axis not in axes)
        if self.asked.axis not in change.places or self.asked.direction != ONES:
            raise Lost
        axis = change.places.index(self.asked.axis)
        if axes != (axis,):
            if name != "reduce_sum" or axis in axes:
                raise Lost
            axis = self._axis(change)
            self._ask(result, axis - sum(other < axis for other in axes), self.asked.direction)
        elif name == "reduce_sum" and change.power == 1:
            self._note(result, Change(change.factor, 2, places))
        elif name == "reduce_sum":
            if operand in self.sums and self.sums[operand][0] == 1:
                self.sums[result] = 2, self.sums[operand][1]
            self._note(result, Change(change.factor * operand.shape[axis], change.power, places))
        elif change.power:
            raise Lost
        elif name in ("reduce_max", "reduce_min"):
            self._note(result, Change(change.factor, 0, places))
