"""Primitives through which a change f u of one operand goes on as a change f' u of the result.

Everything that is linear in that operand and leaves the axis alone: f' is then whatever it makes of f.
"""

from collections.abc import Callable, Iterator

from symbnn.symmetry.discovery.translations.directions import ONES, Direction
from symbnn.symmetry.discovery.translations.facts import Facts
from symbnn.symmetry.program import Equation, Value

MASKED = -1e30
"""Masks write this or less where they mean minus infinity."""


class Lost(Exception):
    """The change does something that is not followed."""


Passed = Iterator[tuple[Value, int]]
"""Results with the axis there."""
Rule = Callable[[Facts, Equation, int, int, Direction], Passed]


def pass_on(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """Where the change of operand `which` goes; nowhere if it cancels, `Lost` if that is not known."""
    rule = RULES.get(equation.primitive)
    if rule is None:
        raise Lost
    yield from rule(facts, equation, which, axis, direction)


def _dot(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """A free axis stays; along a contracted one the other operand may have no part in the direction."""
    contracted, batch = equation.params["dimension_numbers"]
    own, others = contracted[which], contracted[1 - which]
    if axis in own:
        other, place = equation.operands[1 - which], others[own.index(axis)]
        found = facts.constraints.get(other, ())
        if any(one.axis == place and one.direction == direction and not one.total for one in found):
            return
        raise Lost
    if axis in batch[which]:
        raise Lost
    free = [a for a in range(len(equation.operands[which].shape)) if a not in (*own, *batch[which])]
    before = len(batch[0])
    if which:
        before += len(equation.operands[0].shape) - len(contracted[0]) - len(batch[0])
    yield equation.results[0], before + free.index(axis)


def _conv(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """The output channels of a kernel."""
    params, numbers = equation.params, equation.params["dimension_numbers"]
    is_plain = params["feature_group_count"] == params["batch_group_count"] == 1
    if which != 1 or not is_plain or axis != numbers.rhs_spec[0]:
        raise Lost
    yield equation.results[0], numbers.out_spec[1]


def _gather(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """Axes that are taken whole."""
    params, operand = equation.params, equation.operands[0]
    numbers = params["dimension_numbers"]
    dropped = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
    if which or axis in dropped or params["slice_sizes"][axis] != operand.shape[axis]:
        raise Lost
    kept = [a for a in range(len(operand.shape)) if a not in dropped]
    yield equation.results[0], numbers.offset_dims[kept.index(axis)]


def _part(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """Slices, joins and splits along other axes."""
    for result in equation.results:
        if equation.operands[which].shape[axis] != result.shape[axis] or not result.is_float:
            raise Lost
        yield result, axis


def _first_part(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    if which:
        raise Lost
    yield from _part(facts, equation, which, axis, direction)


def _select(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    """Cases under a predicate that is constant along the axis, or beside minus infinity."""
    predicate, *cases = equation.operands
    others = [case for number, case in enumerate(cases, 1) if number != which]
    is_masked = all(facts.known.get(case, 0.0) <= MASKED for case in others) and direction == ONES
    is_uniform = not predicate.shape or facts.profile(predicate, axis) == ONES
    if not which or not (is_masked or is_uniform):
        raise Lost
    yield equation.results[0], axis


def _loop(facts: Facts, equation: Equation, which: int, axis: int, direction: Direction) -> Passed:
    if which:
        raise Lost
    yield equation.results[0], axis + (equation.primitive == "scan_y")


RULES: dict[str, Rule] = {
    "dot_general": _dot,
    "conv_general_dilated": _conv,
    "gather": _gather,
    **dict.fromkeys(("slice", "dynamic_slice", "split"), _first_part),
    "concatenate": _part,
    **dict.fromkeys(("select_n", "phi"), _select),
    **dict.fromkeys(("link", "link_init", "scan_y"), _loop),
}
