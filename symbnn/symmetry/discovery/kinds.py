"""Which classes of units may be mixed by matrices: those that a program only ever uses linearly.

Along a class every value is of a degree: 0, constant along it; 1, a vector; 2, a product of two vectors that
still waits for its sum. Each equation must pass vectors on, multiply them by what is constant along the
class, or contract two of them; a product kept elementwise, a nonlinearity, an order leave permutations.

How a vector transforms is what the exponents say, since a contraction needs opposite ones and a sum equal
ones. With a scale the class is invertible: exponent +1 is a vector, −1 its dual. With a sign alone (a value
contracted with itself) it is orthogonal. With neither, constants along the class are added to vectors, or
vectors are summed: what is left are orthogonal matrices that fix the vector of ones (LayerNorm's mean).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from symbnn.symmetry.discovery.axis_words import Atom
from symbnn.symmetry.discovery.exponent_rules import LINEAR
from symbnn.symmetry.discovery.exponents import Shift
from symbnn.symmetry.discovery.redundancy import Generators
from symbnn.symmetry.discovery.rules.elementwise import ELEMENTWISE
from symbnn.symmetry.discovery.unknowns import CONSTANT, Entry, Unknowns, View, unknown_numbers
from symbnn.symmetry.program import Equation, Value
from symbnn.symmetry.spec import Kind

Degree = int
Degrees = dict[int, Degree]
"""Of every unknown met so far; leaves are vectors."""

BROADCASTS = {"broadcast_in_dim", "tile", "pad"}
SUMS = {"reduce_sum", "reduce_window_sum", "psum", "psum_invariant"}
SMALLEST_CENTRED = 3
"""Of two units only the swap fixes the vector of ones, and that is a permutation."""


class Mixing(NamedTuple):
    """By what matrices a class may be mixed; `Group` has the same fields."""

    kind: Kind = "permutation"
    centred: bool = False


class _Uses(NamedTuple):
    """One equation along one class."""

    equation: Equation
    operands: list[Degree | None]
    """None where an operand has no such index; 0 where it is constant along it."""
    numbered: list[bool]
    """Which operands have an axis along it."""
    numbers: list[float | None]
    """What an operand is known to hold everywhere."""
    has_result: bool
    is_dropped: bool
    """No result says anything about the index: positions that a slice leaves out."""


Rule = Callable[[_Uses], Degree | None]
"""The degree of the results; None where the class is not used linearly."""


def find_kinds(
    unknowns: Unknowns,
    known: dict[Value, float],
    shifts: dict[Value, Shift],
    over: dict[Atom, list[Atom]],
    scales: Generators,
    signs: Generators,
) -> dict[Atom, Mixing]:
    """How every class of the leaves may be mixed."""
    barred = _not_linear(unknowns, known, over, shifts, len(scales.classes))
    return {
        atom: Mixing() if atom in barred else _mixing(atom, scales.vectors[atom], signs.vectors[atom])
        for atom in scales.members
    }


def _mixing(atom: Atom, scales: list, signs: list) -> Mixing:
    if not scales and not signs:
        return Mixing("orthogonal", centred=True) if atom.size >= SMALLEST_CENTRED else Mixing()
    is_odd = len(signs) == 1 and all(parity == 1 for parity in signs[0])
    if is_odd and len(scales) == 1 and all(abs(exponent) == 1 for exponent in scales[0]):
        return Mixing("invertible")
    return Mixing("orthogonal") if is_odd and not scales else Mixing()


def _not_linear(
    unknowns: Unknowns,
    known: dict[Value, float],
    over: dict[Atom, list[Atom]],
    shifts: dict[Value, Shift],
    num_of_leaves: int,
) -> set[Atom]:
    """Classes that some equation does not use linearly, or whose matrices would be no group."""
    # Matrices of a class that others vary over would mix what varies with what it varies over.
    barred = {d for dependent in over.values() for d in dependent}
    barred |= {unknowns.atoms[number] for number in unknowns.unclear}
    degrees: Degrees = {}
    for value, words in unknowns.words.items():
        numbers = unknown_numbers(words)
        if value.constant is not None:
            degrees |= dict.fromkeys(numbers, 0)
        elif value in shifts or not value.is_float:
            # Of what is computed only the equations decide: a mask may be constant along the class.
            barred |= {unknowns.atoms[number] for number in numbers if number < num_of_leaves}
    for equation, views in unknowns.views:
        for view in views:
            if view.atom not in barred and not _is_linear(equation, view, known, degrees):
                barred.add(view.atom)
    return barred


def _is_linear(equation: Equation, view: View, known: dict[Value, float], degrees: Degrees) -> bool:
    """Whether the equation uses the class linearly; notes the degrees of its results."""
    numbered = [_is_numbered(entry) for entry in view.operands]
    results = [entry for entry in view.results if entry is not None and entry != CONSTANT]
    if not any(numbered) and not results:
        return True
    uses = _Uses(
        equation,
        [
            degrees.get(entry, 1) if has else (None if entry is None else 0)  # type: ignore[arg-type]
            for entry, has in zip(view.operands, numbered, strict=True)
        ],
        numbered,
        [known.get(value) for value in equation.operands],
        bool(results),
        all(entry is None for entry in view.results),
    )
    degree = RULES.get(equation.primitive, _constant_only)(uses)
    if degree is None:
        return False
    # A loop's carry is met twice: what leaves an iteration must be what enters the next.
    return all(degrees.setdefault(number, degree) == degree for number in results)


def _is_numbered(entry: Entry) -> bool:
    return entry is not None and entry != CONSTANT


def _passed(uses: _Uses) -> Degree | None:
    """Views and sums of values of one degree; what is constant along the class goes with any."""
    if not uses.has_result:
        is_sum = uses.equation.primitive in SUMS
        return 0 if is_sum or uses.is_dropped else None
    if not any(uses.numbered):
        return 0 if uses.equation.primitive in BROADCASTS else None
    return _joined(uses.operands)


def _joined(operands: list[Degree | None]) -> Degree | None:
    found = {degree for degree in operands if degree}
    return max(found, default=0) if len(found) < 2 else None


def _carried(uses: _Uses) -> Degree | None:
    """What enters a loop is a vector even where it starts as a constant, as zeros do."""
    return max(uses.operands[0] or 0, 1)


def _product(uses: _Uses) -> Degree | None:
    """Degrees add; without a result the product is summed over the class."""
    degree = sum(degree for degree in uses.operands if degree)
    return degree if degree <= 2 else None


def _quotient(uses: _Uses) -> Degree | None:
    numerator, denominator = uses.operands
    return None if denominator else numerator or 0


def _square(uses: _Uses) -> Degree | None:
    exponent = uses.equation.params.get("y", 2)
    degree = exponent * (uses.operands[0] or 0)
    return degree if degree <= 2 and (exponent > 0 or not degree) else None


def _selected(uses: _Uses) -> Degree | None:
    """Cases of one degree under a predicate that is constant along the class."""
    is_finite = all(number is None or math.isfinite(number) for number in uses.numbers[1:])
    return _joined(uses.operands[1:]) if is_finite and not uses.operands[0] else None


def _indexed(count: int) -> Rule:
    """The first operands pass; the rest are indices, which may not have the class."""

    def rule(uses: _Uses) -> Degree | None:
        fill = uses.equation.params.get("fill_value")
        is_filled = fill is not None and fill == fill and fill != 0
        return None if is_filled or any(uses.operands[count:]) else _passed(uses)

    return rule


def _scattered(uses: _Uses) -> Degree | None:
    """What is there and what is put or added there; the indices between them may not have the class."""
    return None if uses.operands[1] else _passed(uses._replace(operands=uses.operands[::2]))


def _converted(uses: _Uses) -> Degree | None:
    """Between floating point types; eight bits are quantisation."""
    values = (*uses.equation.operands, *uses.equation.results)
    passes = all(value.is_float and value.dtype.itemsize > 1 for value in values)
    return _passed(uses) if passes else _constant_only(uses)


def _constant_only(uses: _Uses) -> Degree | None:
    """Any function of corresponding elements maps what is constant along the class to what is."""
    is_elementwise = uses.equation.primitive in ELEMENTWISE and uses.has_result
    return 0 if is_elementwise and not any(uses.operands) else None


RULES: dict[str, Rule] = {
    **dict.fromkeys((*LINEAR, "optimization_barrier"), _passed),
    **dict.fromkeys(("link", "link_init"), _carried),
    **dict.fromkeys(("mul", "dot_general", "conv_general_dilated", "ragged_dot_general"), _product),
    **dict.fromkeys(("square", "integer_pow"), _square),
    **dict.fromkeys(("select_n", "phi"), _selected),
    **dict.fromkeys(("gather", "dynamic_slice"), _indexed(1)),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter-sub"), _scattered),
    "dynamic_update_slice": _indexed(2),
    "div": _quotient,
    "convert_element_type": _converted,
}
"""By primitive; any other may only meet what is constant along the class."""
