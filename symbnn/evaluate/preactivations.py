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

from symbnn.evaluate.origins import ROOTS, VIEWS, Origins, Spread, is_added, spread_along
from symbnn.symmetry.program import Equation, Program, Value

PRODUCTS, SUMS = {"mul", "div"}, {"add", "sub", "add_any"}
LINEAR = {"dot_general", "conv_general_dilated"}


class Norm(NamedTuple):
    """Normalisation by running statistics."""

    mean: str
    variance: str
    normalised: Value
    """The value whose mean and variance they stand for."""
    spread: Spread
    """How the mean lies in it."""
    used_mean: tuple[Value, Spread]
    """The value, made of weights alone, in which the mean is used: itself, or a multiple (debiased)."""
    used_variance: tuple[Value, Spread]
    """Likewise for the variance: what the root is taken of."""


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
        while chain and not self.leaves_of(chain[-1]):
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

    def other(self, equation: Equation) -> Value | None:
        """What meets the data in an equation of a chain."""
        return next((value for value in equation.operands if value not in self.origins.data), None)

    def leaves_of(self, equation: Equation) -> frozenset[str]:
        other = self.other(equation)
        return frozenset() if other is None else self.origins.of(other)

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
            self.norm(chain),
            self.gain(chain, shift),
            shift,
            spread,
            shift is not None and linear is not None and self.size_of(shift) == self.num_units(linear),
            end in self.program.outputs,
        )

    def size_of(self, leaf: str) -> int:
        return next(value.size for value, name in self.origins.names.items() if name == leaf)

    def num_units(self, linear: Equation) -> int:
        """Number of units that the weights of a matrix product or convolution make."""
        numbers = linear.params["dimension_numbers"]
        if linear.primitive == "conv_general_dilated":
            return linear.operands[1].shape[numbers.rhs_spec[0]]
        which = next(i for i, value in enumerate(linear.operands) if value not in self.origins.data)
        shape = linear.operands[which].shape
        return math.prod(size for axis, size in enumerate(shape) if axis not in numbers[0][which])

    def is_own(self, leaf: str, chain: tuple[Equation, ...]) -> bool:
        return self.origins.meets[leaf] <= {*chain}

    def weight(self, linear: Equation | None) -> tuple[str | None, Spread | None]:
        weights = None if linear is None else self.other(linear)
        if linear is None or weights is None:
            return None, None
        for leaf in self.origins.of(weights):
            path = self.origins.path(weights, leaf, set())
            if path is not None and self.is_own(leaf, (linear,)):
                return leaf, spread_along(path, weights.shape)
        return None, None

    def shift(self, chain: tuple[Equation, ...]) -> tuple[str | None, Spread | None]:
        if not chain or chain[-1].primitive not in ("add", "add_any"):
            return None, None
        added = self.other(chain[-1])
        assert added is not None
        for leaf in sorted(self.origins.of(added)):
            path = self.origins.path(added, leaf, SUMS)
            if path is not None and is_added(path) and self.is_own(leaf, chain):
                return leaf, spread_along(path, chain[-1].results[0].shape)
        return None, None

    def gain(self, chain: tuple[Equation, ...], shift: str | None) -> str | None:
        """The leaf that multiplies all of the pre-activation but its shift."""
        products = [i for i, e in enumerate(chain) if e.primitive in PRODUCTS and self.leaves_of(e)]
        if not products or chain[products[-1]].primitive != "mul":
            return None
        multiplier = self.other(chain[products[-1]])
        assert multiplier is not None
        addends = [self.leaves_of(e) - {shift} for e in chain[products[-1] + 1 :]]
        for leaf in sorted(self.origins.of(multiplier)):
            is_factor = self.origins.path(multiplier, leaf, {"mul"}) is not None
            if is_factor and self.is_own(leaf, chain) and all(leaf in a for a in addends if a):
                return leaf
        return None

    def norm(self, chain: tuple[Equation, ...]) -> Norm | None:
        for product, equation in enumerate(chain):
            multiplier = self.other(equation)
            if equation.primitive not in PRODUCTS or multiplier is None:
                continue
            for variance in sorted(self.origins.rooted.get(multiplier, ())):
                if self.is_own(variance, chain) and (norm := self.mean(chain, product, variance)):
                    return norm
        return None

    def mean(self, chain: tuple[Equation, ...], product: int, variance: str) -> Norm | None:
        """The running mean that belongs to a variance, whose root multiplies in equation `product`."""
        multiplier = self.other(chain[product])
        root = None if multiplier is None else self.root(multiplier, variance)
        if root is None:
            return None
        for equation in reversed(chain[:product]):
            for leaf in sorted(self.leaves_of(equation)) if equation.primitive == "sub" else ():
                if norm := self.norm_by(chain, equation, equation, leaf, variance, root):
                    return norm
        known = self.leaves_of(chain[product])
        for equation in chain[product + 1 :]:
            # Folded: x · r + (b − m · r). The mean is multiplied by the root here, and not before.
            for leaf in sorted(self.leaves_of(equation) - known) if equation.primitive in SUMS else ():
                if norm := self.norm_by(chain, equation, chain[product], leaf, variance, root):
                    return norm
        return None

    def root(self, value: Value, variance: str) -> Value | None:
        """What the root of a variance is taken of."""
        equation = self.origins.made_by.get(value)
        having = [v for v in equation.operands if variance in self.origins.of(v)] if equation else []
        if equation is None or len(having) != 1:
            return None
        return having[0] if equation.primitive in ROOTS else self.root(having[0], variance)

    def norm_by(
        self,
        chain: tuple[Equation, ...],
        equation: Equation,
        begins: Equation,
        leaf: str,
        variance: str,
        root: Value,
    ) -> Norm | None:
        """The norm if `leaf`, met in `equation`, is its mean; what is normalised enters at `begins`."""
        other = self.other(equation)
        path = None if other is None else self.origins.path(other, leaf, PRODUCTS | SUMS | {"neg"})
        below = self.origins.path(root, variance, PRODUCTS | SUMS | {"max"})
        shapes = {name: value.shape for value, name in self.origins.names.items()}
        if path is None or below is None or shapes[leaf] != shapes[variance] or not self.is_own(leaf, chain):
            return None
        rooted = [i for i, (e, _) in enumerate(path) if variance in self.origins.of(e.results[0])]
        if bool(rooted) != (equation is not begins) or (rooted and path[rooted[0]][0].primitive in SUMS):
            return None
        # Up to where the root joins, the path makes the mean itself.
        alone = path[: rooted[0]] if rooted else path
        used = path[rooted[0]][1] if rooted else other
        assert used is not None
        normalised = next(value for value in begins.operands if value in self.origins.data)
        return Norm(
            leaf,
            variance,
            normalised,
            spread_along(path, normalised.shape),
            (used, spread_along(alone, used.shape)),
            (root, spread_along(below, root.shape)),
        )
