"""The form of a rule, and the table of rules.

A rule says what a primitive does to indices, like an einsum: it names an index variable for every axis of
every operand and result. Equal variables are the same index, so their permutations are the same; a pinned
variable allows only the identity. A rule sees shapes and parameters, never values. Returning None means
"not understood": every axis is pinned, which is always sound.

A variable that no result names is either reduced, so that the results are constant along it
(`constant_along`: a sum, a matrix product), or cut away, so that they say nothing about it (positions that a
slice leaves out). Only what is cut away may be rescaled as it likes. Rules of this package say which it is by
naming it or not; in rules that users register a variable that no result names counts as reduced.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from symbnn.symmetry.program import Equation, Value

Variable = Hashable


class Span(NamedTuple):
    """Axes of a value, read as one row-major index, and the variables that make it up.

    Several variables are nested, slowest first, or laid end to end if `is_sum`. No axes: the value has that
    variable nowhere, it is constant along it.
    """

    axes: tuple[int, ...]
    variables: tuple[Variable, ...]
    is_sum: bool = False


Layout = tuple[Span, ...]


class AxisMap(NamedTuple):
    """What a rule returns: a layout per operand and per result."""

    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    pins: Mapping[Variable, str] = {}
    """Variables that allow only the identity, with the reason."""
    sizes: Mapping[Variable, int] = {}
    """Lengths of the variables that occur in no span of their own."""


Rule = Callable[[Equation], AxisMap | None]

RULES: dict[str, Rule] = {}
"""By primitive name. Filled when `symbnn.symmetry.discovery.rules` is imported, and by `register_rule`."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Decorator that makes a function the rule of primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return register


def layout(variables: Iterable[Variable]) -> Layout:
    """One variable per axis, in order."""
    return tuple(Span((axis,), (variable,)) for axis, variable in enumerate(variables))


def constant_along(variables: Iterable[Variable]) -> Layout:
    """The value does not depend on these variables."""
    return tuple(Span((), (variable,)) for variable in variables)


def broadcast(value: Value, shape: tuple[int, ...]) -> Layout:
    """Axis i has variable i; scalars and axes of length 1 are constant along it."""
    if not value.shape:
        return constant_along(range(len(shape)))
    return tuple(
        Span((axis,), (axis,)) if value.shape[axis] == shape[axis] else Span((), (axis,))
        for axis in range(len(shape))
    )
