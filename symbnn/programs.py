"""Questions to the program of a function (its jaxpr): what it calls, and whether it convolves."""

from typing import Any

import jax


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
