"""Where an array is read in parts, and how that passes backwards through an equation.

An axis of length outer · middle · inner, read as three nested indices, has the middle one as a *digit*.
A slice `z[2:4]` takes two values of a digit with outer = inner = 1, the steps `z[1::2]` take one value of a
digit with inner = 1, and `z.reshape(3, heads, channels)[0]` takes one with inner = heads · channels. What is
read of a result in this way can as well be computed from the same parts of the operands.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from symbnn.symmetry.discovery.rules import RULES
from symbnn.symmetry.discovery.rules.elementwise import ELEMENTWISE
from symbnn.symmetry.discovery.rules.shape import equal_runs
from symbnn.symmetry.program import Equation, Value

READERS = ("slice", "split", "unstack")
PASSING = {
    *(name for name in ELEMENTWISE if name not in ("device_put", "sharding_constraint", "phi")),
    *("transpose", "squeeze", "expand_dims", "broadcast_in_dim", "dot_general", "conv_general_dilated"),
    *("reduce_sum", "reduce_max", "reduce_min", "concatenate", "scan_x"),
}
"""Primitives whose rule says all that there is to say: what happens along an index happens at each of it."""


class Digit(NamedTuple):
    """The middle of three nested indices of an axis."""

    axis: int
    outer: int
    middle: int
    inner: int

    def taken(self, shape: tuple[int, ...], length: int) -> tuple[int, ...]:
        """The shape that is left where so many values of the digit are taken."""
        return (*shape[: self.axis], self.outer * length * self.inner, *shape[self.axis + 1 :])


class Range(NamedTuple):
    """Values of a digit."""

    start: int
    length: int


class Reading(NamedTuple):
    """What an equation reads of its operand: one range for every result."""

    digit: Digit
    ranges: tuple[Range, ...]


def reading(equation: Equation) -> Reading | None:
    """The parts that an equation takes; None if it does anything else, or takes the whole."""
    if equation.primitive not in READERS:
        return None
    params, shape = equation.params, equation.operands[0].shape
    if equation.primitive == "slice":
        return _sliced(equation)
    axis = params["axis"]
    sizes = [1] * shape[axis] if equation.primitive == "unstack" else [int(size) for size in params["sizes"]]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    ranges = tuple(map(Range, starts, sizes))
    return Reading(Digit(axis, 1, shape[axis], 1), ranges) if len(ranges) > 1 else None


def passed(equation: Equation, digit: Digit) -> list[Digit | None] | None:
    """The digit on every operand that has it; None if parts of the result need more than parts of them."""
    if len(equation.results) > 1:
        return None
    if equation.primitive == "reshape":
        found = _reshaped(equation, digit)
        return None if found is None else [found]
    if equation.primitive not in PASSING:
        return None
    axis_map = RULES[equation.primitive](equation)
    if axis_map is None:
        return None
    variables = [span.variables for span in axis_map.results[0] if span.axes == (digit.axis,)]
    if len(variables) != 1 or len(variables[0]) != 1 or variables[0][0] in axis_map.pins:
        return None
    digits: list[Digit | None] = []
    for spans in axis_map.operands:
        having = [span for span in spans if span.axes and variables[0][0] in span.variables]
        if len(having) > 1 or any(len(span.axes) > 1 or len(span.variables) > 1 for span in having):
            return None
        digits.append(digit._replace(axis=having[0].axes[0]) if having else None)
    return digits


def of_part(equation: Equation, operands: Mapping[Value, Value], result: Value) -> Equation:
    """The equation for a part of its result, from parts of its operands."""
    # Rules ask shapes of the values, never of the parameters.
    parts = tuple(operands.get(value, value) for value in equation.operands)
    return Equation(equation.primitive, equation.params, parts, (result,), equation.where, (True,))


def _sliced(equation: Equation) -> Reading | None:
    params, shape, result = equation.params, equation.operands[0].shape, equation.results[0].shape
    cut = [axis for axis, length in enumerate(shape) if result[axis] != length]
    if len(cut) != 1 or not equation.results[0].size:
        return None
    (axis,) = cut
    start, step = params["start_indices"][axis], (params["strides"] or [1] * len(shape))[axis]
    if step == 1:
        return Reading(Digit(axis, 1, shape[axis], 1), (Range(start, result[axis]),))
    if start >= step or shape[axis] != result[axis] * step:
        return None
    return Reading(Digit(axis, result[axis], step, 1), (Range(start, 1),))


def _reshaped(equation: Equation, digit: Digit) -> Digit | None:
    """The axis of the operand in which the digit lies whole."""
    before, after = equation.operands[0].shape, equation.results[0].shape
    if equation.params.get("dimensions"):
        return None
    for old, new in equal_runs(before, after):
        if digit.axis not in new:
            continue
        outer = digit.outer * math.prod(after[axis] for axis in new if axis < digit.axis)
        inner = digit.inner * math.prod(after[axis] for axis in new if axis > digit.axis)
        for axis in old:
            head = math.prod(before[other] for other in old if other < axis)
            tail = math.prod(before[other] for other in old if other > axis)
            if not outer % head and not inner % tail:
                found = Digit(axis, outer // head, digit.middle, inner // tail)
                if found.outer * found.middle * found.inner == before[axis]:
                    return found
    return None
