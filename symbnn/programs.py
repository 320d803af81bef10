"""Questions to the program of a function (its jaxpr): what it calls, whether it convolves, how long it is.

And how to run its equations one by one, or to compile one that convolves.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Literal

KEPT_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Compiler options, for CPUs only, with which an `optimization_barrier` also parts what would be fused."""


def programs_in(equation: Any) -> list[Any]:
    """The jaxprs that an equation calls."""
    leaves = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns"))
    return [leaf for leaf in leaves if hasattr(leaf, "eqns")]


def has_convolution(program: Any) -> bool:
    """Whether a jaxpr convolves, itself or in what it calls."""
    return any(
        equation.primitive.name == "conv_general_dilated" or any(map(has_convolution, programs_in(equation)))
        for equation in program.eqns
    )


def operations(program: Any, counts: Callable[[Any], bool] = lambda equation: True) -> float:
    """Multiplications and additions of matrix products and convolutions, of a jaxpr and of what it calls.

    Of those equations only that `counts` takes.
    """
    return float(sum(_operations(equation, counts) for equation in program.eqns))


def is_tall_product(equation: Any) -> bool:
    """Whether an equation multiplies matrices to one with more rows than columns."""
    shape = equation.outvars[0].aval.shape
    return equation.primitive.name == "dot_general" and len(shape) == 2 and shape[0] > shape[1]


def _operations(equation: Any, counts: Callable[[Any], bool]) -> float:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        sizes = equation.invars[0].aval.shape
        number = 2.0 * equation.outvars[0].aval.size * math.prod(sizes[axis] for axis in contracted)
        return number if counts(equation) else 0.0
    if equation.primitive.name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        # An output sums over the kernel of its feature: the places, and the inputs of its group.
        num_features = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
        number = 2.0 * equation.outvars[0].aval.size * kernel.size / num_features
        return number if counts(equation) else 0.0
    inside = sum(operations(program, counts) for program in programs_in(equation))
    # A loop of unknown length counts once.
    return equation.params.get("length", 1) * inside


Bind = Callable[[JaxprEqn, Sequence[Any]], Sequence[Any]]
"""Results of an equation for values of its inputs."""


def bind(equation: JaxprEqn, inputs: Iterable[Any]) -> Sequence[Any]:
    """Results of one equation for arrays."""
    params = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*inputs, **params)
    return results if equation.primitive.multiple_results else [results]


def run(
    equations: Sequence[JaxprEqn], known: Mapping[Any, Any], wanted: Sequence[Any], bind: Bind = bind
) -> list[Any]:
    """Values of the wanted variables, by the equations, from the known ones."""
    values = dict(known)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in equations:
        values.update(zip(equation.outvars, bind(equation, [*map(read, equation.invars)]), strict=True))
    return [read(atom) for atom in wanted]
