"""Primitives that move, merge, split, join or repeat axes."""

import math
from collections.abc import Iterator, Sequence

from symbnn.symmetry.discovery.rules.base import (
    AxisMap,
    Layout,
    Span,
    Variable,
    broadcast,
    constant_along,
    layout,
    rule,
)
from symbnn.symmetry.program import Equation


@rule("transpose")
def transpose(equation: Equation) -> AxisMap:
    """Axes change places."""
    permutation = equation.params["permutation"]
    return AxisMap((layout(range(len(permutation))),), (layout(permutation),))


@rule("squeeze", "expand_dims")
def come_or_go(equation: Equation) -> AxisMap:
    """Axes of length 1 go or come."""
    ranks = [len(value.shape) for value in (*equation.operands, *equation.results)]
    kept = [axis for axis in range(max(ranks)) if axis not in equation.params["dimensions"]]
    before, after = (layout(range(rank) if rank == max(ranks) else kept) for rank in ranks)
    return AxisMap((before,), (after,))


@rule("broadcast_in_dim")
def broadcast_in_dim(equation: Equation) -> AxisMap:
    """Operand axis k becomes result axis `broadcast_dimensions[k]`; along all others it is repeated."""
    shape, placed = equation.results[0].shape, equation.params["broadcast_dimensions"]
    operand = equation.operands[0]
    kept = {target: axis for axis, target in enumerate(placed) if operand.shape[axis] == shape[target]}
    spans = tuple(Span((kept[axis],) if axis in kept else (), (axis,)) for axis in range(len(shape)))
    return AxisMap((spans, *(() for _ in equation.operands[1:])), (layout(range(len(shape))),))


@rule("reshape")
def reshape(equation: Equation) -> AxisMap:
    """Both shapes split into the shortest runs of equal product; a run is one row-major index.

    `dimensions` transposes the operand first.
    """
    operand, result = equation.operands[0], equation.results[0]
    order = equation.params.get("dimensions") or tuple(range(len(operand.shape)))
    runs = list(equal_runs([operand.shape[axis] for axis in order], result.shape))
    return AxisMap(
        (tuple(Span(tuple(order[axis] for axis in before), (run,)) for run, (before, _) in enumerate(runs)),),
        (tuple(Span(tuple(after), (run,)) for run, (_, after) in enumerate(runs)),),
    )


@rule("concatenate")
def concatenate(equation: Equation) -> AxisMap:
    """Along the joined axis every operand keeps its own index."""
    axis, rank = int(equation.params["dimension"]), len(equation.results[0].shape)
    whole, parts, segments = _joined(rank, axis, [v.shape[axis] for v in equation.operands if v.size])
    layouts = iter(parts)
    return AxisMap(
        tuple(next(layouts) if value.size else () for value in equation.operands), (whole,), sizes=segments
    )


@rule("split")
def split(equation: Equation) -> AxisMap:
    """Concatenation backwards."""
    axis, rank = int(equation.params["axis"]), len(equation.operands[0].shape)
    whole, parts, segments = _joined(rank, axis, list(map(int, equation.params["sizes"])))
    return AxisMap((whole,), parts, sizes=segments)


@rule("slice")
def slice_(equation: Equation) -> AxisMap:
    """A contiguous slice cuts the axis; a strided one is pinned."""
    params, operand = equation.params, equation.operands[0]
    spans = []
    sizes: dict[Variable, int] = {}
    pins: dict[Variable, str] = {}
    for axis, size in enumerate(operand.shape):
        start, limit = params["start_indices"][axis], params["limit_indices"][axis]
        stride = params["strides"][axis] if params["strides"] else 1
        if stride != 1:
            spans.append(Span((axis,), (("strided", axis),)))
            pins |= {("strided", axis): "sliced in steps", axis: "sliced in steps"}
            continue
        parts: dict[Variable, int] = {
            ("before", axis): start,
            axis: limit - start,
            ("after", axis): size - limit,
        }
        parts = {variable: part for variable, part in parts.items() if part}
        sizes |= parts
        spans.append(Span((axis,), tuple(parts), is_sum=True))
    return AxisMap((tuple(spans),), (layout(range(len(operand.shape))),), pins, sizes)


@rule("pad")
def pad(equation: Equation) -> AxisMap:
    """New positions hold one scalar, so they may be relabelled; negative or interior padding is pinned."""
    operand, result = equation.operands[0], equation.results[0]
    spans = []
    sizes: dict[Variable, int] = {}
    pins: dict[Variable, str] = {}
    for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
        if low < 0 or high < 0 or interior:
            spans.append(Span((axis,), (("padded", axis),)))
            pins |= dict.fromkeys((axis, ("padded", axis)), "padded between its elements, or cut")
            continue
        parts: dict[Variable, int] = {("low", axis): low, axis: operand.shape[axis], ("high", axis): high}
        parts = {variable: part for variable, part in parts.items() if part}
        sizes |= parts
        spans.append(Span((axis,), tuple(parts), is_sum=True))
    variables = range(len(result.shape))
    everywhere = constant_along(dict.fromkeys((*variables, *sizes)))
    return AxisMap((layout(variables), everywhere), (tuple(spans),), pins, sizes)


@rule("tile")
def tile(equation: Equation) -> AxisMap:
    """Repetition is a slower index along which the operand is constant."""
    operand, reps = equation.operands[0], equation.params["reps"]
    rank = len(operand.shape)
    sizes: dict[Variable, int] = {("repeat", axis): count for axis, count in enumerate(reps)}
    sizes |= dict(enumerate(operand.shape))
    repeated = tuple(Span((axis,), (("repeat", axis), axis)) for axis in range(rank))
    constant = constant_along(("repeat", axis) for axis in range(rank))
    return AxisMap(((*layout(range(rank)), *constant),), (repeated,), sizes=sizes)


@rule("stack", "unstack")
def stack(equation: Equation) -> AxisMap:
    """The axis tells the values apart, so it is pinned; along all others they are one index."""
    axis = equation.params["axis"]
    rank = max(len(value.shape) for value in (*equation.operands, *equation.results))
    others = layout(number for number in range(rank) if number != axis)
    operands, results = (
        tuple(layout(range(rank)) if len(value.shape) == rank else others for value in values)
        for values in (equation.operands, equation.results)
    )
    return AxisMap(operands, results, {axis: "different values are stacked along it"})


@rule("rev")
def rev(equation: Equation) -> AxisMap:
    """The reversed axes are ordered."""
    shape = equation.results[0].shape
    pins = dict.fromkeys(equation.params["dimensions"], "reversed")
    return AxisMap((broadcast(equation.operands[0], shape),), (layout(range(len(shape))),), pins)


def _joined(
    rank: int, axis: int, lengths: list[int]
) -> tuple[Layout, tuple[Layout, ...], dict[Variable, int]]:
    """Layouts of a whole and of its segments along an axis, and the lengths of their indices."""
    segments: dict[Variable, int] = {("segment", number): size for number, size in enumerate(lengths)}
    parts = tuple(_replaced(rank, axis, Span((axis,), (variable,))) for variable in segments)
    return _replaced(rank, axis, Span((axis,), tuple(segments), is_sum=True)), parts, segments


def _replaced(rank: int, axis: int, span: Span) -> tuple[Span, ...]:
    return tuple(span if number == axis else Span((number,), (number,)) for number in range(rank))


def equal_runs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Positions of the shortest runs with equal products; axes of length 1 are left out."""
    left = [axis for axis, size in enumerate(before) if size != 1]
    right = [axis for axis, size in enumerate(after) if size != 1]
    while left:
        run: tuple[list[int], list[int]] = ([left.pop(0)], [right.pop(0)])
        while (products := _products(before, after, run))[0] != products[1]:
            if products[0] < products[1]:
                run[0].append(left.pop(0))
            else:
                run[1].append(right.pop(0))
        yield run


def _products(before: Sequence[int], after: Sequence[int], run: tuple[list[int], list[int]]):
    return math.prod(before[axis] for axis in run[0]), math.prod(after[axis] for axis in run[1])
