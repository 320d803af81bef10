"""Which weights produce a unit and which consume it, and in what order they are met.

Values that depend on weights alone remember which unknowns of leaves they come from. Where such a value meets
data, those produce the unit, unless data have it too and the result does not, as under the sum of a matrix
product or convolution: then they consume it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from symbnn.symmetry.discovery.unknowns import CONSTANT, Entry, Unknowns, View
from symbnn.symmetry.program import Equation, Value

ROOTS = {"rsqrt", "sqrt", "pow"}


class Roles(NamedTuple):
    """Roles of the unknowns of leaves."""

    produces: dict[int, None]
    consumes: dict[int, None]
    ranks: dict[int, int]
    """Order in which unknowns stay free: producers by first use, then consumers."""
    variances: list[tuple[int, int]]
    """(unknown of a shifted leaf, unknown of the data that its square root divides)."""


@dataclass
class _Origins:
    """Leaves' unknowns that an unknown comes from; of those, the shifted ones under a square root."""

    leaves: dict[int, dict[int, None]]
    roots: dict[int, dict[int, None]] = field(default_factory=dict)


def find_roles(
    unknowns: Unknowns, num_of_leaves: int, inputs: list[Value], shifted: dict[int, None]
) -> Roles:
    """Walk the program once with the origins of every unknown; `shifted` are those of shifted leaves."""
    roles = Roles({}, {}, {}, [])
    origins = _Origins({unknown: {unknown: None} for unknown in range(num_of_leaves)})
    data = _depends_on(unknowns, inputs)
    for equation, views in unknowns.views:
        for view in views:
            if equation.results[0] in data:
                _meet_data(roles, equation, view, origins, data)
            else:
                _pass_on(equation, view, origins, shifted)
    order = {**roles.produces, **roles.consumes, **dict.fromkeys(range(num_of_leaves))}
    roles.ranks.update({unknown: rank for rank, unknown in enumerate(order)})
    return roles


def _depends_on(unknowns: Unknowns, inputs: list[Value]) -> dict[Value, None]:
    """Values that depend on the inputs; a fixpoint, because a loop's carry may turn out to."""
    data = dict.fromkeys(inputs)
    count = -1
    while count != len(data):
        count = len(data)
        for equation, _ in unknowns.views:
            if any(value in data for value in equation.operands):
                data.update(dict.fromkeys(equation.results))
    return data


def _meet_data(
    roles: Roles, equation: Equation, view: View, origins: _Origins, data: dict[Value, None]
) -> None:
    pairs = list(zip(equation.operands, view.operands, strict=True))
    weights = [entry for value, entry in pairs if value not in data]
    others = [entry for value, entry in pairs if value in data]
    is_contracted = _numbered(others) and not _numbered(view.results)
    role = roles.consumes if is_contracted else roles.produces
    for unknown in _numbered(weights):
        role.update(origins.leaves.get(unknown, {}))
        if equation.primitive in ("mul", "div"):
            roots = origins.roots.get(unknown, {})
            roles.variances.extend((root, other) for root in roots for other in _numbered(others))


def _pass_on(equation: Equation, view: View, origins: _Origins, shifted: dict[int, None]) -> None:
    for result in _numbered(view.results):
        for operand in _numbered(view.operands):
            leaves = origins.leaves.get(operand, {})
            origins.leaves.setdefault(result, {}).update(leaves)
            roots = dict(origins.roots.get(operand, {}))
            if equation.primitive in ROOTS:
                roots |= {unknown: None for unknown in leaves if unknown in shifted}
            origins.roots.setdefault(result, {}).update(roots)


def _numbered(entries: list[Entry] | tuple[Entry, ...]) -> list[int]:
    return [entry for entry in entries if entry is not None and entry != CONSTANT]
