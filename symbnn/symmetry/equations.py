"""What a flat program is made of: values, and equations between them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np


@dataclass(eq=False)
class Loop:
    """The scanned axis of one scan, or an axis of a mesh of devices.

    It is fixed when iterations depend on each other through a carry, and for devices, which have names.
    """

    length: int
    is_ordered: bool


@dataclass(eq=False)
class Value:
    """An array in the program; `loops` are those whose every iteration has its own."""

    shape: tuple[int, ...]
    dtype: Any
    loops: tuple[Loop, ...] = ()
    constant: Any = None
    """The array of a constant, as NumPy; None for everything else."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it holds real or complex numbers, which may be rescaled."""
        return bool(jax.numpy.issubdtype(self.dtype, jax.numpy.inexact))


@dataclass(eq=False)
class Equation:
    """One primitive applied to values. `is_used` tells which results anything depends on."""

    primitive: str
    params: dict[str, Any]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    where: tuple[Any, ...] = ()
    """Source information, innermost first."""
    is_used: tuple[bool, ...] = ()
    evaluate: Callable[..., list[Any]] | None = None
    """Arrays of the operands to arrays of the results; None for a pseudo-equation."""


class Program(NamedTuple):
    """Straight-line program; equations that no output depends on are gone."""

    equations: list[Equation]
    inputs: list[Value]
    outputs: list[Value]

    def readers(self) -> dict[Value, list[Equation]]:
        """The equations that read a value, for every value that is read."""
        readers: dict[Value, list[Equation]] = {}
        for equation in self.equations:
            for value in dict.fromkeys(equation.operands):
                readers.setdefault(value, []).append(equation)
        return readers


def constant(array: Any) -> Value:
    """A value for an array that is part of the program."""
    dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    if jax.numpy.issubdtype(dtype, jax.dtypes.extended):
        # Random keys have no NumPy form; nothing about their positions is known.
        return Value(tuple(array.shape), dtype, constant=_distinct(array.shape))
    array = np.asarray(array)
    return Value(array.shape, array.dtype, constant=array)


def live(equations: list[Equation], outputs: list[Value]) -> list[Equation]:
    """The equations that an output depends on; links make it a fixpoint."""
    needed = dict.fromkeys(outputs)
    count = -1
    while count != len(needed):
        count = len(needed)
        for equation in reversed(equations):
            if any(value in needed for value in equation.results):
                needed.update(dict.fromkeys(equation.operands))
    live = [equation for equation in equations if any(value in needed for value in equation.results)]
    for equation in live:
        equation.is_used = tuple(value in needed for value in equation.results)
    return live


def _distinct(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape, dtype=np.int64)).reshape(shape)
