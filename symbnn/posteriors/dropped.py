"""Monte Carlo dropout as a posterior over weights.

Dropping unit j of a layer multiplies its activation by z_j / (1 - rate) with z_j ~ Bernoulli(1 - rate), which
is the same as multiplying every weight that reads the unit (Gal and Ghahramani 2016). So a draw of masks is a
draw of networks, and an evaluator needs no training mode.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.posteriors.base import check_num, register
from symbnn.types import Key, Params, Samples


class Reading(NamedTuple):
    """A stretch of a leaf axis that reads units: from `start`, viewed as (outer, units, inner)."""

    leaf: str
    axis: int
    start: int
    outer: int
    inner: int

    def stop(self, size: int) -> int:
        """End of the stretch for `size` units."""
        return self.start + self.outer * size * self.inner


class Units(NamedTuple):
    """Hidden units that are dropped together with all weights that read them."""

    name: str
    size: int
    readings: tuple[Reading, ...]


@register(static=("units", "rate"))
@dataclasses.dataclass(frozen=True)
class DroppedUnits:
    """One of the stored networks, chosen evenly, with its `units` dropped independently at `rate`."""

    samples: Samples
    units: tuple[Units, ...]
    rate: float

    def __post_init__(self) -> None:
        tree.num_samples(self.samples)
        if not 0.0 <= self.rate < 1.0:
            raise ValueError(f"rate must be a probability in [0, 1); got {self.rate}")
        leaves = tree.named_leaves(self.samples)
        for group in self.units:
            for reading in group.readings:
                length = leaves[reading.leaf].shape[reading.axis + 1] if reading.leaf in leaves else None
                if length is None or reading.stop(group.size) > length:
                    raise ValueError(
                        f"units {group.name!r}: leaf {reading.leaf!r} has {length} positions on axis "
                        f"{reading.axis}; {group.size} units are read up to {reading.stop(group.size)}"
                    )

    def sample(self, key: Key, num: int) -> Samples:
        """`num` networks with masks applied."""
        check_num(num)
        key_network, key_masks = jax.random.split(key)
        chosen = jax.random.randint(key_network, (num,), 0, tree.num_samples(self.samples))

        def draw(index: Array, mask_key: Key) -> Params:
            masks = draw_masks(mask_key, self.units, self.rate)
            return drop(tree.take(self.samples, index), self.units, masks, self.rate)

        return jax.vmap(draw)(chosen, jax.random.split(key_masks, num))

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-mass: the sum over stored networks of the mass of the masks that turn it into `params`."""
        tree.check_same_shapes("params", params, tree.take(self.samples, 0))
        masks = kept_units(params, self.units)
        kept = sum(jnp.sum(mask) for mask in masks.values())
        total = sum(group.size for group in self.units)
        log_mass = kept * math.log1p(-self.rate)
        if self.rate > 0:
            log_mass = log_mass + (total - kept) * math.log(self.rate)

        def is_reached(network: Params) -> Array:
            equal = jax.tree.map(
                lambda a, b: jnp.all(a == b), drop(network, self.units, masks, self.rate), params
            )
            return jnp.all(jnp.stack(jax.tree.leaves(equal)))

        hits = jnp.sum(jax.lax.map(is_reached, self.samples).astype(jnp.float32))
        return log_mass + jnp.log(hits) - math.log(tree.num_samples(self.samples))


def draw_masks(key: Key, units: tuple[Units, ...], rate: float) -> dict[str, Array]:
    """One Bernoulli(1 - rate) per unit, by group name."""
    kept = jax.random.bernoulli(key, 1.0 - rate, (sum(group.size for group in units),))
    parts = tree.cut(kept, [(group.size,) for group in units])
    return {group.name: part for group, part in zip(units, parts, strict=True)}


def drop(params: Params, units: tuple[Units, ...], masks: dict[str, Array], rate: float) -> Params:
    """`params` with every weight that reads a dropped unit at zero, the others divided by 1 - rate."""
    readings = [(group, reading) for group in units for reading in group.readings]

    def leaf(name: str, array: Array) -> Array:
        for group, reading in readings:
            if reading.leaf == name:
                factor = masks[group.name].astype(array.dtype) / (1.0 - rate)
                array = array * _along(array, reading, factor)
        return array

    return tree.map_named(leaf, params)


def kept_units(params: Params, units: tuple[Units, ...]) -> dict[str, Array]:
    """Masks as weights show them: a unit is kept if any weight that reads it is not zero."""
    leaves = tree.named_leaves(params)

    def kept(group: Units) -> Array:
        read = [_is_read(leaves[reading.leaf], reading, group.size) for reading in group.readings]
        return jnp.any(jnp.stack(read), axis=0)

    return {group.name: kept(group) for group in units}


def _along(array: Array, reading: Reading, factor: Array) -> Array:
    """`factor` spread over its stretch of the axis, one elsewhere, shaped to multiply `array`."""
    stretch = jnp.tile(jnp.repeat(factor, reading.inner), reading.outer)
    whole = jnp.ones(array.shape[reading.axis], array.dtype)
    whole = whole.at[reading.start : reading.stop(factor.shape[0])].set(stretch)
    shape = [1] * array.ndim
    shape[reading.axis] = whole.shape[0]
    return whole.reshape(shape)


def _is_read(array: Array, reading: Reading, size: int) -> Array:
    """Whether any weight that reads a unit is not zero."""
    moved = jnp.moveaxis(array, reading.axis, 0)[reading.start : reading.stop(size)]
    return jnp.any(moved.reshape(reading.outer, size, -1) != 0, axis=(0, 2))
