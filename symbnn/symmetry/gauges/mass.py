"""The mass of a network as a function of the scales of its units.

Scaling unit i by λ_i = exp(u_i) multiplies every weight e by exp(c_e·u), c_e the exponents of the units on
its axes, so the sum of squares is a posynomial, convex in u:

    m(u) = Σ_e a_e exp(2 c_e·u),   a_e = (weight e)².

Weights on axes that nothing scales are summed beforehand: a layer between n and k units has n·k terms,
whatever its kernel size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from symbnn import tree
from symbnn.symmetry.group import Element
from symbnn.symmetry.group.act import multiplier
from symbnn.symmetry.spec import Factor, Leaf, SymmetrySpec, pieces, split
from symbnn.symmetry.spec.layer_order import is_bias, is_weight
from symbnn.types import Params

Logs = dict[str, jax.Array]
"""u by group, `(num_scales, *over, n)`."""


class Flow(NamedTuple):
    """What pulls units down and up, equal at the minimum: in a ReLU net in- and outgoing mass."""

    positive: Logs
    negative: Logs


@dataclass(frozen=True)
class Term:
    """Factors of a piece of squared weights, axes that nothing scales left out."""

    factors: tuple[Factor, ...]

    def reach(self) -> Fraction:
        """Σ |c_e|: how much the term reacts to all units together."""
        return sum((abs(value) for factor in self.factors for value in factor.scales), Fraction(0))

    def exponents(self) -> dict[tuple[str, int], list[Fraction]]:
        """Non-zero exponents by group and generator."""
        found: dict[tuple[str, int], list[Fraction]] = {}
        for factor in self.factors:
            for generator, value in enumerate(factor.scales):
                if value and factor.group is not None:
                    found.setdefault((factor.group, generator), []).append(value)
        return found


@partial(jax.tree_util.register_dataclass, meta_fields=["spec", "terms"], data_fields=["weights", "rest"])
@dataclass(frozen=True)
class Mass:
    """m(u) of one network."""

    spec: SymmetrySpec
    terms: tuple[Term, ...]
    weights: tuple[jax.Array, ...]
    """Squared weights of every term, in float64."""
    rest: jax.Array
    """The mass that no scale changes."""

    def total(self) -> jax.Array:
        """The mass at u = 0."""
        return self.rest + sum(weight.sum() for weight in self.weights)

    def scaled(self, up: Logs, down: Logs, alive: Logs) -> jax.Array:
        """m(u) − rest, with one copy of u for positive exponents (`up`) and one for negative (`down`).

        Terms with a unit that is not `alive` (0 instead of 1) are left out.
        """
        # Squared here, not in the exponents: those are then ±1 in plain layers, and no power is taken.
        raised = {name: jnp.exp(2 * value) for name, value in up.items()}
        lowered = {name: jnp.exp(2 * value) for name, value in down.items()}
        total = jnp.zeros((), jnp.float64)
        for term, weight in zip(self.terms, self.weights, strict=True):
            positive, negative = _one_sided(term.factors, 1), _one_sided(term.factors, -1)
            values = [*_multipliers(self.spec, positive, raised), *_multipliers(self.spec, negative, lowered)]
            values += _multipliers(self.spec, exponents_one(term.factors), alive)
            total = total + _contracted(weight, values)
        return total

    def flow(self, logs: Logs, alive: Logs) -> Flow:
        """Σ e·a over positive exponents, Σ |e|·a over negative ones, at u, for every unit."""
        slopes = jax.grad(lambda up, down: self.scaled(up, down, alive), argnums=(0, 1))
        up, down = slopes(logs, logs)
        return Flow(jax.tree.map(lambda g: g / 2, up), jax.tree.map(lambda g: -g / 2, down))


def mass_of(spec: SymmetrySpec, params: Params, count_bias: bool) -> Mass:
    """The mass of a network, with or without its biases."""
    arrays = tree.named_leaves(params)
    weights, rest = [], jnp.zeros((), jnp.float64)
    for leaf in counted(spec, count_bias):
        array = arrays[leaf.name]
        if not jnp.issubdtype(array.dtype, jnp.floating):
            continue
        for piece in split(leaf.axes, jnp.asarray(array, jnp.float64) ** 2):
            if any(any(factor.scales) for factor in piece.factors):
                kept = _kept(spec, piece.factors)
                weights.append(piece.array.sum(axis=[a for a in range(piece.array.ndim) if a not in kept]))
            else:
                rest = rest + piece.array.sum()
    return Mass(spec, terms(spec, count_bias), tuple(weights), rest)


def terms(spec: SymmetrySpec, count_bias: bool) -> tuple[Term, ...]:
    """Terms of the mass that depend on the scales, in the order of `Mass.weights`."""
    return tuple(
        Term(tuple(replace(factors[axis], signs=(), role=None) for axis in sorted(_kept(spec, factors))))
        for leaf in counted(spec, count_bias)
        for factors in pieces(leaf.axes)
        if any(any(factor.scales) for factor in factors)
    )


def degenerate_groups(spec: SymmetrySpec, found: tuple[Term, ...]) -> list[str]:
    """Groups whose scales can run off to zero or infinity while no term grows: there is no minimum then.

    Linear program over one d per group and generator: every term has c·d ≤ 0, some c·d < 0.
    """
    unknowns = [(group.name, k) for group in spec.groups for k in range(group.num_scales)]
    if not unknowns or not found:
        return []
    rows = np.array([[float(sum(term.exponents().get(key, [0]))) for key in unknowns] for term in found])
    away = linprog(rows.sum(axis=0), A_ub=rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1))
    if away.fun > -1e-9:
        return []
    return sorted({key[0] for key, value in zip(unknowns, away.x, strict=True) if abs(value) > 1e-9})


def counted(spec: SymmetrySpec, count_bias: bool) -> Iterator[Leaf]:
    """Leaves that have mass."""
    return (leaf for leaf in spec.leaves if is_weight(leaf) and (count_bias or not is_bias(leaf)))


def _kept(spec: SymmetrySpec, factors: tuple[Factor, ...]) -> set[int]:
    """Axes that a scale sits on, or that a scaled group varies over."""
    scaled = {factor.group for factor in factors if any(factor.scales)}
    needed = scaled | {name for group in spec.groups if group.name in scaled for name in group.over}
    return {
        axis for axis, factor in enumerate(factors) if factor.group in needed and factor.group is not None
    }


def _one_sided(factors: tuple[Factor, ...], sign: int) -> tuple[Factor, ...]:
    """The exponents of one sign, none of the other."""

    def kept(factor: Factor) -> Factor:
        chosen = (value if value * sign > 0 else Fraction(0) for value in factor.scales)
        return replace(factor, scales=tuple(chosen))

    return tuple(kept(factor) for factor in factors)


def _multipliers(spec: SymmetrySpec, factors: tuple[Factor, ...], scales: Logs) -> list[jax.Array]:
    """Π s^e of every axis that has exponents, shaped to multiply the term."""
    found = (multiplier(spec, Element({}, scales, {}), factors, axis) for axis in range(len(factors)))
    return [value for value in found if value is not None]


def _contracted(weight: jax.Array, values: list[jax.Array]) -> jax.Array:
    """Σ weight · Π values as a chain of products with vectors: no array of the weights' size is made."""
    operands: list = [weight, list(range(weight.ndim))]
    for value in values:
        axes = [axis for axis in range(value.ndim) if value.shape[axis] > 1]
        operands += [value.reshape([value.shape[axis] for axis in axes]), axes]
    return jnp.einsum(*operands, [], optimize="optimal")


def exponents_one(factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Factors with every non-zero exponent 1 and no signs: what a mask multiplies."""
    return tuple(
        replace(factor, scales=tuple(Fraction(int(bool(value))) for value in factor.scales), signs=())
        for factor in factors
    )
