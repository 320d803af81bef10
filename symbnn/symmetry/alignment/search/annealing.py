"""A common labelling of many networks by deterministic annealing over relaxed permutations and rotations.

Every network s has relaxed permutations P_s. With y_s = P_s·x_s, all P_s are replaced together by

    P_s ∝ exp(∂⟨Σ_t≠s y_t, P_s·x_s⟩ / T),  scaled until rows and columns sum to one (Sinkhorn),

while the temperature T falls. Units that look alike stay mixed until the rest tells them apart, so the search
is not caught by the first labels it tries: on perceptrons of widths 16 to 512 the maxima it leads to are
higher than those found from permutations (`tests/bench/bench_many.py`). Softassign is due to Gold &
Rangarajan (1996); C2M3 (Crisostomi et al. 2024) relaxes the same problem and follows its gradient.

Units that may be mixed are rotated likewise: with the gradient U S V, the rotation U V is softened to
U diag(S / (S + T mean S)) V, which forgets the directions that the others say little about.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import Arrays
from symbnn.symmetry.alignment.search.problem import Chunk, HostPermutations, Search, groups_only
from symbnn.symmetry.alignment.search.relaxed import (
    Relaxed,
    pair_values,
    relaxed_act,
    relaxed_slope,
    rounded,
    vertices,
    with_parities,
)
from symbnn.symmetry.group.matrices import fixing_ones, householder
from symbnn.symmetry.spec import Leaf, SymmetrySpec

# In standard deviations of a group's pair values: below it nearly every row has one entry left, and Sinkhorn
# no longer converges in float32.
COLDEST = 0.05
SINKHORN_STEPS = 20
# Networks mapped together: as many as fill this much memory.
MAPPED_BYTES = 2**21


class Schedule(NamedTuple):
    """Temperatures that fall geometrically to `COLDEST`; a hot start is worth it only if cooling is slow."""

    hottest: float
    """In standard deviations of a group's pair values. Above about 1/√(2 log n), a third for n = 100, a right
    pair weighs no more than the best of n wrong ones."""
    num: int


def anneal(search: Search, chunk: Chunk, schedule: Schedule) -> HostPermutations:
    """Permutations of every network to a common labelling, from those of the start; targets do not matter."""
    spec, leaves, arrays = groups_only(chunk.spec), chunk.leaves, chunk.arrays
    assert chunk.start is not None
    temperatures = np.geomspace(schedule.hottest, COLDEST, schedule.num).astype(np.float32)
    last = _cooled(spec, leaves, arrays, vertices(spec, leaves, chunk.start), temperatures)
    # The last matrices are not quite doubly stochastic, but pair values can be assigned exactly.
    return rounded(spec, leaves, last, search.solver)


@partial(jax.jit, static_argnames=("spec", "leaves"))
def _cooled(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], arrays: Arrays, relaxed: Relaxed, temperatures: jax.Array
) -> Relaxed:
    """Gradients after the last of the temperatures."""

    def cool(slope: Relaxed, temperature: jax.Array) -> tuple[Relaxed, None]:
        return _slopes(spec, leaves, arrays, _softened(spec, leaves, slope, temperature)), None

    return jax.lax.scan(cool, _slopes(spec, leaves, arrays, relaxed), temperatures)[0]


def _slopes(spec: SymmetrySpec, leaves: tuple[Leaf, ...], arrays: Arrays, relaxed: Relaxed) -> Relaxed:
    """Every network's gradient against the sum of all others."""
    together = max(1, MAPPED_BYTES // (4 * sum(array[0].size for array in arrays)))

    def mapped(item: tuple[Arrays, Relaxed]) -> Arrays:
        return tuple(
            relaxed_act(spec, leaves, item[1], leaf, array)
            for leaf, array in zip(leaves, item[0], strict=True)
        )

    own = jax.lax.map(mapped, (arrays, relaxed), batch_size=together)
    # As a product: XLA adds along the first axis at a fifth of the speed on CPUs.
    total = tuple(jnp.tensordot(jnp.ones(len(array), array.dtype), array, axes=1) for array in own)

    def slope(item: tuple[Arrays, Relaxed, Arrays]) -> Relaxed:
        others = tuple(whole - part for whole, part in zip(total, item[2], strict=True))
        return relaxed_slope(spec, leaves, others, item[0], item[1])

    return jax.lax.map(slope, (arrays, relaxed, own), batch_size=together)


def _softened(
    spec: SymmetrySpec, leaves: tuple[Leaf, ...], slope: Relaxed, temperature: jax.Array
) -> Relaxed:
    found, logits, signs = Relaxed(), Relaxed(), Relaxed()
    for group in spec.groups:
        if group.is_linear:
            turned = _soft_rotation(jnp.sum(slope[group.name], axis=1), temperature, centred=group.centred)
            found[group.name] = jnp.broadcast_to(turned[:, None], slope[group.name].shape)
            continue
        value, signs[group.name] = pair_values(leaves, group, slope[group.name])
        spread = jnp.std(value, axis=(-2, -1), keepdims=True)
        # Units that say nothing have no spread: all of them are mixed alike.
        logits[group.name] = value / jnp.maximum(temperature * spread, jnp.finfo(value.dtype).tiny)
    scaled = _all_scaled(logits)
    for group in spec.groups:
        if not group.is_linear:
            found[group.name] = with_parities(leaves, group, scaled[group.name], signs[group.name])
    return found


def _all_scaled(logits: Relaxed) -> Relaxed:
    """`_sinkhorn` of every group; groups of one shape together, as small matrices wait for their programs."""
    names_by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, value in logits.items():
        names_by_shape.setdefault(value.shape, []).append(name)
    found = Relaxed()
    for names in names_by_shape.values():
        found |= zip(names, _sinkhorn(jnp.stack([logits[name] for name in names])), strict=True)
    return found


def _soft_rotation(slope: jax.Array, temperature: jax.Array, *, centred: bool) -> jax.Array:
    """The best rotation, shrunk where the slope is small against the temperature."""
    if centred:
        reflection = householder(slope.shape[-1], slope.dtype)
        inner = (reflection @ slope @ reflection)[..., 1:, 1:]
        return fixing_ones(_soft_rotation(inner, temperature, centred=False))
    left, values, right = jnp.linalg.svd(slope, full_matrices=False)
    noise = temperature * jnp.mean(values, axis=-1, keepdims=True)
    return (left * (values / jnp.maximum(values + noise, jnp.finfo(values.dtype).tiny))[..., None, :]) @ right


def _sinkhorn(logits: jax.Array) -> jax.Array:
    """exp(logits) with rows and columns scaled in turn to sum to one."""
    kernel = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    least = jnp.finfo(kernel.dtype).tiny

    def scale(_: jax.Array, columns: jax.Array) -> jax.Array:
        rows = 1 / jnp.maximum(jnp.einsum("...ij,...j->...i", kernel, columns), least)
        return 1 / jnp.maximum(jnp.einsum("...ij,...i->...j", kernel, rows), least)

    columns = jax.lax.fori_loop(0, SINKHORN_STEPS, scale, jnp.ones(kernel.shape[:-1], kernel.dtype))
    rows = 1 / jnp.maximum(jnp.einsum("...ij,...j->...i", kernel, columns), least)
    return rows[..., :, None] * kernel * columns[..., None, :]
