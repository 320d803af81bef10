"""Corrections of an averaged network before it is judged: the `correct` of `symbnn.evaluate.barrier`.

The activations of a mean of networks vary less than those of any of them (variance collapse).

- `recompute_statistics`: the running means and variances of the ends are not those of the mean network; they
  are measured anew, each behind layers that are corrected already.
- `repair` (REPAIR, Jordan et al. 2022, arXiv 2211.08403): give each pre-activation of the mean network the
  mean and standard deviation interpolated from the ends, by an affine change of the unit's own weights.

Both find their places in the program of the network (`preactivations` beside it), not by names.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from symbnn.evaluate.barrier import Correction
from symbnn.evaluate.corrections.lockstep import Apply, Leaves, Reading, Traced, trace, walk
from symbnn.evaluate.corrections.origins import Spread
from symbnn.evaluate.corrections.preactivations import Site
from symbnn.symmetry.program import Value
from symbnn.types import Params

# Below this a standard deviation is that of a unit that never moves.
SMALLEST_STD = 1e-8


def recompute_statistics(apply: Apply, inputs: Any) -> Correction:
    """Running means and variances that are those of `inputs`, all of them as one batch.

    Args:
        apply: The network in evaluation mode, `(params, inputs) -> outputs`.
        inputs: What the statistics are measured on; a tuple for a network of several inputs.
    """

    def correct(a: Params, b: Params, weight: float | jax.Array, params: Params) -> Params:
        return with_statistics(trace(apply, params, inputs), params)

    return correct


def repair(apply: Apply, inputs: Any) -> Correction:
    """Pre-activations with interpolated mean and standard deviation, layer after layer, but for the outputs.

    Args:
        apply: The network in evaluation mode, `(params, inputs) -> outputs`.
        inputs: What means and standard deviations are measured on; a tuple for a network of several.
    """

    def correct(a: Params, b: Params, weight: float | jax.Array, params: Params) -> Params:
        return with_moments(trace(apply, params, inputs), params, (a, b), (1.0 - weight, weight))

    return correct


def with_statistics(traced: Traced, params: Params) -> Params:
    """The network with running statistics of the inputs; `ValueError` if it has none."""
    check_visible(traced)
    if not any(site.norm for site in traced.sites):
        raise ValueError(
            "no normalisation by running statistics was found in the network: nothing to measure"
        )
    return walk(traced, [params], statistics)


def with_moments(
    traced: Traced, params: Params, networks: Sequence[Params], weights: Sequence[float | jax.Array]
) -> Params:
    """The network with the weighted mean of the moments of all `networks`, and statistics of its own."""
    check_visible(traced)
    check_repairable(traced)
    return walk(traced, [*networks, params], lambda reading: repaired(reading, weights))


def check_visible(traced: Traced) -> None:
    """`ValueError` naming a leaf that is used where nothing can be measured."""
    if traced.in_loops:
        raise ValueError(
            f"leaf {traced.in_loops[0]!r} is used inside a loop or a branch, where nothing can be measured; "
            "write the layers out, or leave the network uncorrected"
        )


def check_repairable(traced: Traced) -> None:
    """`ValueError` naming a layer whose pre-activations no weights of its own shift and scale."""
    for site in traced.sites:
        if not site.is_output and not is_repairable(site):
            raise ValueError(
                f"the pre-activations made by {site.label!r} cannot be repaired: no shift and gain of their "
                "own were found; use running statistics, or no correction"
            )
    if not any(not site.is_output for site in traced.sites):
        raise ValueError("no pre-activations were found in the network: nothing to repair")


def is_repairable(site: Site) -> bool:
    """Whether a shift and a gain, or a norm that has neither, set the moments of a pre-activation."""
    is_bare = site.norm is not None and site.gain is None and site.shift is None
    return is_bare or (site.shift is not None and site.scale is not None)


def statistics(reading: Reading) -> Leaves:
    """Mean and variance of what a norm sees, over all that shares a unit."""
    return measured(reading, reading.leaves[-1])


def measured(reading: Reading, leaves: Leaves) -> Leaves:
    """The statistics of a site of the corrected network, with these leaves."""
    norm = reading.site.norm
    if norm is None:
        return {}
    value = reading.value_of(norm.normalised, -1, leaves)
    mean, std = moments(value, norm.spread, leaves[norm.mean])
    return {
        norm.mean: mean / _multiple(reading, leaves, norm.mean, *norm.used_mean),
        norm.variance: std**2 / _multiple(reading, leaves, norm.variance, *norm.used_variance),
    }


def _multiple(reading: Reading, leaves: Leaves, leaf: str, value: Value, spread: Spread) -> jax.Array:
    """What a statistic is multiplied by where it is used: one, or what makes up for its first updates."""
    ones = jnp.ones_like(leaves[leaf])
    one, none = (reading.weigh(leaves | {leaf: at}, value) for at in (ones, jnp.zeros_like(ones)))
    return moments(one - none, spread, ones)[0]


def repaired(reading: Reading, weights: Sequence[float | jax.Array], start: Leaves | None = None) -> Leaves:
    """New statistics, and shift and gain by which the moments are those of the other networks, weighed.

    `start` replaces leaves of the corrected network first.
    """
    site = reading.site
    new = dict(start or {})
    new |= measured(reading, reading.leaves[-1] | new)
    if site.is_output or site.shift is None or site.spread is None or site.scale is None:
        return new
    leaves = reading.leaves[-1] | new
    like, spread = leaves[site.shift], site.spread
    ends = [moments(reading.value_of(site.value, i), spread, like) for i in range(len(weights))]
    wanted_mean, wanted_std = (
        sum(weight * moment for weight, moment in zip(weights, several, strict=True))
        for several in zip(*ends, strict=True)
    )
    mean, std = moments(reading.value_of(site.value, -1, leaves), spread, like)
    factor = wanted_std / jnp.maximum(std, SMALLEST_STD)
    shift = factor * (like - mean) + wanted_mean
    return new | {site.shift: shift, site.scale: _scaled(reading, leaves, factor)}


def moments(value: jax.Array, spread: Spread, like: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation over all elements of `value` that share an element of `like`."""
    _, gather = jax.vjp(spread, jnp.zeros(like.shape, value.dtype))

    def average(array: jax.Array) -> jax.Array:
        return gather(array)[0] / count

    (count,) = gather(jnp.ones_like(value))
    mean = average(value)
    return mean, jnp.sqrt(average(jnp.square(value - spread(mean))))


def _scaled(reading: Reading, leaves: Leaves, factor: jax.Array) -> jax.Array:
    """The leaf that sets the size of a pre-activation, every unit of it times its factor."""
    site = reading.site
    assert site.scale is not None
    leaf = leaves[site.scale]
    if site.scale == site.gain:
        return leaf * factor.reshape(leaf.shape)
    # Which unit a weight belongs to: where the derivative of the units by it does not vanish. Every weight
    # makes one unit only, so a mean over what it makes is that unit's factor.
    linear, weight, spread, known = site.linear, site.weight, site.spread, reading.values[-1]
    assert linear is not None
    assert weight is not None
    assert spread is not None

    def units(own: jax.Array) -> jax.Array:
        operands = [
            jnp.ones_like(known[value]) if value in known else reading.weigh(leaves | {weight: own}, value)
            for value in linear.operands
        ]
        assert linear.evaluate is not None
        return linear.evaluate(*operands)[0]

    _, gather = jax.vjp(units, leaf)
    (total,), (count,) = (gather(site.start_like(spread(each))) for each in (factor, jnp.ones_like(factor)))
    return leaf * jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 1)
