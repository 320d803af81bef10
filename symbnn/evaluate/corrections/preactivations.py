"""Where a network's program makes its pre-activations, and which weights set their mean and their size.

Found in the jaxpr of `apply` in evaluation mode, whatever library the network is written with. A site is a
value made from data (by a matrix product, a convolution, or anything), and the affine chain that follows:
sums, differences, products and quotients with values that depend on weights alone.

    y = (W x − m) / √(v + ε) · g + b

The pre-activation y is what leaves the chain. Of its leaves,

- v is the running variance if it stands under a root that multiplies or divides data, and m of the same
  shape the running mean if it is subtracted before, or taken off later together with that root;
- b is the shift if it is added last, g the gain if it multiplies all but b; without a norm W is the gain;
- a leaf that also meets data elsewhere (tied weights) is none of these: its change would reach further.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from symbnn.evaluate.corrections.norms import PRODUCTS, SUMS, Norm, find_norm
from symbnn.evaluate.corrections.origins import VIEWS, Origins, Spread, is_added, spread_along
from symbnn.symmetry.program import Equation, Program, Value

LINEAR = {"dot_general", "conv_general_dilated"}


@dataclass(frozen=True, eq=False)
class Site:
    """A value made from data, and the affine chain that makes it a pre-activation."""

    start: Value
    chain: tuple[Equation, ...]
    linear: Equation | None = None
    """The matrix product or convolution that makes `start`."""
    weight: str | None = None
    """Its weights, if they are one leaf used nowhere else."""
    weight_spread: Spread | None = None
    norm: Norm | None = None
    gain: str | None = None
    shift: str | None = None
    spread: Spread | None = None
    """How the shift lies in the pre-activation."""
    is_shift_of_units: bool = False
    """Whether the shift has one number for every unit that the weights make."""
    is_output: bool = False

    @property
    def value(self) -> Value:
        """The pre-activation."""
        return self.chain[-1].results[0] if self.chain else self.start

    @property
    def label(self) -> str:
        """A leaf by which a user knows the place."""
        return self.weight or self.gain or self.shift or (self.norm.variance if self.norm else "")

    @property
    def scale(self) -> str | None:
        """The leaf that sets the size of the pre-activation, up to the shift."""
        others = [equation for equation in self.chain if equation.primitive not in VIEWS]
        is_plain = len(others) == (self.shift is not None)
        return self.gain or (self.weight if is_plain and self.is_shift_of_units else None)

    def start_like(self, array: jax.Array) -> jax.Array:
        """An array like the pre-activation, laid out like `start`."""

        def moved(start: jax.Array) -> jax.Array:
            for equation in self.chain:
                if equation.primitive in VIEWS and equation.primitive != "convert_element_type":
                    assert equation.evaluate is not None
                    (start,) = equation.evaluate(start)
            return start

        _, gather = jax.vjp(moved, jnp.zeros(self.start.shape, array.dtype))
        return gather(array)[0]


def find_sites(program: Program, names: dict[Value, str]) -> list[Site]:
    """The sites with weights of their own or with running statistics, input to output.

    Args:
        program: Of the network, with loops left whole.
        names: Of the leaves of the weights.
    """
    return _Finder(program, Origins(program, names), program.readers()).sites()


class _Finder(NamedTuple):
    program: Program
    origins: Origins
    readers: dict[Value, list[Equation]]

    def sites(self) -> list[Site]:
        equations = self.program.equations
        starts = [value for value in self.program.inputs if value in self.origins.data]
        starts += [value for e in equations for value in e.results if value in self.origins.data]
        inside: set[Equation] = set()
        found = []
        for start in starts:
            chains = [self.chain(start, reader) for reader in self.readers.get(start, ())]
            chains = [chain for chain in chains if chain and not inside & {*chain}]
            inside.update(*chains)
            made_by = self.origins.made_by.get(start)
            linear = made_by if made_by is not None and made_by.primitive in LINEAR else None
            if linear is not None and (len(self.readers.get(start, ())) != 1 or not chains):
                found.append(self.site(start, (), linear))
                linear = None
            found += [self.site(start, chain, linear) for chain in chains]
        return [site for site in found if site.weight or site.norm]

    def chain(self, start: Value, first: Equation) -> tuple[Equation, ...]:
        """Affine equations from `start` on, up to the last one in which a leaf takes part."""
        chain: list[Equation] = []
        value, readers = start, [first]
        while len(readers) == 1 and self.is_affine(readers[0], value):
            chain.append(readers[0])
            value = readers[0].results[0]
            readers = [] if value in self.program.outputs else self.readers.get(value, [])
        while chain and not self.origins.leaves_of(chain[-1]):
            chain.pop()
        return tuple(chain)

    def is_affine(self, equation: Equation, value: Value) -> bool:
        """Whether the equation maps `value` by weights alone to something affine in it."""
        if equation.primitive in VIEWS:
            return equation.results[0].size == value.size
        if equation.primitive not in PRODUCTS | SUMS or equation.results[0].shape != value.shape:
            return False
        is_denominator = equation.primitive == "div" and equation.operands[0] is not value
        return not is_denominator and sum(v in self.origins.data for v in equation.operands) == 1

    def site(self, start: Value, chain: tuple[Equation, ...], linear: Equation | None) -> Site:
        end = chain[-1].results[0] if chain else start
        weight, weight_spread = self.weight(linear)
        shift, spread = self.shift(chain)
        return Site(
            start,
            chain,
            linear,
            weight,
            weight_spread,
            find_norm(self.origins, chain),
            self.gain(chain, shift),
            shift,
            spread,
            shift is not None
            and weight is not None
            and self.origins.size_of(shift) == self.num_units(linear),
            self.is_output(end),
        )

    def is_output(self, value: Value) -> bool:
        """Whether a value, or a view of it, is all that the network gives back of it."""
        while value not in self.program.outputs:
            readers = self.readers.get(value, [])
            if len(readers) != 1 or readers[0].primitive not in VIEWS:
                return False
            value = readers[0].results[0]
        return True

    def num_units(self, linear: Equation | None) -> int:
        """Number of units that the weights of a matrix product or convolution make."""
        assert linear is not None
        numbers = linear.params["dimension_numbers"]
        if linear.primitive == "conv_general_dilated":
            return linear.operands[1].shape[numbers.rhs_spec[0]]
        which = next(i for i, value in enumerate(linear.operands) if value not in self.origins.data)
        shape = linear.operands[which].shape
        return math.prod(size for axis, size in enumerate(shape) if axis not in numbers[0][which])

    def weight(self, linear: Equation | None) -> tuple[str | None, Spread | None]:
        weights = None if linear is None else self.origins.other(linear)
        if linear is None or weights is None:
            return None, None
        for leaf in self.origins.of(weights):
            path = self.origins.path(weights, leaf, set())
            is_repeated = weights.size > self.origins.size_of(leaf)
            if path is not None and not is_repeated and self.origins.is_own(leaf, (linear,)):
                return leaf, spread_along(path, weights.shape)
        return None, None

    def shift(self, chain: tuple[Equation, ...]) -> tuple[str | None, Spread | None]:
        if not chain or chain[-1].primitive not in ("add", "add_any"):
            return None, None
        added = self.origins.other(chain[-1])
        assert added is not None
        for leaf in sorted(self.origins.of(added)):
            path = self.origins.path(added, leaf, SUMS)
            if path is not None and is_added(path) and self.origins.is_own(leaf, chain):
                return leaf, spread_along(path, chain[-1].results[0].shape)
        return None, None

    def gain(self, chain: tuple[Equation, ...], shift: str | None) -> str | None:
        """The leaf that multiplies all of the pre-activation but its shift."""
        products = [i for i, e in enumerate(chain) if e.primitive in PRODUCTS and self.origins.leaves_of(e)]
        if not products or chain[products[-1]].primitive != "mul":
            return None
        multiplier = self.origins.other(chain[products[-1]])
        assert multiplier is not None
        addends = [self.origins.leaves_of(e) - {shift} for e in chain[products[-1] + 1 :]]
        for leaf in sorted(self.origins.of(multiplier)):
            is_factor = self.origins.path(multiplier, leaf, {"mul"}) is not None
            is_factor &= shift is None or self.origins.size_of(leaf) == self.origins.size_of(shift)
            if is_factor and self.origins.is_own(leaf, chain) and all(leaf in a for a in addends if a):
                return leaf
        return None
