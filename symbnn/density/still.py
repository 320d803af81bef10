"""What depends on no weight is computed once for all chunks of the data, before any of them.

XLA takes what never changes out of a loop, but not out of a loop over chunks, as every chunk is another. A
perceptron that turns its examples round (`models.mlp`) did so at every gradient: half of the time of 64-32-10
on 64,000 points.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, Var

from symbnn.programs import run

LEAST, MOST = 0.5, 2
"""Times the memory of the data that what is computed before may take: images turned round, but no patches of
them, which are many times as large; and not labels compared with classes, which are compared anew as fast."""

Function = Callable[[Any, Any], Any]
"""(params, data) -> anything."""


def prepared(function: Function, params: Any, chunks: Any) -> tuple[Function, Any]:
    """The function of what moves with the weights, and its data: chunks with what does not, computed.

    As they were where that would bring little, or take too much memory.
    """
    one = jax.tree.map(lambda array: array[0], chunks)
    program, shapes = jax.make_jaxpr(function, return_shape=True)(params, one)
    jaxpr, num_params = program.jaxpr, len(jax.tree.leaves(params))
    still, moving = _parted(jaxpr, jaxpr.invars[:num_params])
    known = {variable for equation in still for variable in equation.outvars}
    read = [variable for equation in moving for variable in equation.invars] + list(jaxpr.outvars)
    wanted = list(dict.fromkeys(v for v in read if isinstance(v, Var) and v in known))
    kept, data = (sum(map(_bytes, each)) for each in (wanted, jaxpr.invars[num_params:]))
    if not LEAST * data <= kept <= MOST * data:
        return function, chunks
    constants = dict(zip(jaxpr.constvars, program.consts, strict=True))

    def before(data: Any) -> list[Any]:
        given = dict(zip(jaxpr.invars[num_params:], jax.tree.leaves(data), strict=True))
        return run(still, constants | given, wanted)

    def after(params: Any, given: tuple[Any, list[Any]]) -> Any:
        data, found = given
        leaves = [*jax.tree.leaves(params), *jax.tree.leaves(data), *found]
        known = constants | dict(zip([*jaxpr.invars, *wanted], leaves, strict=True))
        return jax.tree.unflatten(jax.tree.structure(shapes), run(moving, known, jaxpr.outvars))

    return after, (chunks, jax.lax.optimization_barrier(jax.vmap(before)(chunks)))


def _parted(jaxpr: Jaxpr, weights: Sequence[Var]) -> tuple[list[Any], list[Any]]:
    """Equations that depend on none of the weights, and the others."""
    moves = set(weights)
    still, moving = list[Any](), list[Any]()
    for equation in jaxpr.eqns:
        is_moving = any(isinstance(v, Var) and v in moves for v in equation.invars)
        moves.update(equation.outvars if is_moving else ())
        (moving if is_moving else still).append(equation)
    return still, moving


def _bytes(variable: Any) -> int:
    return variable.aval.size * variable.aval.dtype.itemsize
