"""Gauges: one representative for every orbit of rescalings, sign flips and relabellings.

`normalise` gives every unit incoming weights of unit length, layer by layer from the input; the last layer
absorbs the rest. `canonicalise` goes all the way to one point per orbit: scales first, by minimum mass, which
does not depend on signs or labels; then the principal axes of units that may be mixed; then signs, layer by
layer; then labels, by a key that the others leave alone. Sorting first would be wrong, unless its key were
invariant to scales.
Laurent, Aldea & Franchi (2024).
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.names import lookup
from symbnn.symmetry.gauges.balance import balance
from symbnn.symmetry.gauges.mixing import principal_axes
from symbnn.symmetry.gauges.sorting import Occurrence, incoming, inner_first, kernels_first, occurrences, rows
from symbnn.symmetry.group import Element, act
from symbnn.symmetry.numerics import length
from symbnn.symmetry.spec import Factor, SymmetrySpec, check_params
from symbnn.symmetry.spec.layer_order import depth_order
from symbnn.types import Params

Generator = tuple[str, int]
"""A group that can be rescaled, and which of its scales."""


def normalise(spec: SymmetrySpec, params: Params, *, scale: float = 1.0, statistic: str = "norm") -> Params:
    """The network with the incoming weights of every unit of length (or standard deviation) `scale`.

    Biases are scaled along but not measured. Units without incoming weights keep their scale. Where nothing
    but a vector writes a generator's units (the scale of a normalisation layer), it becomes ±`scale`. Jits
    and vmaps.

    Args:
        spec: The network's symmetries.
        params: The weights.
        scale: What every unit is scaled to.
        statistic: `"norm"`, the Euclidean length of a unit's incoming weights, or `"std"`, their deviation.
    """
    check_params(spec, params)
    measure = lookup(STATISTICS_OF_ROWS, statistic, "statistic")
    if scale <= 0:
        raise ValueError(f"scale must be positive; got {scale}")
    fix = partial(_normalised, spec, scale=scale, measure=measure)
    return _fixed_in_order(spec, params, "num_scales", partial(_measured, spec), fix)


def canonicalise(spec: SymmetrySpec, params: Params, *, scale_gauge: str = "mass") -> Params:
    """One point per orbit: `canonicalise(spec, act(spec, g, params))` is the same for every element g.

    Units that matrices may mix end up along their principal axes, largest first; where two of those have the
    same weight the point is not unique, nor is it with `"norm"` where any invertible matrix may mix them.
    Runs on the host.

    Args:
        spec: The network's symmetries.
        params: The weights.
        scale_gauge: `"mass"`, by `balance`, or `"norm"`, by `normalise`: for networks whose mass has no
            minimum (normalisation layers).
    """
    check_params(spec, params)
    rescaled = lookup(SCALE_GAUGES, scale_gauge, "scale gauge")
    if any(group.num_scales for group in spec.groups):
        params = rescaled(spec, params)
    params = principal_axes(spec, params)
    params = _fixed_in_order(spec, params, "num_signs", partial(_telling, spec), partial(_signed, spec))
    for name in inner_first(spec, depth_order(spec)):
        group = spec.group(name)
        order = _order(rows(group, occurrences(spec, group, params)), incoming(spec, group, params))
        params = act(spec, Element({name: jnp.asarray(order)}, {}, {}), params)
    return params


def _fixed_in_order(
    spec: SymmetrySpec,
    params: Params,
    count: str,
    weights: Callable[[list[Generator], Params], list[Occurrence] | None],
    fix: Callable[[list[Generator], Params], Params],
) -> Params:
    """Fix all generators from input to output, unless a later one would then undo an earlier one.

    `weights` are those that `fix` looks at to fix the last generator of a list, none if others move them too.
    """
    waiting = [(name, k) for name in depth_order(spec) for k in range(getattr(spec.group(name), count))]
    fixed: list[Generator] = []
    while waiting:
        ready = next((one for one in waiting if weights([*fixed, one], params) != []), waiting[0])
        waiting.remove(ready)
        fixed.append(ready)
        params = fix(fixed, params)
    return params


def _normalised(
    spec: SymmetrySpec,
    fixed: list[Generator],
    params: Params,
    *,
    scale: float,
    measure: Callable[[jax.Array], jax.Array],
) -> Params:
    """Fix the last of the generators in `fixed`; the others are so already."""
    group, generator = spec.group(fixed[-1][0]), fixed[-1][1]
    chosen = _measured(spec, fixed, params)
    if chosen is None:
        return params
    exponents = {_exponent(one, generator) for one in chosen}
    if len(exponents) != 1:
        powers = ", ".join(map(str, sorted(exponents)))
        why = f"different powers of a unit's scale ({powers})" if powers else "the scales of other units too"
        raise ValueError(
            f"the weights into group {group.name!r} grow with {why}, so they have no length of their own; "
            "use balance instead"
        )
    size = measure(rows(group, chosen))
    factor = jnp.where(size > 0, scale / jnp.where(size > 0, size, 1), 1) ** (1 / float(exponents.pop()))
    scales = jnp.ones((group.num_scales, *factor.shape), factor.dtype).at[generator].set(factor)
    return act(spec, Element({}, {group.name: scales}, {}), params)


def _measured(spec: SymmetrySpec, fixed: list[Generator], params: Params) -> list[Occurrence] | None:
    """Incoming weights that the last generator scales and none but the others in `fixed`.

    None where nothing writes the units, so that there is no scale to fix.
    """
    group, generator = spec.group(fixed[-1][0]), fixed[-1][1]
    found = occurrences(spec, group, params)
    written = [one for one in found if _exponent(one, generator) > 0 and not one.is_added]
    alone = [one for one in written if _is_moved_by(one, fixed, "scales")]
    return kernels_first(group, alone) if written else None


def _signed(spec: SymmetrySpec, fixed: list[Generator], params: Params) -> Params:
    """Flip units so that most of their incoming weight is positive: the last generator of `fixed`."""
    group, generator = spec.group(fixed[-1][0]), fixed[-1][1]
    found = occurrences(spec, group, params)
    found = [one for one in found if fixed[-1] in _movers(one.piece.factors[one.axis], "signs")]
    simple = _telling(spec, fixed, params) or found
    chosen = kernels_first(group, [one for one in simple if one.is_written and not one.is_added]) or simple
    if not chosen:
        return params
    weights = rows(group, chosen)
    sign = _majority(weights).astype(weights.dtype)
    signs = jnp.ones((group.num_signs, *sign.shape), sign.dtype).at[generator].set(sign)
    return act(spec, Element({}, {}, {group.name: signs}), params)


def _telling(spec: SymmetrySpec, fixed: list[Generator], params: Params) -> list[Occurrence]:
    """Weights, unless they are all biases, that the last generator flips and none but the others in `fixed`.

    A recurrent matrix flips with the group on its other axis too, so it says nothing about one unit.
    """
    found = occurrences(spec, spec.group(fixed[-1][0]), params)
    alone = [one for one in found if _is_moved_by(one, fixed, "signs")]
    return alone if any(not one.is_added for one in alone) else []


def _exponent(one: Occurrence, generator: int) -> Fraction:
    return one.piece.factors[one.axis].scales[generator]


def _movers(factor: Factor, kind: str) -> list[Generator]:
    """Generators that rescale (`"scales"`) or flip (`"signs"`) an axis."""
    powers = [value % 2 for value in factor.signs] if kind == "signs" else factor.scales
    return [(factor.group or "", number) for number, power in enumerate(powers) if power]


def _is_moved_by(one: Occurrence, fixed: list[Generator], kind: str) -> bool:
    """Whether no other generators move the weights, and the last one on a single axis."""
    moved = [generator for factor in one.piece.factors for generator in _movers(factor, kind)]
    return moved.count(fixed[-1]) == 1 and set(moved) <= set(fixed)


def _majority(weights: jax.Array) -> jax.Array:
    """±1 per unit: the sign of Σ w, or of Σ w³ where the weights cancel but for rounding."""
    # Cubes in the largest weight: its own may be out of range.
    largest = jnp.max(jnp.abs(weights), axis=-1, keepdims=True)
    weights = weights / jnp.where(largest > 0, largest, 1)
    total, size = jnp.sum(weights, axis=-1), jnp.sum(jnp.abs(weights), axis=-1)
    cancels = jnp.abs(total) <= 100 * jnp.finfo(weights.dtype).eps * size
    return jnp.where(jnp.where(cancels, jnp.sum(weights**3, axis=-1), total) < 0, -1, 1)


def _order(touching: jax.Array, written: jax.Array) -> np.ndarray:
    """Units by descending mass of all weights that touch them; equal masses by incoming weights.

    Rounding must not decide: masses closer than `tolerance` count as equal, and so do weights.
    """
    mass = np.sum(np.asarray(touching, np.float64) ** 2, axis=-1)
    weights = np.asarray(written)
    tolerance = 100 * float(jnp.finfo(weights.dtype).eps)
    flat = zip(mass.reshape(-1, mass.shape[-1]), weights.reshape(-1, *weights.shape[-2:]), strict=True)
    return np.stack([_order_one(m, w, tolerance) for m, w in flat]).reshape(mass.shape)


def _order_one(mass: np.ndarray, weights: np.ndarray, tolerance: float) -> np.ndarray:
    order = np.argsort(-mass, kind="stable")
    falls = -np.diff(mass[order]) > tolerance * np.max(mass, initial=0.0)
    starts = np.flatnonzero(np.concatenate([[True], falls]))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        if stop - start > 1:
            tied = order[start:stop]
            unit = tolerance * max(np.max(np.abs(weights)), np.finfo(np.float64).tiny) * 10
            keys = np.round(weights[tied] / unit)
            order[start:stop] = tied[np.lexsort(-keys.T[::-1])]
    return order


STATISTICS_OF_ROWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "norm": lambda weights: length(weights, -1),
    "std": lambda weights: (
        length(weights - jnp.mean(weights, axis=-1, keepdims=True), -1) / np.sqrt(weights.shape[-1])
    ),
}

SCALE_GAUGES: dict[str, Callable[[SymmetrySpec, Params], Params]] = {
    "mass": lambda spec, params: balance(spec, params).params,
    "norm": normalise,
}
