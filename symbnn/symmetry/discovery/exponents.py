"""By which powers each unit of each weight array may be rescaled or flipped.

Along every index a value carries a factor Π s^e with unknown exponents e. Each equation of the program
relates them (`exponent_rules`), outputs have exponent zero, and the solutions are the generators: over the
rationals for positive factors, over GF(2) for signs.

Shifted leaves: if a leaf is only ever used as leaf + ε, then u = leaf + ε is what is rescaled. A BatchNorm
variance is such a leaf, v' = a² (v + ε) - ε, found without knowing BatchNorm.
"""

from fractions import Fraction
from typing import NamedTuple

from symbnn.symmetry.discovery.exponent_rules import (
    EXPONENT_RULES,
    Exponents,
    Relation,
    equal_ignoring_constants,
    zero,
)
from symbnn.symmetry.discovery.linear import ZERO, Form, System
from symbnn.symmetry.discovery.roles import Roles
from symbnn.symmetry.discovery.unknowns import CONSTANT, Entry, Unknowns, View
from symbnn.symmetry.program import Equation, Program, Value

VIEWS = {
    *("reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "convert_element_type"),
    *("copy", "stop_gradient", "pvary"),
}


class Shift(NamedTuple):
    """A leaf used only as leaf + `amount`, in `equations`."""

    amount: float
    equations: tuple[Equation, ...]


def find_exponents(
    unknowns: Unknowns,
    known: dict[Value, float],
    roles: Roles,
    shifts: dict[Value, Shift],
    *,
    signs: bool,
    eval_only: bool = False,
) -> System:
    """All equations between exponents, solved; `reduce` of a leaf's unknown gives it in free unknowns.

    `signs` asks for flips instead of positive factors; `eval_only` is that of `discover`.
    """
    system = System(roles.ranks, modulus=2 if signs else None)
    shifted = {equation for shift in shifts.values() for equation in shift.equations}
    for unknown in unknowns.vanishing:
        system.vanish({unknown: Fraction(1)})
    for equation, views in unknowns.views:
        relation = EXPONENT_RULES.get(equation.primitive, (zero, zero))[signs]
        if equation in shifted and not signs:
            relation = equal_ignoring_constants
        for view in views:
            for form in _relate(relation, equation, view, known):
                system.vanish(form, equation)
    if not signs and not eval_only:
        # A running variance belongs to the values it divides: it scales with their square.
        for variance, divided in roles.variances:
            system.vanish({variance: Fraction(1), divided: Fraction(-2)})
    return system


def find_shifts(program: Program, leaves: list[Value], known: dict[Value, float]) -> dict[Value, Shift]:
    """Leaves whose every use is an addition of one and the same number."""
    readers = program.readers()
    outputs = dict.fromkeys(program.outputs)
    shifts = {}
    for leaf in leaves:
        uses = _uses(leaf, readers, outputs)
        numbers = {_added(equation, known) for equation in uses or ()}
        if uses and len(numbers) == 1 and (number := numbers.pop()):
            shifts[leaf] = Shift(number, tuple(uses))
    return shifts


def _uses(
    value: Value, readers: dict[Value, list[Equation]], outputs: dict[Value, None]
) -> list[Equation] | None:
    """Equations that use a value or a view of it; None if it is an output."""
    if value in outputs:
        return None
    uses: list[Equation] = []
    for equation in readers.get(value, []):
        if equation.primitive not in VIEWS:
            uses.append(equation)
            continue
        inner = _uses(equation.results[0], readers, outputs)
        if inner is None:
            return None
        uses.extend(inner)
    return uses


def _added(equation: Equation, known: dict[Value, float]) -> float | None:
    numbers = [known[value] for value in equation.operands if value in known]
    return numbers[0] if equation.primitive == "add" and len(numbers) == 1 else None


def _relate(relation: Relation, equation: Equation, view: View, known: dict[Value, float]) -> list[Form]:
    if all(entry is None for entry in view.operands):
        # An index that only results have: no operand says how they scale along it, so they may not.
        relation = zero
    return relation(
        Exponents(
            equation,
            tuple(map(_form, view.operands)),
            tuple(map(_form, view.results)),
            tuple(known.get(value) for value in equation.operands),
        )
    )


def _form(entry: Entry) -> Form | None:
    if entry is None:
        return None
    return ZERO if entry == CONSTANT else {entry: Fraction(1)}
