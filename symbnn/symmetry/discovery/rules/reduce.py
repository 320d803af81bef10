"""Reductions, scans along an axis, windows, and order."""

from symbnn.symmetry.discovery.rules.base import AxisMap, Span, Variable, constant_along, layout, rule
from symbnn.symmetry.program import Equation

POOLING = "order under a pooling window"


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def reduce(equation: Equation) -> AxisMap:
    """A reduction does not see the order of what it reduces; its result is constant along it."""
    axes, rank = equation.params["axes"], len(equation.operands[0].shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    return AxisMap((layout(range(rank)),), ((*layout(kept), *constant_along(axes)),))


@rule("psum", "psum_invariant", "pmax", "pmin")
def reduce_mapped(equation: Equation) -> AxisMap | None:
    """A reduction over axes that `vmap` or a mesh names: numbered axes go, named ones have none."""
    if equation.params.get("axis_index_groups") is not None or len(equation.operands) > 1:
        return None
    rank = len(equation.operands[0].shape)
    axes = [axis for axis in equation.params["axes"] if isinstance(axis, int)]
    kept = [axis for axis in range(rank) if axis not in axes]
    return AxisMap((layout(range(rank)),), ((*layout(kept), *constant_along(axes)),))


@rule("fft")
def fourier(equation: Equation) -> AxisMap:
    """The transformed axes, which are the last, are ordered; all others pass."""
    rank = len(equation.operands[0].shape)
    first = rank - len(equation.params["fft_lengths"])
    reason = "order under a Fourier transform"
    before, after = ([axis if axis < first else (side, axis) for axis in range(rank)] for side in ("t", "f"))
    pins: dict[Variable, str] = dict.fromkeys((*before[first:], *after[first:]), reason)
    return AxisMap((layout(before),), (layout(after),), pins)


@rule("argmax", "argmin")
def arg_reduce(equation: Equation) -> AxisMap:
    """The result is a position, so positions are pinned."""
    axes, variables = equation.params["axes"], range(len(equation.operands[0].shape))
    kept = layout(axis for axis in variables if axis not in axes)
    return AxisMap((layout(variables),), (kept,), dict.fromkeys(axes, "its positions are the result"))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(equation: Equation) -> AxisMap:
    """The accumulated axis is ordered."""
    same = layout(range(len(equation.results[0].shape)))
    return AxisMap((same,), (same,), {equation.params["axis"]: "accumulated in order"})


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def reduce_window(equation: Equation) -> AxisMap:
    """A window of one passes, a window over the whole axis reduces, any other pins."""
    operand, result, params = equation.operands[0], equation.results[0], equation.params
    operand_spans, result_spans = [], []
    pins: dict[Variable, str] = {}
    for axis, length in enumerate(operand.shape):
        window, stride = params["window_dimensions"][axis], params["window_strides"][axis]
        is_plain = (
            tuple(params["padding"][axis]) == (0, 0)
            and params["base_dilation"][axis] == 1
            and params["window_dilation"][axis] == 1
        )
        operand_spans.append(Span((axis,), (axis,)))
        if is_plain and window == 1 and stride == 1:
            result_spans.append(Span((axis,), (axis,)))
        elif is_plain and window == length:
            result_spans.append(Span((), (axis,)))
        else:
            variable: Variable = ("windowed", axis)
            result_spans.append(Span((axis,), (variable,)))
            pins |= {axis: POOLING, variable: POOLING}
    spans = [span for span in result_spans if span.axes]
    spans += [Span((axis,), (("length one", axis),)) for axis in _uncovered(result.shape, spans)]
    constant = [span for span in result_spans if not span.axes]
    return AxisMap((tuple(operand_spans),), ((*spans, *constant),), pins)


@rule("sort")
def sort(equation: Equation) -> AxisMap:
    """Sorted positions are pinned; unsorted ones are free if nothing is carried along with the keys."""
    axis, rank = equation.params["dimension"], len(equation.results[0].shape)
    before = tuple(number if number != axis else "unsorted" for number in range(rank))
    after = tuple(number if number != axis else "sorted" for number in range(rank))
    pins: dict[Variable, str] = {"sorted": "sorted by value"}
    if equation.params["num_keys"] < len(equation.operands):
        pins["unsorted"] = "sorted along with other values"
    ordered = (*layout(after), *constant_along(["unsorted"]))
    return AxisMap(
        tuple(layout(before) for _ in equation.operands), tuple(ordered for _ in equation.results), pins
    )


@rule("top_k")
def top_k(equation: Equation) -> AxisMap:
    """Ranks are pinned; so are positions if their indices are used."""
    rank = len(equation.operands[0].shape)
    axis = equation.params.get("axis", rank - 1) % rank
    before = tuple(number if number != axis else "unsorted" for number in range(rank))
    after = tuple(number if number != axis else "rank" for number in range(rank))
    pins: dict[Variable, str] = {"rank": "sorted by value"}
    if equation.is_used[1]:
        pins["unsorted"] = "its positions are the result"
    return AxisMap((layout(before),), (layout(after), layout(after)), pins)


def _uncovered(shape: tuple[int, ...], spans: list[Span]) -> list[int]:
    covered = {axis for span in spans for axis in span.axes}
    return [axis for axis in range(len(shape)) if axis not in covered]
