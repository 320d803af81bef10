"""Where an axis goes: primitives that move, insert, drop, merge or split axes and do nothing else."""

from collections.abc import Sequence
from dataclasses import replace

from symbnn.symmetry.discovery.rules.shape import equal_runs
from symbnn.symmetry.discovery.translations.terms import Axis, Sizes, Term, renamed
from symbnn.symmetry.program import Equation, Loop

UNCHANGED = {
    *("copy", "copy_p", "stop_gradient", "name", "device_put", "sharding_constraint", "convert_element_type"),
}
VIEWS = UNCHANGED | {"transpose", "broadcast_in_dim", "squeeze", "expand_dims", "reshape", "scan_x"}


def is_view(equation: Equation) -> bool:
    """Whether the result holds the numbers of its operand, in other places; eight bits are quantisation."""
    if equation.primitive == "convert_element_type":
        values = (equation.operands[0], equation.results[0])
        return all(value.is_float and value.dtype.itemsize > 1 for value in values)
    return equation.primitive in VIEWS and len(equation.results) == 1


def viewed(equation: Equation, term: Term, sizes: Sizes) -> Term | None:
    """The result of a view, as a term."""
    shape = equation.results[0].shape
    if equation.primitive == "scan_x":
        return _scanned(equation, term)
    if equation.primitive == "reshape":
        return _reshaped(equation, term, sizes)
    axes: list[Axis] = [(sizes.fresh(size),) if size > 1 else () for size in shape]
    for axis, place in enumerate(targets(equation)):
        if place is not None and shape[place] == equation.operands[0].shape[axis]:
            axes[place] = term.axes[axis]
    return replace(term, axes=tuple(axes))


def targets(equation: Equation) -> Sequence[int | None]:
    """The axis of the result that every axis of the operand becomes; None where it is lost or mixed."""
    operand, result, params = equation.operands[0], equation.results[0], equation.params
    rank = len(operand.shape)
    if equation.primitive in UNCHANGED:
        return range(rank)
    if equation.primitive == "transpose":
        return [params["permutation"].index(axis) for axis in range(rank)]
    if equation.primitive == "broadcast_in_dim":
        return params["broadcast_dimensions"]
    if equation.primitive == "squeeze":
        kept = [axis for axis in range(rank) if axis not in params["dimensions"]]
        return [kept.index(axis) if axis in kept else None for axis in range(rank)]
    if equation.primitive == "expand_dims":
        return [axis for axis in range(len(result.shape)) if axis not in params["dimensions"]]
    if equation.primitive == "scan_x":
        return [None, *range(rank - 1)]
    if equation.primitive == "reshape" and not params.get("dimensions"):
        found: list[int | None] = [None] * rank
        for before, after in equal_runs(operand.shape, result.shape):
            if len(before) == len(after) == 1:
                found[before[0]] = after[0]
        return found
    return [None] * rank


def _scanned(equation: Equation, term: Term) -> Term | None:
    """Inside a loop its index stands for the scanned axis."""
    loop: Loop = equation.params["loop"]
    if len(term.axes[0]) > 1 or (loop in term.occurring and term.axes[0] != (loop,)):
        return None
    inside = renamed(term, dict.fromkeys(term.axes[0], (loop,)))
    return replace(inside, axes=inside.axes[1:])


def _reshaped(equation: Equation, term: Term, sizes: Sizes) -> Term | None:
    """Axes that are merged keep their indices side by side; one that is split needs indices that split."""
    if equation.params.get("dimensions"):
        return None
    shape = equation.results[0].shape
    axes: dict[int, Axis] = {}
    for before, after in equal_runs(equation.operands[0].shape, shape):
        # By number, because indices are renamed as axes are split.
        indices = [index for axis in before for index in term.axes[axis]]
        for place in after:
            taken: list[int] = []
            size = 1
            while size < shape[place]:
                index = indices.pop(0)
                if (size * sizes[index]) <= shape[place]:
                    taken.append(index)  # type: ignore[arg-type]
                    size *= sizes[index]
                    continue
                needed = shape[place] // size
                if shape[place] % size or sizes[index] % needed or isinstance(index, Loop):
                    return None
                parts = (sizes.fresh(needed), sizes.fresh(sizes[index] // needed))
                term = renamed(term, {index: parts})
                indices[:0] = parts
            if size != shape[place]:
                return None
            axes[place] = tuple(taken)
    return replace(term, axes=tuple(axes.get(place, ()) for place in range(len(shape))))
