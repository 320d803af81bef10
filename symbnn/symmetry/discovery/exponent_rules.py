"""What each primitive does to scales and signs, said for one index at a time.

A relation gets the exponents that operands and results have along one index and returns the forms that must
vanish. A primitive has two relations: for positive factors (over the rationals) and for signs (over GF(2)).
Anything not in the table forces exponents to zero.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from symbnn.symmetry.discovery.linear import ZERO, Form, combine
from symbnn.symmetry.program import Equation

MAX_DENOMINATOR = 64
"""Powers that a network takes are halves, thirds and the like."""


class Exponents(NamedTuple):
    """Exponents along one index. None: the value does not have this index, or satisfies every equality."""

    equation: Equation
    operands: tuple[Form | None, ...]
    results: tuple[Form | None, ...]
    numbers: tuple[float | None, ...]
    """The number an operand is known to hold everywhere."""


Relation = Callable[[Exponents], list[Form]]


def zero(exponents: Exponents) -> list[Form]:
    """Nothing may be rescaled."""
    return _unchanged((*exponents.operands, *exponents.results))


def equal(exponents: Exponents) -> list[Form]:
    """All values transform alike. Zero has every exponent."""
    return _differences(_not(exponents, lambda number: number == 0))


def equal_unless_infinite(exponents: Exponents) -> list[Form]:
    """As `equal`; a positive factor also fixes ±inf, and NaN marks values that do not matter."""
    return _differences(_not(exponents, lambda number: number == 0 or not math.isfinite(number)))


def equal_ignoring_constants(exponents: Exponents) -> list[Form]:
    """As `equal`, among values that are not known: a shifted leaf, u = leaf + ε."""
    return _differences(_not(exponents, lambda number: True))


def parallel(exponents: Exponents) -> list[Form]:
    """Operand k transforms like result k."""
    pairs = zip(exponents.operands, exponents.results, strict=True)
    return [form for pair in pairs for form in _differences([f for f in pair if f is not None])]


def product(exponents: Exponents) -> list[Form]:
    """Exponents add; along a contracted index they cancel."""
    terms = [(1, form) for form in exponents.operands if form is not None]
    return [combine(*terms, *((-1, form) for form in exponents.results if form is not None))]


def quotient(exponents: Exponents) -> list[Form]:
    """Exponents subtract."""
    numerator, denominator = (form or ZERO for form in exponents.operands)
    return [combine((1, numerator), (-1, denominator), (-1, exponents.results[0] or ZERO))]


def power(exponent: Fraction) -> Relation:
    """(s x)^k = s^k x^k."""

    return lambda exponents: _raised(exponents, exponent)


def integer_power(exponents: Exponents) -> list[Form]:
    """`integer_pow` by its parameter."""
    return _raised(exponents, Fraction(exponents.equation.params["y"]))


def known_power(exponents: Exponents) -> list[Form]:
    """`pow` with an exponent that is one known number."""
    exponent = exponents.numbers[1]
    if exponent is None or not math.isfinite(exponent):
        return zero(exponents)
    return _raised(exponents, exact_fraction(exponent, exponents.equation.operands[1].dtype))


def exact_fraction(number: float, dtype: Any) -> Fraction:
    """The simplest fraction that the type rounds to the number; else the number as it is written."""
    rounded = np.asarray(number).astype(dtype)
    for denominator in range(1, MAX_DENOMINATOR + 1):
        fraction = Fraction(round(number * denominator), denominator)
        if np.asarray(float(fraction)).astype(dtype) == rounded:
            return fraction
    return Fraction(str(number))


def forget(exponents: Exponents) -> list[Form]:
    """The result does not change, whatever happens to the operand."""
    return _unchanged(exponents.results)


def compare(exponents: Exponents) -> list[Form]:
    """Operands that transform alike compare alike; the result does not change."""
    return _differences(_kept(exponents, lambda number: number == 0)) + forget(exponents)


def compare_unless_infinite(exponents: Exponents) -> list[Form]:
    """As `compare`, and a positive factor fixes ±inf."""
    kept = _kept(exponents, lambda number: number == 0 or not math.isfinite(number))
    return _differences(kept) + forget(exponents)


def clamp_sign(exponents: Exponents) -> list[Form]:
    """Between opposite numbers it is an odd function."""
    low, _, high = exponents.numbers
    is_odd = low is not None and high is not None and low == -high
    return equal(_some(exponents, slice(1, 2))) if is_odd else zero(exponents)


def select(exponents: Exponents) -> list[Form]:
    """The predicate does not change; the cases transform alike."""
    return _unchanged(exponents.operands[:1]) + equal_unless_infinite(_some(exponents, slice(1, None)))


def select_sign(exponents: Exponents) -> list[Form]:
    """As `select`; NaN has no sign, ±inf does."""
    kept = _not(_some(exponents, slice(1, None)), lambda number: number == 0 or math.isnan(number))
    return _unchanged(exponents.operands[:1]) + _differences(kept)


def first_operands(count: int) -> Relation:
    """The first operands and the results transform alike, the rest (indices) do not change."""

    return lambda exponents: _unchanged(exponents.operands[count:]) + equal(_some(exponents, slice(count)))


def gathered(exponents: Exponents) -> list[Form]:
    """Rows of the first operand, unless rows out of bounds are filled with a number of their own."""
    fill = exponents.equation.params.get("fill_value")
    is_own = fill is not None and fill == fill and fill != 0
    return zero(exponents) if is_own else first_operands(1)(exponents)


def scattered(exponents: Exponents) -> list[Form]:
    """What is there and what is put or added there transform alike; indices do not change."""
    return _unchanged(exponents.operands[1:2]) + equal(_some(exponents, slice(None, None, 2)))


def scattered_in_order(exponents: Exponents) -> list[Form]:
    """As `scattered`, where the larger or smaller one stays."""
    here = _some(exponents, slice(None, None, 2))
    return _unchanged(exponents.operands[1:2]) + equal_unless_infinite(here)


def convert(exponents: Exponents) -> list[Form]:
    """Between floating point types a value passes; integers and booleans do not rescale.

    Nor do types of eight bits: there rounding is as large as the values, which makes it quantisation.
    """
    values = (*exponents.equation.operands, *exponents.equation.results)
    passes = all(value.is_float and value.dtype.itemsize > 1 for value in values)
    return equal(exponents) if passes else zero(exponents)


def _some(exponents: Exponents, which: slice) -> Exponents:
    """As if the primitive had only some of its operands."""
    return exponents._replace(operands=exponents.operands[which], numbers=exponents.numbers[which])


def _unchanged(forms: tuple[Form | None, ...]) -> list[Form]:
    return [form for form in forms if form]


def _raised(exponents: Exponents, exponent: Fraction) -> list[Form]:
    return [combine((exponent, exponents.operands[0] or ZERO), (-1, exponents.results[0] or ZERO))]


def _not(exponents: Exponents, is_wild: Callable[[float], bool]) -> list[Form]:
    return _kept(exponents, is_wild) + [form for form in exponents.results if form is not None]


def _kept(exponents: Exponents, is_wild: Callable[[float], bool]) -> list[Form]:
    pairs = zip(exponents.operands, exponents.numbers, strict=True)
    return [form for form, number in pairs if form is not None and (number is None or not is_wild(number))]


def _differences(forms: list[Form]) -> list[Form]:
    return [combine((1, form), (-1, forms[0])) for form in forms[1:]]


LINEAR = (
    *("add", "sub", "add_any", "neg", "copy", "copy_p", "stop_gradient", "name", "rev", "device_put"),
    *("sharding_constraint", "real", "imag", "conj", "complex", "link", "link_init", "scan_x"),
    *("scan_y", "concatenate", "split", "slice", "pad", "tile", "stack", "unstack", "transpose"),
    *("squeeze", "expand_dims", "broadcast_in_dim", "reshape", "reduce_sum", "reduce_window_sum"),
    *("cumsum", "psum", "psum_invariant", "pvary", "shard_x", "shard_y", "fft"),
)
ORDER = (
    *("max", "min", "reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min"),
    *("cummax", "cummin", "pmax", "pmin"),
)
ODD = ("tanh", "sin", "tan", "atan", "asinh", "sinh", "erf", "asin", "atanh", "erf_inv")
EVEN = ("cos", "cosh")

EXPONENT_RULES: dict[str, tuple[Relation, Relation]] = {
    **dict.fromkeys(LINEAR, (equal, equal)),
    **dict.fromkeys(ORDER, (equal_unless_infinite, zero)),
    **dict.fromkeys(ODD, (zero, equal)),
    **dict.fromkeys(EVEN, (zero, forget)),
    **dict.fromkeys(("mul", "dot_general", "conv_general_dilated", "ragged_dot_general"), (product, product)),
    **dict.fromkeys(("lt", "le", "gt", "ge"), (compare_unless_infinite, zero)),
    **dict.fromkeys(("eq", "ne"), (compare_unless_infinite, compare)),
    **dict.fromkeys(("select_n", "phi"), (select, select_sign)),
    "gather": (gathered, gathered),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter-sub"), (scattered, scattered)),
    **dict.fromkeys(("scatter-max", "scatter-min"), (scattered_in_order, zero)),
    "dynamic_slice": (first_operands(1), first_operands(1)),
    "dynamic_update_slice": (first_operands(2), first_operands(2)),
    "clamp": (equal_unless_infinite, clamp_sign),
    "div": (quotient, product),
    "reduce_precision": (zero, equal),
    "abs": (equal, forget),
    "sign": (forget, equal),
    "is_finite": (forget, forget),
    "convert_element_type": (convert, convert),
    "optimization_barrier": (parallel, parallel),
    "sort": (parallel, zero),
    "square": (power(Fraction(2)), power(Fraction(2))),
    "integer_pow": (integer_power, integer_power),
    "pow": (known_power, zero),
    "sqrt": (power(Fraction(1, 2)), zero),
    "rsqrt": (power(Fraction(-1, 2)), zero),
    "cbrt": (power(Fraction(1, 3)), equal),
}
"""Relations for positive factors and for signs, by primitive."""
