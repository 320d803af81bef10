"""Linear equations between unknown exponents, over the rationals and over GF(2).

Equations arrive one by one. Each is solved for its unknown of highest rank, so the unknowns of lowest rank
stay free and span the solutions: each free unknown is a generator.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Form = Mapping[int, Fraction]
"""Coefficients of unknowns; over GF(2) they are 1."""

ZERO: Form = {}


class System:
    """Equations solved so far. `modulus` 2 makes it a system over GF(2)."""

    def __init__(self, ranks: Mapping[int, int], *, modulus: int | None = None) -> None:
        self._ranks = ranks
        self._modulus = modulus
        self._solved: dict[int, dict[int, Fraction]] = {}
        self.zeroed: dict[int, Any] = {}
        """Ranked unknowns that turned out to be zero by themselves, with the reason given; in order."""

    def vanish(self, form: Form, reason: Any = None) -> None:
        """Add the equation form = 0."""
        reduced = self.reduce(form)
        if not reduced:
            return
        pivot = max(
            reduced, key=lambda unknown: (unknown not in self._ranks, self._ranks.get(unknown, unknown))
        )
        if len(reduced) == 1 and pivot in self._ranks:
            self.zeroed[pivot] = reason
        coefficient = reduced.pop(pivot)
        self._solved[pivot] = self._clean({u: -c / coefficient for u, c in reduced.items()})

    def reduce(self, form: Form) -> dict[int, Fraction]:
        """The form in free unknowns."""
        result: dict[int, Fraction] = {}
        for unknown, coefficient in form.items():
            for inner, factor in self._solution(unknown).items():
                result[inner] = result.get(inner, Fraction(0)) + coefficient * factor
        return self._clean(result)

    def _solution(self, unknown: int) -> dict[int, Fraction]:
        if unknown not in self._solved:
            return {unknown: Fraction(1)}
        solution = self._solved[unknown]
        if any(inner in self._solved for inner in solution):
            solution = self._solved[unknown] = self.reduce(solution)
        return solution

    def _clean(self, form: dict[int, Fraction]) -> dict[int, Fraction]:
        if self._modulus is None:
            return {unknown: value for unknown, value in form.items() if value}
        return {unknown: Fraction(1) for unknown, value in form.items() if value % self._modulus}


def combine(*terms: tuple[Fraction | int, Form]) -> Form:
    """Linear combination of forms."""
    result: dict[int, Fraction] = {}
    for factor, form in terms:
        for unknown, coefficient in form.items():
            result[unknown] = result.get(unknown, Fraction(0)) + factor * coefficient
    return result


def independent(
    vectors: Iterable[Sequence[Fraction]], modulo: Iterable[Sequence[Fraction]], *, modulus: int | None = None
) -> list[Sequence[Fraction]]:
    """Those vectors that are independent of `modulo` and of the vectors kept before them."""
    rows: list[tuple[int, list[Fraction]]] = []

    def remainder(vector: Sequence[Fraction]) -> list[Fraction]:
        rest = [_reduced(value, modulus) for value in vector]
        for pivot, row in rows:
            if rest[pivot]:
                factor = rest[pivot] / row[pivot]
                rest = [_reduced(a - factor * b, modulus) for a, b in zip(rest, row, strict=True)]
        return rest

    def adds(vector: Sequence[Fraction]) -> bool:
        rest = remainder(vector)
        pivot = next((number for number, value in enumerate(rest) if value), None)
        if pivot is not None:
            rows.append((pivot, rest))
        return pivot is not None

    for vector in modulo:
        adds(vector)
    return [vector for vector in vectors if adds(vector)]


def _reduced(value: Fraction, modulus: int | None) -> Fraction:
    return value if modulus is None else value % modulus
