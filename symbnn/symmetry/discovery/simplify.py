"""Functions that are written in several ways, written in the one that the exponent rules know.

Rules look at one equation at a time, and an odd function may be put together from steps that are not:

    min(max(x, -c), c), where(x > c, c, where(x < -c, -c, x))     clamp(-c, x, c)
    (c + y) · (c - y)                                             c² - y²

What replaces an equation is the same function of the same values, so nothing else changes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from symbnn.symmetry.discovery.known_values import uniform_number
from symbnn.symmetry.program import Equation, Program, Value, constant, live

Makers = Mapping[Value, Equation]

VIEWS = {"broadcast_in_dim", "convert_element_type", "reshape", "pvary"}
COMPARISONS = {"gt": True, "ge": True, "lt": False, "le": False}
"""Whether what is larger than the number is meant."""


class _Bound(NamedTuple):
    """A value that is kept on one side of a number."""

    value: Value
    number: float


def simplify(program: Program) -> Program:
    """The program with such equations replaced; the steps between are gone where nothing else reads them."""
    makers = {result: equation for equation in program.equations for result in equation.results}
    found = {
        equation: new
        for equation in program.equations
        if equation.primitive in FORMS and (new := FORMS[equation.primitive](equation, makers)) is not None
    }
    if not found:
        return program
    equations = [new for equation in program.equations for new in found.get(equation, [equation])]
    return program._replace(equations=live(equations, program.outputs))


def _nested_bounds(equation: Equation, makers: Makers) -> list[Equation] | None:
    """`min` of a `max`, or `max` of a `min`, by opposite numbers."""
    outer = _bound(equation, makers)
    inner = outer and makers.get(outer.value)
    if outer is None or inner is None or {equation.primitive, inner.primitive} != {"min", "max"}:
        return None
    bound = _bound(inner, makers)
    is_odd = bound is not None and bound.number == -outer.number
    is_ordered = outer.number >= 0 if equation.primitive == "min" else outer.number <= 0
    return [_clamp(equation, bound.value, abs(outer.number))] if bound and is_odd and is_ordered else None


def _nested_choices(equation: Equation, makers: Makers) -> list[Equation] | None:
    """`where` of a `where`, each with a number wherever one value is beyond it."""
    outer, inner = _beyond(equation, makers), makers.get(equation.operands[1])
    bound = _beyond(inner, makers) if inner is not None and inner.primitive == "select_n" else None
    if outer is None or bound is None or inner is None:
        return None
    is_same = (
        outer.value is bound.value is inner.operands[1] and outer.value.shape == equation.results[0].shape
    )
    is_odd = outer.number == -bound.number
    return [_clamp(equation, bound.value, abs(outer.number))] if is_same and is_odd else None


def _product_of_conjugates(equation: Equation, makers: Makers) -> list[Equation] | None:
    """(c + y) · (c - y)."""
    factors = [makers.get(value) for value in equation.operands]
    by_name = {factor.primitive: factor for factor in factors if factor is not None}
    if by_name.keys() != {"add", "sub"}:
        return None
    number = _number(by_name["sub"].operands[0], makers)
    subtracted = by_name["sub"].operands[1]
    added = [value for value in by_name["add"].operands if value is not subtracted]
    result = equation.results[0]
    if number is None or len(added) != 1 or _number(added[0], makers) != number:
        return None
    if subtracted.shape != result.shape or not result.is_float:
        return None
    square = Value(result.shape, result.dtype, result.loops)
    return [
        Equation("square", {}, (subtracted,), (square,), equation.where, (True,)),
        Equation("sub", {}, (_scalar(number**2, result), square), (result,), equation.where, (True,)),
    ]


FORMS: dict[str, Callable[[Equation, Makers], list[Equation] | None]] = {
    "min": _nested_bounds,
    "max": _nested_bounds,
    "select_n": _nested_choices,
    "mul": _product_of_conjugates,
}


def _bound(equation: Equation, makers: Makers) -> _Bound | None:
    """`min` or `max` with a number."""
    for value, other in (equation.operands, equation.operands[::-1]):
        number = _number(other, makers)
        if number is not None and value.shape == equation.results[0].shape:
            return _Bound(value, number)
    return None


def _beyond(equation: Equation, makers: Makers) -> _Bound | None:
    """`where(x > c, c, ...)` with c >= 0, or `where(x < -c, -c, ...)`: x and the number."""
    comparison = makers.get(equation.operands[0])
    if comparison is None or len(equation.operands) != 3 or comparison.primitive not in COMPARISONS:
        return None
    number = _number(comparison.operands[1], makers)
    if number is None or number != _number(equation.operands[2], makers):
        return None
    is_outside = number >= 0 if COMPARISONS[comparison.primitive] else number <= 0
    return _Bound(comparison.operands[0], number) if is_outside else None


def _clamp(equation: Equation, value: Value, number: float) -> Equation:
    result = equation.results[0]
    operands = (_scalar(-number, result), value, _scalar(number, result))
    return Equation("clamp", {}, operands, (result,), equation.where, (True,))


def _scalar(number: float, like: Value) -> Value:
    return constant(np.asarray(number).astype(like.dtype))


def _number(value: Value, makers: Makers) -> float | None:
    """The number that a constant holds everywhere, or a view of one."""
    while value.constant is None and value in makers and makers[value].primitive in VIEWS and value.is_float:
        value = makers[value].operands[0]
    return None if value.constant is None else uniform_number(value.constant)
