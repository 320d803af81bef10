"""Which values are known: arrays that hold one number everywhere, whatever the weights are.

A uniform value is fixed by every relabelling, so it constrains none. Zero matters most: it has every
exponent, which is why max(x, 0), zero padding and zero initial states allow rescaling. Positive factors also
fix ±inf.
"""

import math
from collections.abc import Callable

import numpy as np

from symbnn.symmetry.program import Equation, Program, Value

PASS = {
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "copy", "stop_gradient"),
    *("slice", "rev", "tile", "unstack", "scan_x", "scan_y", "device_put", "sharding_constraint"),
    *("name", "dynamic_slice", "reduce_max", "reduce_min", "pvary", "shard_x", "shard_y"),
}
"""One number in, the same number out."""

ARITHMETIC: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "add_any": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
    "neg": lambda a: -a,
    "abs": abs,
    "square": lambda a: a * a,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
}
"""On finite numbers; where Python raises, nothing is known."""

ZERO_IF_ANY_IS = {"mul", "dot_general", "conv_general_dilated", "ragged_dot_general"}
ZERO_IF_ALL_ARE = {
    *("concatenate", "pad", "reduce_sum", "reduce_window_sum", "cumsum", "select_n", "phi", "stack"),
    *("reduce_precision", "dynamic_update_slice", "sin", "tanh", "tan", "sqrt", "sign", "expm1"),
    *("log1p", "erf", "sort", "real", "imag", "conj", "complex", "fft", "psum", "psum_invariant"),
}


def find_known_values(program: Program, held: dict[Value, float] | None = None) -> dict[Value, float]:
    """The number that a value holds everywhere, for every value of which that is known, as of `held` ones."""
    known: dict[Value, float] = dict(held or {})
    for equation in program.equations:
        for value in equation.operands:
            if value.constant is not None and value not in known:
                number = uniform_number(value.constant)
                if number is not None:
                    known[value] = number
        number = _result(equation, known)
        if number is not None:
            known.update(dict.fromkeys(equation.results, number))
    return known


def uniform_number(array: np.ndarray) -> float | None:
    """The number an array holds everywhere, or None."""
    if array.dtype.kind == "c":
        return uniform_number(array.real) if array.size and not array.imag.any() else None
    # bfloat16 and its like have kind "V" in NumPy, but compare and convert as numbers do.
    is_real = array.dtype.kind in "biuf" or "float" in array.dtype.name
    if not array.size or not is_real:
        return None
    first = array.reshape(-1)[0]
    is_uniform = bool((array == first).all()) or bool((array != array).all())
    if not is_uniform:
        return None
    # The shortest decimal that rounds to it: what the author wrote, in whatever precision it was traced.
    return float(first if array.dtype.kind in "biu" else str(first))


def uniform_axes(array: np.ndarray) -> tuple[bool, ...]:
    """Per axis, whether the array is constant along it."""
    return tuple(
        bool((array == np.take(array, [0], axis=axis)).all()) if array.size else True
        for axis in range(array.ndim)
    )


def equal_runs(array: np.ndarray, axis: int) -> list[int]:
    """Lengths of the runs of neighbours along an axis that are equal: a mask with blocks has few."""
    moved = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    borders = np.flatnonzero((moved[1:] != moved[:-1]).any(1)) + 1
    return np.diff([0, *borders, len(moved)]).tolist()


def period(array: np.ndarray, axis: int) -> int:
    """After how many positions an array repeats along an axis; its length where it does not."""
    moved = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    length = len(moved)
    again = [step for step in range(1, length // 2 + 1) if length % step == 0]
    # The first row is compared before the rest: most arrays are told by it.
    return next(
        (step for step in again if (moved[0] == moved[step]).all() and (moved[step:] == moved[:-step]).all()),
        length,
    )


def _result(equation: Equation, known: dict[Value, float]) -> float | None:
    name = equation.primitive
    if name in ("link", "link_init") or not equation.operands:
        return None
    numbers = [known.get(value) for value in equation.operands]
    if name in PASS:
        return numbers[0]
    if name == "convert_element_type":
        return _converted(numbers[0], equation.results[0])
    if name in ZERO_IF_ANY_IS and any(number == 0 for number in numbers):
        return 0.0
    if name in ("select_n", "phi"):
        numbers = numbers[1:]
    if any(number is None for number in numbers):
        return None
    if name in ARITHMETIC and equation.results[0].is_float:
        return _computed(name, numbers)  # type: ignore[arg-type]
    if name in ZERO_IF_ALL_ARE and all(number == 0 for number in numbers):
        return 0.0
    return None


def _converted(number: float | None, result: Value) -> float | None:
    """Rounding, wrapping and truth values change numbers; 0 and 1 survive them all."""
    return number if result.is_float or number in (0.0, 1.0) else None


def _computed(name: str, numbers: list[float]) -> float | None:
    if not all(map(math.isfinite, numbers)):
        return None
    try:
        number = ARITHMETIC[name](*numbers)
    except (ArithmeticError, ValueError):
        return None
    return number if math.isfinite(number) else None
