"""Averaging by least squares: weights that make of the merged network's own inputs what the networks make.

A mean of aligned weights is far from a mean of functions: matched units agree only in part, and what the
first layers blur the later ones were never made for. So every layer is fitted instead, input to output. With
X the inputs that the layer has in the merged network so far, Y the weighted mean of the pre-activations of
the aligned networks, and W₀ the mean of their weights, all folded with what follows (norms, gains),

    W = W₀ + (XᵀX + λ)⁻¹ Xᵀ (Y − X W₀)                              both centred where a shift follows

the ridge solution next to W₀: copies of one network give that network. Then statistics are measured and
moments repaired (`evaluate.corrections`), because a fit varies less than what it is fitted to. No labels and
no gradient steps, but it is a fit to `inputs`: RegMean (Jin et al. 2023, arXiv 2212.09849) has the same
normal equations with the inputs of the separate networks, which blurs less than a mean and more than this.

Weights that are tied, grouped or batched keep their mean; norms and shifts are corrected there too.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from symbnn.evaluate.corrections.lockstep import Leaves, Reading
from symbnn.evaluate.corrections.moments import is_repairable, measured, moments, repaired
from symbnn.symmetry.program import Equation

# λ as a share of the mean squared input: of no weight among thousands of rows, enough to invert by.
RIDGE = 1e-3
# Rows of a convolution are its patches, nine times as large as its inputs: made of so many inputs at a time.
PATCHED_TOGETHER = 64


def regressed(reading: Reading, weights: Sequence[float | jax.Array]) -> Leaves:
    """New leaves of the merged network at a site; `weights` are those of the other networks."""
    site = reading.site
    layout = None if site.weight is None or site.linear is None else layout_of(site.linear, reading)
    if layout is None:
        return repaired(reading, weights) if is_repairable(site) else measured(reading, reading.leaves[-1])
    target = _weighed(weights, [reading.value_of(site.value, i) for i in range(len(weights))])
    new = _fitted(reading, layout, target, weights)
    if is_repairable(site) and not site.is_output:
        return repaired(reading, weights, new)
    new |= measured(reading, reading.leaves[-1] | new)
    if site.shift is None or site.spread is None:
        return new
    leaves = reading.leaves[-1] | new
    off, _ = moments(target - reading.value_of(site.value, -1, leaves), site.spread, leaves[site.shift])
    return new | {site.shift: leaves[site.shift] + off}


class Layout(NamedTuple):
    """A matrix product or convolution as `rows @ matrix = units`."""

    linear: Equation
    data: int
    """Which operand is data."""
    inner: tuple[int, ...]
    """Axes of the weights that are summed over."""
    outer: tuple[int, ...]

    def matrix(self, weights: jax.Array) -> jax.Array:
        """Weights as `(inputs, units)`."""
        moved = jnp.transpose(weights, (*self.inner, *self.outer))
        return moved.reshape(math.prod(weights.shape[axis] for axis in self.inner), -1)

    def weights(self, matrix: jax.Array) -> jax.Array:
        """The inverse of `matrix`; units may be any number."""
        shape = self.linear.operands[1 - self.data].shape
        outer = (-1,) if self.is_convolution else tuple(shape[axis] for axis in self.outer)
        array = matrix.reshape(*(shape[axis] for axis in self.inner), *outer)
        order = (*self.inner, *self.outer)
        return jnp.transpose(array, [order.index(axis) for axis in range(len(order))])

    @property
    def is_convolution(self) -> bool:
        """Whether it is one."""
        return self.linear.primitive == "conv_general_dilated"

    def units(self, result: jax.Array) -> jax.Array:
        """What the equation makes, as `(rows, units)`."""
        if self.is_convolution:
            moved = jnp.moveaxis(result, self.linear.params["dimension_numbers"].out_spec[1], -1)
            return moved.reshape(-1, moved.shape[-1])
        count = len(self.outer)
        moved = result if self.data == 0 else jnp.moveaxis(result, range(count), range(-count, 0))
        return moved.reshape(-1, math.prod(moved.shape[moved.ndim - count :]))

    def parts(self, data: jax.Array, result: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Rows and units, a part of them at a time."""
        if not self.is_convolution:
            (contracted, _) = self.linear.params["dimension_numbers"]
            axes = contracted[self.data]
            moved = jnp.moveaxis(data, axes, range(-len(axes), 0))
            yield moved.reshape(-1, math.prod(data.shape[axis] for axis in axes)), self.units(result)
            return
        numbers = self.linear.params["dimension_numbers"]
        first, last = numbers.lhs_spec[0], numbers.out_spec[0]
        shape = self.linear.operands[1].shape
        # Filters that each pick one number of a patch.
        picking = self.weights(jnp.eye(math.prod(shape[axis] for axis in self.inner), dtype=data.dtype))
        assert self.linear.evaluate is not None
        for start in range(0, data.shape[first], PATCHED_TOGETHER):
            stop = min(start + PATCHED_TOGETHER, data.shape[first])
            some = jax.lax.slice_in_dim(data, start, stop, axis=first)
            made = jax.lax.slice_in_dim(result, start, stop, axis=last)
            yield self.units(self.linear.evaluate(some, picking)[0]), self.units(made)


def layout_of(linear: Equation, reading: Reading) -> Layout | None:
    """How to write the equation as a product of matrices, if it is one."""
    params = linear.params
    data = next(i for i, value in enumerate(linear.operands) if value in reading.values[-1])
    weights = linear.operands[1 - data]
    if linear.primitive == "dot_general":
        contracted, batched = params["dimension_numbers"]
        inner = tuple(contracted[1 - data])
        outer = tuple(axis for axis in range(len(weights.shape)) if axis not in inner)
        return None if batched[0] or not outer else Layout(linear, data, inner, outer)
    if data != 0 or params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return None
    out, *inner_axes = params["dimension_numbers"].rhs_spec
    return Layout(linear, data, tuple(inner_axes), (out,))


def _fitted(
    reading: Reading, layout: Layout, target: jax.Array, weights: Sequence[float | jax.Array]
) -> Leaves:
    """The weights that fit the target best, on the scale of the mean weights; a gain that follows is one."""
    site = reading.site
    assert site.weight is not None
    assert site.weight_spread is not None
    operand = layout.linear.operands[1 - layout.data]
    count = len(weights)
    factors = [_factors(reading, layout, i, reading.leaves[i]) for i in range(count)]
    folded = [layout.matrix(reading.weigh(reading.leaves[i], operand)) * factors[i] for i in range(count)]
    mean = _weighed(weights, folded)
    data = reading.values[-1][layout.linear.operands[layout.data]]
    target = site.start_like(target)
    is_centred = site.shift is not None or site.norm is not None
    fit = mean + _correction(layout, data, target, mean, is_centred=is_centred)
    new = {} if site.gain is None else {site.gain: jnp.ones_like(reading.leaves[-1][site.gain])}
    if site.norm is None:
        size = _factors(reading, layout, -1, reading.leaves[-1] | new)
    else:
        # A norm divides by whatever size there is: that of the mean weights.
        size = _weighed(weights, [jnp.abs(factor) for factor in factors])
    fit = fit / jnp.where(size == 0, 1, size)
    old = reading.weigh(reading.leaves[-1], operand)
    leaf = reading.leaves[-1][site.weight]
    _, gather = jax.vjp(site.weight_spread, leaf)
    return new | {site.weight: leaf + gather((layout.weights(fit) - old).astype(old.dtype))[0]}


def _factors(reading: Reading, layout: Layout, network: int, leaves: Leaves) -> jax.Array:
    """What the chain of a site multiplies every unit by."""
    start = reading.values[network][reading.site.start]
    ends = [reading.along_chain(constant(start), leaves) for constant in (jnp.zeros_like, jnp.ones_like)]
    return layout.units(reading.site.start_like(ends[1] - ends[0]))[0]


def _correction(
    layout: Layout, data: jax.Array, target: jax.Array, mean: jax.Array, *, is_centred: bool
) -> jax.Array:
    """(XᵀX + λ)⁻¹ Xᵀ (Y − X W₀), of rows minus their means where there is a shift to hold these.

    The means first: a sum of squares minus the square of a sum would be rounding where inputs vary little
    around a large value.
    """
    size, units = mean.shape
    centre: Any = (jnp.zeros(size), jnp.zeros(units))
    if is_centred:
        sums = [(rows.sum(0), made.sum(0), rows.shape[0]) for rows, made in layout.parts(data, target)]
        count = sum(number for *_, number in sums)
        centre = tuple(sum(part[which] for part in sums) / count for which in (0, 1))
    gram, product = jnp.zeros((size, size)), jnp.zeros((size, units))
    for rows, made in layout.parts(data, target):
        gram, product = _summed((gram, product), rows - centre[0], made - centre[1], mean)
    ridge = RIDGE * jnp.mean(jnp.diagonal(gram)) + jnp.finfo(gram.dtype).tiny
    return jax.scipy.linalg.solve(gram + ridge * jnp.eye(size), product, assume_a="pos").astype(mean.dtype)


@jax.jit
def _summed(sums: Any, rows: jax.Array, made: jax.Array, mean: jax.Array) -> Any:
    gram, product = sums
    return gram + rows.T @ rows, product + rows.T @ (made - rows @ mean)


def _weighed(weights: Sequence[float | jax.Array], arrays: Sequence[jax.Array]) -> jax.Array:
    return sum((weight * array for weight, array in zip(weights, arrays, strict=True)), start=jnp.zeros(()))
