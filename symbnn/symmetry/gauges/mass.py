"""The mass of a network as a function of the scales of its units.

Scaling unit i by λ_i = exp(u_i) multiplies every weight e by exp(c_e·u), c_e the exponents of the units on
its axes, so the sum of squares is a posynomial, convex in u:

    m(u) = Σ_e a_e exp(2 c_e·u),   a_e = (weight e)².

Weights on axes that nothing scales are summed beforehand: a layer between n and k units has n·k terms,
whatever its kernel size.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
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

    def degree(self) -> Fraction:
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


def is_counted(leaf: Leaf, count_bias: bool) -> bool:
    """Whether the leaf belongs to the mass."""
    return is_weight(leaf) and (count_bias or not is_bias(leaf))


def terms(spec: SymmetrySpec, count_bias: bool) -> tuple[Term, ...]:
    """Terms of the mass that depend on the scales, in the order of `squares`."""
    return tuple(
        Term(tuple(plain for axis, plain in enumerate(plain_factors) if axis in kept))
        for leaf in spec.leaves
        if is_counted(leaf, count_bias)
        for factors in pieces(leaf.axes)
        for plain_factors in [tuple(replace(factor, signs=(), role=None) for factor in factors)]
        for kept in [_kept(spec, factors)]
        if any(any(factor.scales) for factor in factors)
    )


def squares(spec: SymmetrySpec, params: Params, count_bias: bool) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Squared weights of every term in float64, and the mass that no scale changes."""
    arrays = tree.named_leaves(params)
    scaled, rest = [], jnp.zeros((), jnp.float64)
    for leaf in spec.leaves:
        array = arrays[leaf.name]
        if not is_counted(leaf, count_bias) or not jnp.issubdtype(array.dtype, jnp.floating):
            continue
        for piece in split(leaf.axes, jnp.asarray(array, jnp.float64) ** 2):
            if any(any(factor.scales) for factor in piece.factors):
                kept = _kept(spec, piece.factors)
                scaled.append(piece.array.sum(axis=[a for a in range(piece.array.ndim) if a not in kept]))
            else:
                rest = rest + piece.array.sum()
    return tuple(scaled), rest


def mass(
    spec: SymmetrySpec,
    parts: tuple[Term, ...],
    weights: tuple[jax.Array, ...],
    up: Logs,
    down: Logs,
    alive: Logs,
) -> jax.Array:
    """m(u) with one copy of u for positive exponents (`up`) and one for negative (`down`).

    Terms with a unit that is not `alive` (0 instead of 1) are left out.
    """
    # Squared here, not in the exponents: those are then ±1 in plain layers, and no power is taken.
    raised = {name: jnp.exp(2 * value) for name, value in up.items()}
    lowered = {name: jnp.exp(2 * value) for name, value in down.items()}
    total = jnp.zeros((), jnp.float64)
    for part, weight in zip(parts, weights, strict=True):
        positive, negative = _one_sided(part.factors, 1), _one_sided(part.factors, -1)
        values = [*_multipliers(spec, positive, raised), *_multipliers(spec, negative, lowered)]
        values += _multipliers(spec, exponents_one(part.factors), alive)
        total = total + _contracted(weight, values)
    return total


def flow(
    spec: SymmetrySpec, parts: tuple[Term, ...], weights: tuple[jax.Array, ...], logs: Logs, alive: Logs
) -> Flow:
    """Σ e·a over positive exponents, Σ |e|·a over negative ones, at u, for every unit."""
    up, down = jax.grad(lambda up, down: mass(spec, parts, weights, up, down, alive), argnums=(0, 1))(
        logs, logs
    )
    return Flow(jax.tree.map(lambda g: g / 2, up), jax.tree.map(lambda g: -g / 2, down))


def degenerate_groups(spec: SymmetrySpec, parts: tuple[Term, ...]) -> list[str]:
    """Groups whose scales can run off to zero or infinity while no term grows: there is no minimum then.

    Linear program over one d per group and generator: every term has c·d ≤ 0, some c·d < 0.
    """
    unknowns = [(group.name, k) for group in spec.groups for k in range(group.num_scales)]
    if not unknowns or not parts:
        return []
    rows = np.array([[float(sum(part.exponents().get(key, [0]))) for key in unknowns] for part in parts])
    found = linprog(rows.sum(axis=0), A_ub=rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1))
    if found.fun > -1e-9:
        return []
    return sorted({key[0] for key, value in zip(unknowns, found.x, strict=True) if abs(value) > 1e-9})


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
