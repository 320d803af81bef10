"""Primitives that map corresponding elements, and those that only pass values on."""

import numpy as np

from symbnn.symmetry.discovery.rules.base import (
    AxisMap,
    Span,
    Variable,
    broadcast,
    constant_along,
    layout,
    rule,
)
from symbnn.symmetry.program import Equation

ELEMENTWISE = (
    *("add", "sub", "mul", "div", "max", "min", "rem", "pow", "integer_pow", "square", "sqrt", "rsqrt"),
    *("cbrt", "neg", "abs", "sign", "floor", "ceil", "round", "exp", "exp2", "log", "log1p", "expm1"),
    *("tanh", "logistic", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh"),
    *("acosh", "atanh", "atan2", "erf", "erfc", "erf_inv", "lgamma", "digamma", "is_finite", "eq"),
    *("ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "shift_left", "shift_right_logical"),
    *("shift_right_arithmetic", "nextafter", "real", "imag", "conj", "complex", "reduce_precision"),
    *("add_any", "name", "device_put", "sharding_constraint", "convert_element_type", "copy", "copy_p"),
    *("stop_gradient", "select_n", "clamp", "phi", "population_count", "clz", "pvary"),
)


@rule(*ELEMENTWISE)
def elementwise(equation: Equation) -> AxisMap:
    """Axis i of every value is one index. Scalars and axes of length 1 are broadcast implicitly."""
    shape = equation.results[0].shape
    return AxisMap(
        tuple(broadcast(value, shape) for value in equation.operands),
        tuple(broadcast(value, shape) for value in equation.results),
    )


@rule("bitcast_convert_type")
def bitcast(equation: Equation) -> AxisMap | None:
    """Elementwise while items keep their size; else bits move to another axis."""
    sizes = [np.dtype(value.dtype).itemsize for value in (*equation.operands, *equation.results)]
    return elementwise(equation) if sizes[0] == sizes[1] else None


@rule("optimization_barrier")
def barrier(equation: Equation) -> AxisMap:
    """Operand k is result k; they have nothing to do with each other."""
    layouts = tuple(
        layout((number, axis) for axis in range(len(value.shape)))
        for number, value in enumerate(equation.operands)
    )
    return AxisMap(layouts, layouts)


@rule("link", "link_init")
def link(equation: Equation) -> AxisMap:
    """What enters an iteration transforms like what leaves the one before; a condition has no axes."""
    same = layout(range(len(equation.results[0].shape)))
    return AxisMap((same, *(() for _ in equation.operands[1:])), (same,))


@rule("scan_x", "scan_y")
def scanned(equation: Equation) -> AxisMap:
    """An iteration sees one index of axis 0, or makes one; inside, values are constant along the loop."""
    loop = ("loop", equation.params["loop"])
    rank = min(len(equation.operands[0].shape), len(equation.results[0].shape))
    inner = tuple(("inner", axis) for axis in range(rank))
    whole, inside = layout((loop, *inner)), (*layout(inner), *constant_along((loop,)))
    return AxisMap((whole,), (inside,)) if equation.primitive == "scan_x" else AxisMap((inside,), (whole,))


@rule("shard_x", "shard_y")
def shared_out(equation: Equation) -> AxisMap:
    """An axis of the whole is devices × what one device has, whose values are constant along the mesh."""
    whole, part = equation.operands[0], equation.results[0]
    if equation.primitive == "shard_y":
        whole, part = part, whole
    spans = []
    sizes: dict[Variable, int] = {}
    mesh: dict[Variable, None] = {}
    for axis, length in enumerate(part.shape):
        loops = equation.params["loops"][axis] if axis < len(equation.params["loops"]) else ()
        devices: tuple[Variable, ...] = tuple(("loop", loop) for loop in loops)
        spans.append(Span((axis,), (*devices, axis)))
        sizes |= {axis: length} | {("loop", loop): loop.length for loop in loops}
        mesh |= dict.fromkeys(devices)
    inside = (*layout(range(len(part.shape))), *constant_along(mesh))
    sides = (tuple(spans),), (inside,)
    return AxisMap(*(sides if equation.primitive == "shard_x" else sides[::-1]), sizes=sizes)
