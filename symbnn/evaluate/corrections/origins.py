"""What the values of a program come from: from data, or from weights alone, and then from which leaves."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from symbnn.symmetry.program import Equation, Program, Value

VIEWS = {
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "convert_element_type"),
    *("copy", "copy_p", "stop_gradient", "slice", "rev", "reduce_precision"),
}
"""What only moves and repeats numbers."""
ROOTS = {"rsqrt", "sqrt", "pow"}

Spread = Callable[[jax.Array], jax.Array]
"""A linear map that only repeats and moves numbers: from an array like a leaf to one like a value."""


Path = tuple[tuple[Equation, Value], ...]
"""Equations from a leaf on, each with the operand that holds the leaf."""


@dataclass
class Origins:
    """Origins of the values of `program`, whose leaves have `names`."""

    program: Program
    names: dict[Value, str]
    data: set[Value] = field(default_factory=set)
    """Values that depend on the inputs."""
    leaves: dict[Value, frozenset[str]] = field(default_factory=dict)
    """Leaves that a value made of weights alone comes from."""
    rooted: dict[Value, frozenset[str]] = field(default_factory=dict)
    """Those of them that lie under a root."""
    made_by: dict[Value, Equation] = field(default_factory=dict)
    meets: dict[str, set[Equation]] = field(default_factory=dict)
    """The equations in which a leaf, or what is made of it, meets data."""

    def __post_init__(self) -> None:
        self.data.update(value for value in self.program.inputs if value not in self.names)
        self.leaves.update({value: frozenset({name}) for value, name in self.names.items()})
        for equation in self.program.equations:
            self.made_by.update(dict.fromkeys(equation.results, equation))
            leaves = [self.of(value) for value in equation.operands]
            if any(value in self.data for value in equation.operands):
                self.data.update(equation.results)
                for name in frozenset[str]().union(*leaves):
                    self.meets.setdefault(name, set()).add(equation)
                continue
            below = [self.rooted.get(value, frozenset()) for value in equation.operands]
            roots = leaves if equation.primitive in ROOTS else below
            self.leaves.update(dict.fromkeys(equation.results, frozenset[str]().union(*leaves)))
            self.rooted.update(dict.fromkeys(equation.results, frozenset[str]().union(*roots)))

    def of(self, value: Value) -> frozenset[str]:
        """Leaves of a value made of weights alone."""
        return self.leaves.get(value, frozenset())

    def other(self, equation: Equation) -> Value | None:
        """What meets the data in an equation of one datum; None if nothing does."""
        return next((value for value in equation.operands if value not in self.data), None)

    def leaves_of(self, equation: Equation) -> frozenset[str]:
        """Leaves of what meets the data in an equation."""
        other = self.other(equation)
        return frozenset() if other is None else self.of(other)

    def is_own(self, leaf: str, equations: tuple[Equation, ...]) -> bool:
        """Whether the leaf meets data nowhere else."""
        return self.meets[leaf] <= {*equations}

    def size_of(self, leaf: str) -> int:
        """Number of elements of a leaf."""
        return next(value.size for value, name in self.names.items() if name == leaf)

    def path(self, value: Value, leaf: str, through: set[str]) -> Path | None:
        """The one way from `leaf` to `value`, if views and the operations `through` lead there."""
        if self.names.get(value) == leaf:
            return ()
        equation = self.made_by.get(value)
        if equation is None or equation.primitive not in VIEWS | through:
            return None
        having = [operand for operand in equation.operands if leaf in self.of(operand)]
        path = self.path(having[0], leaf, through) if len(having) == 1 else None
        return None if path is None else (*path, (equation, having[0]))


def is_added(path: Path) -> bool:
    """Whether the leaf of a path of views and sums counts with its own sign."""
    return all(equation.primitive != "sub" or equation.operands[0] is value for equation, value in path)


def spread_along(path: Path, shape: tuple[int, ...]) -> Spread:
    """How the leaf of a path lies in an array of that shape, other operands left out."""

    def spread(array: jax.Array) -> jax.Array:
        for equation, _ in path:
            if equation.primitive in VIEWS:
                assert equation.evaluate is not None
                array = equation.evaluate(array)[0]
            else:
                array = jnp.broadcast_to(array, equation.results[0].shape)
        return jnp.broadcast_to(array, shape)

    return spread
