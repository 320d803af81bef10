"""Matrix products and convolutions."""

from symbnn.symmetry.discovery.rules.base import AxisMap, Span, Variable, layout, rule
from symbnn.symmetry.program import Equation

WINDOW = "order under a convolution window"


@rule("dot_general")
def dot_general(equation: Equation) -> AxisMap:
    """Batch and contracted axes are shared; the result has batch, then left, then right free axes."""
    (contract_left, contract_right), (batch_left, batch_right) = equation.params["dimension_numbers"]
    sides: list[list[Variable]] = []
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
    free = [variable for side in sides for variable in side if variable[0] in ("left", "right")]  # type: ignore[index]
    batch = [("batch", number) for number in range(len(batch_left))]
    return AxisMap((layout(sides[0]), layout(sides[1])), (layout([*batch, *free]),))


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
