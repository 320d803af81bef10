"""Primitives that make or use positions: iota, gather, scatter, dynamic slices."""

from symbnn.symmetry.discovery.rules.base import AxisMap, Variable, constant_along, layout, rule
from symbnn.symmetry.program import Equation

ROWS = "rows chosen by index"


@rule("iota")
def iota(equation: Equation) -> AxisMap:
    """Positions themselves: masks, one-hot vectors and position codes pin by this."""
    variables = range(len(equation.results[0].shape))
    return AxisMap(
        (), (layout(variables),), {equation.params["dimension"]: "its positions are counted (iota)"}
    )


@rule("gather")
def gather(equation: Equation) -> AxisMap:
    """Axes that are taken whole pass; axes that are indexed or taken in part are pinned."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    operand, indices = equation.operands
    pins: dict[Variable, str] = {"vector": "it holds the coordinates of an index"}
    operand_variables: list[Variable] = [("operand", axis) for axis in range(len(operand.shape))]
    index_variables: list[Variable] = [("index", axis) for axis in range(len(indices.shape))]
    index_variables[-1] = "vector"
    batching = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    for axis, index_axis in batching:
        operand_variables[axis] = index_variables[index_axis]
    window = []
    for axis, length in enumerate(operand.shape):
        if axis in numbers.operand_batching_dims:
            continue
        is_whole = sizes[axis] == length and axis not in numbers.collapsed_slice_dims
        if not is_whole:
            pins[operand_variables[axis]] = ROWS
        if axis not in numbers.collapsed_slice_dims:
            variable: Variable = operand_variables[axis] if is_whole else ("part", axis)
            window.append(variable)
            if not is_whole:
                pins[variable] = ROWS
    batch = iter(index_variables[:-1])
    offsets = iter(window)
    result = [
        next(offsets) if axis in numbers.offset_dims else next(batch)
        for axis in range(len(equation.results[0].shape))
    ]
    # Rows that are taken several times are the same numbers: along the indices the operand is constant.
    chosen = constant_along(
        variable for variable in index_variables[:-1] if variable not in operand_variables
    )
    return AxisMap(((*layout(operand_variables), *chosen), layout(index_variables)), (layout(result),), pins)


@rule("dynamic_slice")
def dynamic_slice(equation: Equation) -> AxisMap:
    """Whole axes pass, others are pinned."""
    operand, result = equation.operands[0], equation.results[0]
    before, after, pins = _windowed(operand.shape, result.shape)
    return AxisMap((layout(before), *(() for _ in equation.operands[1:])), (layout(after),), pins)


@rule("dynamic_update_slice")
def dynamic_update_slice(equation: Equation) -> AxisMap:
    """Whole axes pass, others are pinned."""
    operand, update, *starts = equation.operands
    before, after, pins = _windowed(operand.shape, update.shape)
    return AxisMap((layout(before), layout(after), *(() for _ in starts)), (layout(before),), pins)


@rule("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub")
def scatter(equation: Equation) -> AxisMap:
    """Axes that updates cover whole pass; indexed axes and the order of the updates are pinned."""
    numbers = equation.params["dimension_numbers"]
    operand, indices, updates = equation.operands
    whole = range(len(operand.shape))
    skipped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = dict(
        zip(numbers.update_window_dims, [axis for axis in whole if axis not in skipped], strict=True)
    )
    update_variables: list[Variable] = []
    pins: dict[Variable, str] = {axis: ROWS for axis in whole if axis in skipped}
    for axis, length in enumerate(updates.shape):
        target = window.get(axis)
        if target is not None and operand.shape[target] == length:
            update_variables.append(target)
            continue
        update_variables.append(("update", axis))
        pins[("update", axis)] = ROWS
        if target is not None:
            pins[target] = ROWS
    index_variables: list[Variable] = [("index", axis) for axis in range(len(indices.shape))]
    pins |= dict.fromkeys(index_variables, ROWS)
    return AxisMap((layout(whole), layout(index_variables), layout(update_variables)), (layout(whole),), pins)


def _windowed(
    whole: tuple[int, ...], part: tuple[int, ...]
) -> tuple[list[Variable], list[Variable], dict[Variable, str]]:
    parts = [axis for axis in range(len(whole)) if whole[axis] != part[axis]]
    before: list[Variable] = list(range(len(whole)))
    after: list[Variable] = [("part", axis) if axis in parts else axis for axis in range(len(whole))]
    return before, after, dict.fromkeys((*parts, *(("part", axis) for axis in parts)), ROWS)
