"""A jaxpr as a straight-line program: calls inlined, loops and branches turned into links between values.

Every call is walked afresh, so a layer that is called twice is described twice. A loop body is walked once:
`link` says that what leaves an iteration and what enters the next transform alike, which replaces a fixpoint.
`scan_x` and `scan_y` take the scanned axis off a value and put it back; `shard_x` and `shard_y` do so for the
part of an axis that a mesh of devices shares out. Reading a constant makes a new value
each time, so two layers that share a mask of ones do not become one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symbnn.symmetry.counters import computed, counting
from symbnn.symmetry.equations import Equation, Loop, Program, Value, constant, live

__all__ = ["Equation", "Loop", "Program", "Value", "constant", "flatten", "live"]

BODY_OF_CALL = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
LOOPS = {"scan", "while", "cond", "shard_map"}
OVER_DEVICES = {"psum", "psum_invariant", "pmax", "pmin"}
"""Reductions over named axes of a mesh: every device has the same result."""


def flatten(closed: ClosedJaxpr, *, walks_loops: bool = True) -> Program:
    """The program of a traced function; where loops are left whole, every equation can be evaluated."""
    walker = _Walker(walks_loops)
    inputs = [_value(variable.aval, ()) for variable in closed.jaxpr.invars]
    outputs = walker.call(closed, inputs, ())
    return Program(live(walker.equations, outputs), inputs, outputs)


@dataclass
class _Walker:
    walks_loops: bool
    equations: list[Equation] = field(default_factory=list)
    devices: dict[str, Loop] = field(default_factory=dict)
    """Axes of the meshes that the walk is inside of, by name."""
    callers: tuple[Any, ...] = ()
    """Where the calls are that the walk is inside of, innermost first."""
    counts: dict[Value, tuple[Loop, np.ndarray]] = field(default_factory=dict)
    """Scalars that follow from the number of the iteration, for all iterations of their loop."""

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
        if name == "dynamic_slice" and (read := self.indexed(equation, operands, loops)) is not None:
            return read
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
        if self.counts:
            self.count(primitive.name, operands, results[0])

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

    def count(self, name: str, operands: list[Value], result: Value) -> None:
        """Note what is known of a scalar by the number of the iteration."""
        loops = [self.counts[value][0] for value in operands if value in self.counts]
        if not loops or result.shape:
            return
        numbers = [
            value.constant if value not in self.counts else self.counts[value][1] for value in operands
        ]
        if (found := computed(name, numbers)) is not None:
            self.counts[result] = loops[-1], found

    def indexed(self, equation: Any, operands: list[Value], loops: tuple[Loop, ...]) -> list[Value] | None:
        """What an iteration reads of an array by its own number, as if it were scanned; else None."""
        array, start = operands[0], self.counts.get(operands[1])
        result = _value(equation.outvars[0].aval, loops)
        if start is None or not loops or start[0] is not loops[-1] or loops[-1] in array.loops:
            return None
        is_row = result.shape == (1, *array.shape[1:]) and array.shape[:1] == (loops[-1].length,)
        if not is_row or not np.array_equal(start[1], np.arange(loops[-1].length)):
            return None
        inside = Value(array.shape[1:], array.dtype, loops)
        self.emit("scan_x", (array,), inside, equation, loop=loops[-1])
        return [self.emit("expand_dims", (inside,), result, equation, dimensions=(0,))]

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
        for number, (value, start) in enumerate(zip(carry, initial, strict=True)):
            is_zero = start.constant is not None and not start.shape and start.constant == 0
            # Backwards, the first iteration has the last of what is scanned.
            if is_zero and not params["reverse"] and counting(params["jaxpr"], num_constants, number):
                self.counts[value] = loop, np.arange(loop.length)
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


def _parts(values: list[Value], *counts: int) -> list[list[Value]]:
    parts, start = [], 0
    for count in counts:
        parts.append(values[start : start + count])
        start += count
    return [*parts, values[start:]]
