"""Scalars that count the iterations of a loop: `fori_loop` hands its body one, and `w[i]` reads by it.

An array that is indexed by the number of the iteration is scanned in all but name. What is computed from the
counter alone is known for every iteration, however the index is made ready for use.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "lt": np.less,
    "ge": np.greater_equal,
    "select_n": lambda which, no, yes: np.where(which, yes, no),
    "convert_element_type": lambda number: number,
}


def counting(body: ClosedJaxpr, num_constants: int, number: int) -> bool:
    """Whether the loop's body adds one to a carry, and that is all that happens to it."""
    entering, leaving = body.jaxpr.invars[num_constants + number], body.jaxpr.outvars[number]
    return any(
        equation.primitive.name == "add"
        and equation.outvars[0] is leaving
        and any(atom is entering for atom in equation.invars)
        and any(isinstance(atom, Literal) and atom.val == 1 for atom in equation.invars)
        for equation in body.jaxpr.eqns
    )


def computed(primitive: str, numbers: Sequence[Any]) -> np.ndarray | None:
    """The results of all iterations; None where that is not known."""
    is_known = primitive in ARITHMETIC and all(number is not None for number in numbers)
    return ARITHMETIC[primitive](*numbers) if is_known else None
