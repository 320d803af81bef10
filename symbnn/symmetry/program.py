"""A jaxpr as a straight-line program: calls inlined, loops and branches turned into links between values.

Every call is walked afresh, so a layer that is called twice is described twice. A loop body is walked once:
`link` says that what leaves an iteration and what enters the next transform alike, which replaces a fixpoint.
`scan_x` and `scan_y` take the scanned axis off a value and put it back; `shard_x` and `shard_y` do so for the
part of an axis that a mesh of devices shares out. Reading a constant makes a new value
each time, so two layers that share a mask of ones do not become one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

BODY_OF_CALL = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
LOOPS = {"scan", "while", "cond", "shard_map"}
OVER_DEVICES = {"psum", "psum_invariant", "pmax", "pmin"}
"""Reductions over named axes of a mesh: every device has the same result."""


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
        return int(np.prod(self.shape, dtype=np.int64))

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


def flatten(closed: ClosedJaxpr, *, walks_loops: bool = True) -> Program:
    """The program of a traced function; where loops are left whole, every equation can be evaluated."""
    walker = _Walker(walks_loops)
    inputs = [_value(variable.aval, ()) for variable in closed.jaxpr.invars]
    outputs = walker.call(closed, inputs, ())
    return Program(live(walker.equations, outputs), inputs, outputs)


def constant(array: Any) -> Value:
    """A value for an array that is part of the program."""
    dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    if jax.numpy.issubdtype(dtype, jax.dtypes.extended):
        # Random keys have no NumPy form; nothing about their positions is known.
        return Value(tuple(array.shape), dtype, constant=_distinct(array.shape))
    array = np.asarray(array)
    return Value(array.shape, array.dtype, constant=array)


@dataclass
class _Walker:
    walks_loops: bool
    equations: list[Equation] = field(default_factory=list)
    devices: dict[str, Loop] = field(default_factory=dict)
    """Axes of the meshes that the walk is inside of, by name."""
    callers: tuple[Any, ...] = ()
    """Where the calls are that the walk is inside of, innermost first."""

    def call(
        self, body: ClosedJaxpr | Jaxpr, arguments: Sequence[Value], loops: tuple[Loop, ...]
    ) -> list[Value]:
        jaxpr, constants = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, [])
        arrays = dict(zip(jaxpr.constvars, constants, strict=True))
        known = dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, Literal):
                return constant(atom.val)
            return constant(arrays[atom]) if atom in arrays else known[atom]

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            results = self.equation(equation, operands, loops)
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        if name in BODY_OF_CALL and BODY_OF_CALL[name] in params:
            outside, self.callers = self.callers, self.where(equation)
            results = self.call(params[BODY_OF_CALL[name]], operands, loops)
            self.callers = outside
            return results
        if name in LOOPS and not self.walks_loops:
            return self.plain(equation, operands, loops)
        if name == "scan":
            return self.scan(equation, operands, loops)
        if name == "while":
            return self.while_loop(equation, operands, loops)
        if name == "shard_map":
            return self.shard_map(equation, operands, loops)
        if name == "cond":
            branches = [self.call(branch, operands[1:], loops) for branch in params["branches"]]
            return [
                self.emit("phi", (operands[0], *cases), _value(cases[-1], loops), equation)
                for cases in zip(*branches, strict=True)
            ]
        return self.plain(equation, operands, loops)

    def where(self, equation: Any) -> tuple[Any, ...]:
        """Source information of an equation and of the calls it is in: a cached function has only those."""
        return (equation.source_info, *self.callers)

    def plain(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value]:
        """An equation as it is."""
        primitive, params = equation.primitive, equation.params
        if primitive.name in OVER_DEVICES:
            reduced = [self.devices[name] for name in params["axes"] if name in self.devices]
            loops = tuple(loop for loop in loops if loop not in reduced)
        results = [_value(variable.aval, loops) for variable in equation.outvars]

        def evaluate(*arrays: Any) -> list[Any]:
            found = primitive.bind(*arrays, **primitive.get_bind_params(params))
            return list(found) if primitive.multiple_results else [found]

        self.equations.append(
            Equation(
                primitive.name,
                params,
                tuple(operands),
                tuple(results),
                self.where(equation),
                evaluate=evaluate,
            )
        )
        return results

    def emit(
        self, name: str, operands: tuple[Value, ...], result: Value, equation: Any, **params: Any
    ) -> Value:
        """Append a pseudo-equation that stands for a part of a real one; its result."""
        self.equations.append(Equation(name, params, operands, (result,), self.where(equation)))
        return result

    def scan(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value]:
        params = equation.params
        num_constants, num_carry = params["num_consts"], params["num_carry"]
        loop = Loop(params["length"], is_ordered=num_carry > 0)
        constants, initial, scanned = _parts(operands, num_constants, num_carry)
        carry = [self.emit("link_init", (value,), _value(value, loops), equation) for value in initial]
        inside = [Value(value.shape[1:], value.dtype, (*loops, loop)) for value in scanned]
        for value, one in zip(scanned, inside, strict=True):
            self.emit("scan_x", (value,), one, equation, loop=loop)
        results = self.call(params["jaxpr"], [*constants, *carry, *inside], (*loops, loop))
        for value, entering in zip(results[:num_carry], carry, strict=True):
            self.emit("link", (value,), entering, equation)
        stacked = [Value((loop.length, *value.shape), value.dtype, loops) for value in results[num_carry:]]
        for value, whole in zip(results[num_carry:], stacked, strict=True):
            self.emit("scan_y", (value,), whole, equation, loop=loop)
        return [*carry, *stacked]

    def shard_map(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value]:
        """The body sees what one device has, so a mesh axis is a loop over devices."""
        params, outside = equation.params, self.devices
        mesh = {name: Loop(size, is_ordered=True) for name, size in params["mesh"].shape.items()}
        inner, body = (*loops, *mesh.values()), params["jaxpr"]
        inside = [
            self.emit("shard_x", (value,), _value(variable.aval, inner), equation, loops=_shared(spec, mesh))
            for value, variable, spec in zip(operands, body.invars, params["in_specs"], strict=True)
        ]
        self.devices = {**outside, **mesh}
        results = self.call(body, inside, inner)
        self.devices = outside
        return [
            self.emit("shard_y", (value,), _value(variable.aval, loops), equation, loops=_shared(spec, mesh))
            for value, variable, spec in zip(results, equation.outvars, params["out_specs"], strict=True)
        ]

    def while_loop(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value]:
        params = equation.params
        condition_constants, body_constants, initial = _parts(
            operands, params["cond_nconsts"], params["body_nconsts"]
        )
        carry = [self.emit("link_init", (value,), _value(value, loops), equation) for value in initial]
        goes_on = self.call(params["cond_jaxpr"], [*condition_constants, *carry], loops)
        leaving = self.call(params["body_jaxpr"], [*body_constants, *carry], loops)
        for value, entering in zip(leaving, carry, strict=True):
            self.emit("link", (value, *goes_on), entering, equation)
        return carry


def _value(aval: Any, loops: tuple[Loop, ...]) -> Value:
    return Value(tuple(aval.shape), aval.dtype, loops)


def _shared(spec: Any, mesh: dict[str, Loop]) -> tuple[tuple[Loop, ...], ...]:
    """Per axis, the mesh axes that share it out, slowest first."""
    names = [() if entry is None else (entry,) if isinstance(entry, str) else entry for entry in spec]
    return tuple(tuple(mesh[name] for name in each) for each in names)


def _distinct(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape, dtype=np.int64)).reshape(shape)


def _parts(values: list[Value], *counts: int) -> list[list[Value]]:
    parts, start = [], 0
    for count in counts:
        parts.append(values[start : start + count])
        start += count
    return [*parts, values[start:]]


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
