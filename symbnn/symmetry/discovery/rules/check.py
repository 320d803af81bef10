"""Whether what a rule returns fits the equation it was asked about: for rules that users register."""

import math
from collections.abc import Iterator
from typing import Any

from symbnn.symmetry.discovery.rules.base import AxisMap, Layout, Rule, Span, Variable, constant_along
from symbnn.symmetry.program import Equation, Value


def checked(rule: Rule) -> Rule:
    """The rule, with a `ValueError` for an axis map that does not fit the equation.

    Results are taken to be constant along what none of them names (`base`).
    """

    def checking(equation: Equation) -> AxisMap | None:
        axis_map = rule(equation)
        if axis_map is None:
            return None
        check_axis_map(equation, axis_map)
        given, kept = (
            {variable for spans in side for span in spans for variable in span.variables}
            for side in (axis_map.operands, axis_map.results)
        )
        gone = constant_along(given - kept)
        return axis_map._replace(results=tuple((*spans, *gone) for spans in axis_map.results))

    return checking


def check_axis_map(equation: Equation, axis_map: Any) -> None:
    """`ValueError` naming the primitive, what its equation has, and what the axis map says."""
    what = f"the rule of primitive {equation.primitive!r}"
    if not isinstance(axis_map, AxisMap):
        raise ValueError(f"{what} must return an AxisMap or None; got {type(axis_map).__name__}")
    places = list(_places(what, equation, axis_map))
    for place, value, spans in places:
        _check_axes(what, place, value, spans)
    sizes = _sizes(what, axis_map, places)
    for place, value, spans in places:
        for span in spans:
            _check_length(what, place, value, span, sizes)
    if unknown := [variable for variable in axis_map.pins if variable not in sizes]:
        raise ValueError(
            f"{what} pins {unknown}, which none of its layouts has; they have {sorted(map(str, sizes))}"
        )


def _places(what: str, equation: Equation, axis_map: AxisMap) -> Iterator[tuple[str, Value, Layout]]:
    for side, values, layouts in (
        ("operand", equation.operands, axis_map.operands),
        ("result", equation.results, axis_map.results),
    ):
        if len(values) != len(layouts):
            raise ValueError(
                f"{what} must give a layout for each of {len(values)} {side}s; got {len(layouts)}"
            )
        for number, (value, spans) in enumerate(zip(values, layouts, strict=True)):
            yield f"{side} {number}", value, spans


def _check_axes(what: str, place: str, value: Value, spans: Layout) -> None:
    """Every axis in exactly one span; those of length 1 may be left out."""
    named = [axis for span in spans for axis in span.axes]
    expected = [axis for axis, size in enumerate(value.shape) if size != 1]
    is_known = all(0 <= axis < len(value.shape) for axis in named)
    if not is_known or len(set(named)) < len(named) or not set(expected) <= set(named):
        raise ValueError(
            f"{what} must name every axis of {place}, shape {value.shape}, exactly once; got axes {named}"
        )


def _sizes(
    what: str, axis_map: AxisMap, places: list[tuple[str, Value, Layout]]
) -> dict[Variable, int | None]:
    """Lengths of variables; None for those that occur only where a value is constant along them."""
    sizes: dict[Variable, int | None] = {key: int(size) for key, size in axis_map.sizes.items()}
    for place, value, spans in places:
        for span in spans:
            for variable in span.variables:
                sizes.setdefault(variable, None)
            if span.axes and len(span.variables) == 1:
                (variable,), length = span.variables, math.prod(value.shape[axis] for axis in span.axes)
                if sizes[variable] not in (None, length):
                    raise ValueError(
                        f"{what} gives variable {variable!r} length {sizes[variable]}; "
                        f"{place} of shape {value.shape} has {length} on axes {span.axes}"
                    )
                sizes[variable] = length
    return sizes


def _check_length(what: str, place: str, value: Value, span: Span, sizes: dict[Variable, int | None]) -> None:
    if not span.axes:
        return
    lengths = [sizes[variable] for variable in span.variables]
    if None in lengths:
        missing = [variable for variable in span.variables if sizes[variable] is None]
        raise ValueError(f"{what} must give the lengths of {missing} in `sizes`: {place} needs them")
    known = [length for length in lengths if length is not None]
    total = sum(known) if span.is_sum else math.prod(known)
    expected = math.prod(value.shape[axis] for axis in span.axes)
    if total != expected:
        raise ValueError(
            f"{what} lays variables of lengths {known} on axes {span.axes} of {place}, "
            f"which has shape {value.shape}: expected {expected}, got {total}"
        )
