"""Gains: leaves that only ever multiply, one number per unit, as the scales of normalisation layers do."""

from collections.abc import Callable, Iterator
from typing import Any

from symbnn.symmetry.discovery.discover import trace
from symbnn.symmetry.discovery.exponents import VIEWS, find_shifts
from symbnn.symmetry.discovery.known_values import find_known_values
from symbnn.symmetry.program import Equation, Value
from symbnn.types import Params


def find_gains(apply: Callable[..., Any], params: Params, *inputs: Any) -> dict[str, float]:
    """Vectors whose every use is a factor of a product, with the number at which that factor is one.

    That number is 1, or 1 − ε for a leaf that is used as leaf + ε (a gain written as 1 + g).
    """
    program, leaves = trace(apply, params, *inputs)
    shifts = find_shifts(program, list(leaves.values()), find_known_values(program))
    readers, outputs = program.readers(), dict.fromkeys(program.outputs)
    found = {}
    for name, leaf in leaves.items():
        if sum(size > 1 for size in leaf.shape) != 1 or not leaf.is_float:
            continue
        shift = shifts.get(leaf)
        factors = [equation.results[0] for equation in shift.equations] if shift else [leaf]
        uses = [use for factor in factors for use in _uses(factor, readers, outputs)]
        if uses and all(use is not None and use.primitive == "mul" for use in uses):
            found[name] = 1.0 - (shift.amount if shift else 0.0)
    return found


def _uses(
    value: Value, readers: dict[Value, list[Equation]], outputs: dict[Value, None]
) -> Iterator[Equation | None]:
    """Equations that use a value or a view of it; None where it is an output."""
    if value in outputs:
        yield None
    for equation in readers.get(value, []):
        if equation.primitive in VIEWS:
            yield from _uses(equation.results[0], readers, outputs)
        else:
            yield equation
