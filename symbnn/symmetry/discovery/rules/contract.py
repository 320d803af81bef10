"""Matrix products and convolutions."""

from typing import Any

from symbnn.symmetry.discovery.rules.base import AxisMap, Span, Variable, layout, rule
from symbnn.symmetry.program import Equation

WINDOW = "order under a convolution window"
GROUPED = "rows in groups of given sizes"


@rule("dot_general")
def dot_general(equation: Equation) -> AxisMap:
    """Batch and contracted axes are shared; the result has batch, then left, then right free axes."""
    left, right = _sides(equation, equation.params["dimension_numbers"])
    return AxisMap((layout(left), layout(right)), (layout([*_batch(left), *_free(left), *_free(right)]),))


@rule("ragged_dot_general")
def ragged_dot(equation: Equation) -> AxisMap | None:
    """Rows of the left in groups of given sizes, each with a matrix of its own: as a product per row.

    The order of the rows says which group they are in. Ragged sums and batches are not understood.
    """
    numbers = equation.params["ragged_dot_dimension_numbers"]
    left, right = _sides(equation, numbers.dot_dimension_numbers)
    rows = [left[axis] for axis in numbers.lhs_ragged_dimensions]
    groups = [right[axis] for axis in numbers.rhs_group_dimensions]
    if len(equation.operands) != 3 or not groups or not {*rows} <= {*_free(left)}:
        return None
    sizes: list[Variable] = [("size", axis) for axis in range(len(equation.operands[2].shape))]
    free = [variable for variable in (*_free(left), *_free(right)) if variable not in groups]
    return AxisMap(
        (layout(left), layout(right), layout(sizes)),
        (layout([*_batch(left), *free]),),
        dict.fromkeys((*rows, *groups, *sizes), GROUPED),
    )


@rule("conv_general_dilated")
def convolution(equation: Equation) -> AxisMap | None:
    """Input features are groups × inputs, kernels map inputs to groups × outputs within each group.

    Positions keep their order, except under a kernel of length 1 that steps by one over an unpadded axis.
    """
    params = equation.params
    if params["batch_group_count"] != 1:
        return None
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    kernel = equation.operands[1]
    out_axis, in_axis, *kernel_spatial = numbers.rhs_spec
    sizes: dict[Variable, int] = {
        "group": groups,
        "in": kernel.shape[in_axis],
        "out": kernel.shape[out_axis] // groups,
    }
    grouped = ("group",) if groups > 1 else ()
    pins: dict[Variable, str] = {}
    left_spans = [Span((numbers.lhs_spec[0],), ("batch",)), Span((numbers.lhs_spec[1],), (*grouped, "in"))]
    kernel_spans = [Span((out_axis,), (*grouped, "out")), Span((in_axis,), ("in",))]
    result_spans = [Span((numbers.out_spec[0],), ("batch",)), Span((numbers.out_spec[1],), (*grouped, "out"))]
    for number, axis in enumerate(kernel_spatial):
        left_axis, result_axis = numbers.lhs_spec[2 + number], numbers.out_spec[2 + number]
        is_pointwise = (
            kernel.shape[axis] == 1
            and params["window_strides"][number] == 1
            and tuple(params["padding"][number]) == (0, 0)
            and params["lhs_dilation"][number] == 1
        )
        result_variable: Variable = ("position", number) if is_pointwise else ("result position", number)
        left_spans.append(Span((left_axis,), (("position", number),)))
        kernel_spans.append(Span((axis,), (("window", number),)))
        result_spans.append(Span((result_axis,), (result_variable,)))
        if not is_pointwise:
            pins |= dict.fromkeys((("position", number), ("window", number), result_variable), WINDOW)
    return AxisMap((tuple(left_spans), tuple(kernel_spans)), (tuple(result_spans),), pins, sizes)


def _sides(equation: Equation, numbers: Any) -> list[list[Variable]]:
    """Variables of the two factors of a product: named alike where an axis is contracted or batched."""
    (contract_left, contract_right), (batch_left, batch_right) = numbers
    sides = []
    for name, value, contracted, batched in (
        ("left", equation.operands[0], contract_left, batch_left),
        ("right", equation.operands[1], contract_right, batch_right),
    ):
        variables: list[Variable] = [(name, axis) for axis in range(len(value.shape))]
        for number, axis in enumerate(contracted):
            variables[axis] = ("contracted", number)
        for number, axis in enumerate(batched):
            variables[axis] = ("batch", number)
        sides.append(variables)
    return sides


def _free(side: list[Variable]) -> list[Variable]:
    return [variable for variable in side if variable[0] in ("left", "right")]  # type: ignore[index]


def _batch(side: list[Variable]) -> list[Variable]:
    return sorted(variable for variable in side if variable[0] == "batch")  # type: ignore[index,type-var]
