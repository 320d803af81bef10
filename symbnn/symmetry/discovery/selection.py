"""Choices of the largest, written so that they do not depend on how the choices are numbered.

    one_hot(argmax(scores))          scores == max(scores)
    one_hot(top_k(scores).indices)   scores == top_k(scores).values
    weights[argmax(scores)]          (scores == max(scores)) @ weights

Where no two scores are equal (`ties`) these are the same function. On the left experts have numbers, on the
right only scores, which relabelling permutes along with the experts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from symbnn.symmetry.discovery.ties import Ties
from symbnn.symmetry.program import Equation, Program, Value, live

CHOICES = {"argmax": "reduce_max", "argmin": "reduce_min", "top_k": ""}
TRAILING = {"broadcast_in_dim", "reshape", "convert_element_type", "expand_dims"}

Makers = Mapping[Value, Equation]


class _Writer(NamedTuple):
    """Equations that take the place of one, in the making."""

    like: Equation
    equations: list[Equation]

    def emit(self, name: str, operands: tuple[Value, ...], shape: tuple[int, ...], dtype: Any, **params: Any):
        """Append an equation; its result."""
        result = Value(shape, dtype, self.like.results[0].loops)
        self.equations.append(Equation(name, params, operands, (result,), self.like.where, (True,)))
        return result

    def finish(self, name: str, operands: tuple[Value, ...], **params: Any) -> list[Equation]:
        """The equations, the last of which has the result of the one they stand for."""
        last = Equation(name, params, operands, self.like.results, self.like.where, (True,))
        return [*self.equations, last]


def reveal_choices(program: Program, leaves: Mapping[str, Value]) -> Program:
    """The program with choices written by their scores, wherever these cannot be equal."""
    if not any(equation.primitive in CHOICES for equation in program.equations):
        return program
    makers = {result: equation for equation in program.equations for result in equation.results}
    ties = Ties(program, leaves)
    found = {}
    for equation in program.equations:
        new = None
        if equation.primitive == "eq":
            new = _one_hot(equation, makers, ties)
        elif equation.primitive == "gather":
            new = _rows(equation, makers, ties)
        if new is not None:
            found[equation] = new
    equations = [new for equation in program.equations for new in found.get(equation, [equation])]
    return program._replace(equations=live(equations, program.outputs)) if found else program


def _one_hot(equation: Equation, makers: Makers, ties: Ties) -> list[Equation] | None:
    """An index compared with all positions, which are the last axis."""
    for index, positions in (equation.operands, equation.operands[::-1]):
        chosen, count = _chosen(index, makers), _counted(positions, makers)
        fits = chosen is not None and index.shape == (*chosen.shape, index.shape[-1])
        if chosen is None or count is None or not fits or equation.results[0].shape != (*chosen.shape, count):
            continue
        writer = _Writer(equation, [])
        pair = _scores_and_best(writer, chosen, makers[chosen], count, ties)
        return None if pair is None else writer.finish("eq", pair)
    return None


def _rows(equation: Equation, makers: Makers, ties: Ties) -> list[Equation] | None:
    """Whole rows of an array of numbers, chosen along its first axis."""
    numbers, (array, indices) = equation.params["dimension_numbers"], equation.operands
    chosen = _chosen(indices, makers)
    result = equation.results[0].shape
    is_plain = (
        numbers.collapsed_slice_dims == (0,)
        and numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and tuple(equation.params["slice_sizes"]) == (1, *array.shape[1:])
    )
    if chosen is None or not is_plain or not array.is_float or indices.shape != (*chosen.shape, 1):
        return None
    rank = len(chosen.shape)
    if numbers.offset_dims != tuple(range(rank, len(result))) or result != (*chosen.shape, *array.shape[1:]):
        return None
    writer = _Writer(equation, [])
    pair = _scores_and_best(writer, chosen, makers[chosen], array.shape[0], ties)
    if pair is None:
        return None
    shape = (*chosen.shape, array.shape[0])
    is_chosen = writer.emit("eq", pair, shape, np.dtype(bool))
    weights = writer.emit("convert_element_type", (is_chosen,), shape, array.dtype)
    return writer.finish("dot_general", (weights, array), dimension_numbers=(((rank,), (0,)), ((), ())))


def _scores_and_best(
    writer: _Writer, chosen: Value, choice: Equation, count: int, ties: Ties
) -> tuple[Value, Value] | None:
    """Scores with their places on the last axis, and the chosen ones beside them; None where they may tie."""
    scores = choice.operands[0]
    rank, dtype = len(scores.shape), scores.dtype
    axis = (
        choice.params.get("axis", rank - 1) % rank
        if choice.primitive == "top_k"
        else choice.params["axes"][0]
    )
    if scores.shape[axis] != count or not ties.are_apart(scores, axis):
        return None
    if choice.primitive == "top_k":
        if axis != rank - 1 or chosen is not choice.results[1]:
            return None
        best, shape = choice.results[0], scores.shape
        scores = writer.emit("expand_dims", (scores,), (*shape[:-1], 1, count), dtype, dimensions=(rank - 1,))
        return scores, writer.emit("expand_dims", (best,), (*best.shape, 1), dtype, dimensions=(rank,))
    if axis != rank - 1:
        order = (*(other for other in range(rank) if other != axis), axis)
        shape = tuple(scores.shape[other] for other in order)
        scores = writer.emit("transpose", (scores,), shape, dtype, permutation=order)
    best = writer.emit(CHOICES[choice.primitive], (scores,), scores.shape[:-1], dtype, axes=(rank - 1,))
    return scores, writer.emit("expand_dims", (best,), (*best.shape, 1), dtype, dimensions=(rank - 1,))


def _chosen(value: Value, makers: Makers) -> Value | None:
    """The index of a choice that a value holds, with no more than an axis put behind it."""
    while (equation := makers.get(value)) is not None:
        if equation.primitive in CHOICES:
            is_index = equation.primitive != "top_k" or value is equation.results[1]
            return value if is_index else None
        if equation.primitive == "select_n" and _is_wrapped(equation, makers):
            value = equation.operands[1]
        elif _is_trailing(equation):
            value = equation.operands[0]
        else:
            return None
    return None


def _is_wrapped(equation: Equation, makers: Makers) -> bool:
    """`where(i < 0, i + n, i)`: an index from the end, which a choice never is."""
    below = makers.get(equation.operands[0])
    return (
        len(equation.operands) == 3
        and below is not None
        and below.primitive == "lt"
        and below.operands[0] is equation.operands[1]
        and below.operands[1].constant is not None
        and not below.operands[1].constant.any()
    )


def _is_trailing(equation: Equation) -> bool:
    """Whether its result is the operand, perhaps with an axis behind it."""
    if equation.primitive not in TRAILING or len(equation.operands) != 1:
        return False
    operand, result = equation.operands[0], equation.results[0]
    if (
        operand.is_float
        or result.is_float
        or equation.params.get("dimensions")
        not in (
            None,
            (len(operand.shape),),
        )
    ):
        return False
    placed = equation.params.get("broadcast_dimensions", range(len(operand.shape)))
    is_in_front = tuple(map(int, placed)) == tuple(range(len(operand.shape)))
    return (
        is_in_front
        and result.shape[: len(operand.shape)] == operand.shape
        and len(result.shape) <= (len(operand.shape) + 1)
    )


def _counted(value: Value, makers: Makers) -> int | None:
    """How many positions are counted along the last axis, if a value holds them and nothing else."""
    while (equation := makers.get(value)) is not None and value.shape and value.size == value.shape[-1]:
        if equation.primitive == "iota":
            return value.size if equation.params["dimension"] == len(value.shape) - 1 else None
        if equation.primitive not in TRAILING or not equation.operands or value.is_float:
            return None
        value = equation.operands[0]
    if value.constant is not None and value.shape and (value.constant.reshape(-1) == range(value.size)).all():
        return value.size
    return None
