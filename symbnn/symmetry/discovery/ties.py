"""Whether values along an axis can be equal: the largest has a place only if they are not.

Scores are apart for almost all weights where each has weights of its own: a bias, or a column of a matrix
that multiplies something which is not zero. Zero is what a ReLU, a mask or a row of padding may leave, for a
whole region of weights or for data that do occur; so only what is known below counts as not zero.
"""

from collections.abc import Mapping

import numpy as np

from symbnn.symmetry.discovery.rules import RULES
from symbnn.symmetry.program import Equation, Program, Value

VIEWS = {"reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "convert_element_type", "copy"}
INCREASING = {"exp", "log", "tanh", "logistic", "neg", "copy", "convert_element_type", "stop_gradient"}
"""Of one value, and different for different ones."""
ODD = {"tanh", "sin", "asinh", "atan", "neg", "copy", "convert_element_type", "stop_gradient"}
"""Zero where their argument is, and nowhere else nearby."""
SCALING = {"rsqrt", "exp", "logistic"}
"""Never zero."""


class Ties:
    """What is known of a program's values, by the equations that make them."""

    def __init__(self, program: Program, leaves: Mapping[str, Value]) -> None:
        self._leaves = dict.fromkeys(leaves.values())
        self._makers = {result: e for e in program.equations for result in e.results if e.primitive != "link"}

    def are_apart(self, value: Value, axis: int) -> bool:
        """Whether values along the axis differ, for almost all weights."""
        equation = self._makers.get(value)
        if equation is None or len(equation.results) > 1 or not _is_precise(value):
            return False
        name, operands = equation.primitive, equation.operands
        axes = _axes_of_operands(equation, axis)
        having = [(operand, at) for operand, at in zip(operands, axes, strict=True) if at is not None]
        others = [operand for operand, at in zip(operands, axes, strict=True) if at is None]
        if name == "reduce_sum" and len(having) == 1:
            return self._is_distance(*having[0])
        if len(having) == 2:
            pairs = (having, having[::-1])
            return name == "add" and any(self._is_own(*one, other) for one, (other, _) in pairs)
        if len(having) != 1:
            return False
        ((along, at),) = having
        if name in INCREASING | VIEWS:
            return self.are_apart(along, at)
        if name in ("add", "sub"):
            return self.are_apart(along, at) or self._leaf_along(along, at) is not None
        if name == "mul" or (name == "div" and along is operands[0]):
            return all(map(self._is_positive, others)) and self.are_apart(along, at)
        return name == "dot_general" and self._is_own(along, at, others[0]) and self.is_not_zero(others[0])

    def is_not_zero(self, value: Value) -> bool:
        """Whether no entry is zero, for almost all weights and any data."""
        if self._leaf(value) is not None:
            return True
        equation = self._makers.get(value)
        if equation is None or len(equation.results) > 1 or not _is_precise(value):
            return False
        name, operands = equation.primitive, equation.operands
        pairs = (operands, operands[::-1])
        if name == "gather":
            return self._leaf(operands[0]) is not None
        if name in ODD | VIEWS:
            return self.is_not_zero(operands[0])
        if name in ("add", "sub"):
            return any(
                self._is_fresh(one, other) or (self._is_product(one, other) and self.is_not_zero(other))
                for one, other in pairs
            )
        if name == "mul":
            return any(
                (self._is_fresh(one, other) or self._is_positive(one)) and self.is_not_zero(other)
                for one, other in pairs
            )
        return name == "dot_general" and any(
            self._is_fresh(one, other) and self.is_not_zero(other) for one, other in pairs
        )

    def _is_distance(self, value: Value, axis: int) -> bool:
        """Whether it is the square of a difference from a leaf that has the axis: one of many codes."""
        square = self._makers.get(value)
        is_square = square is not None and (
            square.primitive == "square" or (square.primitive == "integer_pow" and square.params["y"] == 2)
        )
        difference = self._makers.get(square.operands[0]) if square is not None and is_square else None
        if difference is None or difference.primitive != "sub":
            return False
        axes = _axes_of_operands(difference, axis)
        pairs = list(zip(difference.operands, axes, strict=True))
        return any(
            at is not None and self._is_own(one, at, other) for (one, at), (other, _) in (pairs, pairs[::-1])
        )

    def _is_own(self, value: Value, axis: int, other: Value) -> bool:
        """Whether it is a leaf with that axis, on which the other does not depend."""
        leaf = self._leaf_along(value, axis)
        return leaf is not None and not self._depends(other, leaf)

    def _is_fresh(self, value: Value, other: Value) -> bool:
        """Whether it is a leaf on which the other does not depend."""
        leaf = self._leaf(value)
        return leaf is not None and not self._depends(other, leaf)

    def _is_product(self, value: Value, other: Value) -> bool:
        """Whether it is linear in a leaf on which the other does not depend: moved by it, or zero."""
        equation = self._makers.get(value)
        if equation is None:
            return False
        if equation.primitive in VIEWS:
            return self._is_product(equation.operands[0], other)
        return equation.primitive == "dot_general" and self._is_fresh(equation.operands[1], other)

    def _is_positive(self, value: Value) -> bool:
        equation = self._makers.get(value)
        if not _is_precise(value) or np.dtype(value.dtype).kind == "c":
            return False
        if equation is None:
            return value.constant is not None and bool((value.constant > 0).all())
        if equation.primitive in VIEWS | {"reduce_sum", "reduce_max"}:
            return self._is_positive(equation.operands[0])
        return equation.primitive in SCALING

    def _leaf_along(self, value: Value, axis: int) -> Value | None:
        """The leaf that it is a view of, if the leaf has the axis."""
        while value not in self._leaves:
            equation = self._makers.get(value)
            if equation is None or equation.primitive not in VIEWS or not _is_precise(value):
                return None
            at = _axes_of_operands(equation, axis)[0]
            if at is None:
                return None
            value, axis = equation.operands[0], at
        return value if value.is_float else None

    def _leaf(self, value: Value) -> Value | None:
        while value not in self._leaves and value in self._makers and self._makers[value].primitive in VIEWS:
            if not _is_precise(value):
                return None
            value = self._makers[value].operands[0]
        return value if value in self._leaves and value.is_float else None

    def _depends(self, value: Value, leaf: Value) -> bool:
        seen, pending = {value}, [value]
        while pending:
            current = pending.pop()
            if current is leaf:
                return True
            equation = self._makers.get(current)
            if equation is not None and equation.primitive == "link_init":
                # What an iteration starts from may depend on anything that the one before has used.
                return True
            new = [each for each in (equation.operands if equation else ()) if each not in seen]
            seen.update(new)
            pending += new
        return False


def _is_precise(value: Value) -> bool:
    return value.is_float and value.dtype.itemsize > 1


def _axes_of_operands(equation: Equation, axis: int) -> list[int | None]:
    """Where the operands have an axis of the result; None where they are constant along it."""
    rule = RULES.get(equation.primitive)
    axis_map = rule(equation) if rule is not None else None
    none: list[int | None] = [None] * len(equation.operands)
    if axis_map is None:
        return none
    variables = [span.variables for span in axis_map.results[0] if span.axes == (axis,)]
    if len(variables) != 1 or len(variables[0]) != 1:
        return none
    found = [
        [s.axes[0] for s in spans if s.axes and s.variables == variables[0]] for spans in axis_map.operands
    ]
    return [places[0] if places else None for places in found]
