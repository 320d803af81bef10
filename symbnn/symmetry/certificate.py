"""A certificate that no continuous symmetry is missing: `completeness`.

The directions in weight space along which no output changes are the null space of the Jacobian of the outputs
over many inputs. Those that a spec explains are the tangent of its action. Where both have one dimension
there are no others near here; where they do not, the leaves in which the rest lies say where to look. Both
are measured in float64, at a generic point near the weights: dead units and exact zeros have directions of
their own that no other network has.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from symbnn import keys, tree
from symbnn.symmetry.gauges import fold_gains
from symbnn.symmetry.group import Element, act
from symbnn.symmetry.group.matrices import householder
from symbnn.symmetry.group.verify import doubled
from symbnn.symmetry.numerics import check_finite, quick_options
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Key, Params

LARGEST = 4000
"""Parameters: beyond, a singular value decomposition takes minutes and gigabytes."""

# Outputs, or random combinations of them, that are looked at for every parameter.
OUTPUTS_PER_PARAMETER = 3
# Noise on every weight, relative to its leaf: enough to leave what is special about a point. Where something
# is missing more is tried, as a unit may still be dead.
NOISES = (0.3, 1.0)
# Directions along which outputs change by less than this share of the largest change may be symmetries, and
# must then differ from all others by at least this factor.
FLAT, GAP = 1e-8, 100.0


class Completeness(NamedTuple):
    """How many dimensions of symmetry a network has near some weights, and how many a spec explains."""

    found: int
    """Of the orbit that the spec spans, with rotations that folding its gains frees (`fold_gains`)."""
    total: int
    """Of all directions that leave every output alone."""
    missing: int
    leaves: dict[str, float]
    """How many of the missing dimensions lie in each leaf, largest first; they add up to `missing`."""

    def __str__(self) -> str:
        if not self.missing:
            return f"all {self.total} dimensions of symmetry are found"
        places = ", ".join(f"{name} {share:.1f}" for name, share in self.leaves.items())
        return f"{self.found} of {self.total} dimensions of symmetry are found; the rest lies in {places}"


class _Point(NamedTuple):
    """Weights as one vector, without those that are held or are no numbers, and the way back."""

    flat: jax.Array
    rebuild: Callable[[jax.Array], Params]
    names: np.ndarray
    """The leaf of every entry."""


def completeness(
    spec: SymmetrySpec,
    apply: Callable[..., Any],
    params: Params,
    *inputs: Any,
    key: Key | None = None,
) -> Completeness:
    """Compare the dimension of all symmetries near `params` with that of the spec's own action.

    Args:
        spec: The symmetries that were found.
        apply: The network function.
        params: Its weights, at most a few thousand numbers.
        inputs: The data. More is drawn like them: numbers with their mean and deviation, integers from
            those present; so they should hold every token.
        key: For the noise on the weights and for the data (default: a fixed one).
    """
    check_params(spec, params)
    check_finite(params, "nothing can be measured")
    key = jax.random.key(0) if key is None else key
    size = _flattened(spec, jax.tree.map(jnp.asarray, params)).flat.size
    if size > LARGEST:
        raise ValueError(
            f"the network has {size} parameters; completeness takes at most {LARGEST}: measure a narrow "
            "network of the same architecture"
        )
    best: Completeness | None = None
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(doubled, (params, inputs))
        for noise in NOISES:
            near = _generic(spec, params, noise, keys.named(key, "point"))
            result = _measured(spec, apply, near, inputs, key)
            best = result if best is None or result.missing < best.missing else best
            if not best.missing:
                break
    assert best is not None
    return best


def _measured(
    spec: SymmetrySpec, apply: Callable[..., Any], params: Params, inputs: tuple, key: Key
) -> Completeness:
    specs, params = _with_folded(spec, apply, params, inputs)
    point = _flattened(spec, params)
    tangent = np.concatenate([_tangent(one, params, point) for one in specs], axis=1)
    return _compared(_jacobian(apply, point, inputs, key), tangent, point.names)


def _generic(spec: SymmetrySpec, params: Params, size: float, key: Key) -> Params:
    """The weights with noise; what is positive, as variances are, stays so."""

    def noisy(name: str, leaf: jax.Array) -> jax.Array:
        if name in spec.held or not jnp.issubdtype(leaf.dtype, jnp.floating) or not leaf.size:
            return leaf
        noise = size * jax.random.normal(keys.named(key, name), leaf.shape)
        typical = jnp.sqrt(jnp.mean(leaf**2))
        if jnp.all(leaf > 0):
            return leaf * jnp.exp(noise)
        return leaf + jnp.where(typical > 0, typical, 1) * noise

    return tree.map_named(noisy, params)


def _with_folded(
    spec: SymmetrySpec, apply: Callable[..., Any], params: Params, inputs: tuple
) -> tuple[list[SymmetrySpec], Params]:
    """The spec, and that of the folded network where gains can be folded; the point where both act."""
    folded = fold_gains(apply, params, *inputs) if not spec.held else None
    return ([spec, folded.spec], folded.params) if folded and folded.gains else ([spec], params)


def _flattened(spec: SymmetrySpec, params: Params) -> _Point:
    leaves = tree.named_leaves(params)
    moving = {
        name: leaf
        for name, leaf in leaves.items()
        if name not in spec.held and jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    if any(jnp.iscomplexobj(leaf) for leaf in leaves.values()):
        raise ValueError("completeness needs real weights; some leaf is complex")
    flat, unravel = ravel_pytree(moving)

    def rebuild(vector: jax.Array) -> Params:
        found = unravel(vector)
        return tree.map_named(lambda name, leaf: found.get(name, leaf), params)

    ordered = jax.tree_util.tree_leaves_with_path(moving)
    return _Point(
        flat, rebuild, np.repeat([path[0].key for path, _ in ordered], [a.size for _, a in ordered])
    )


def _jacobian(apply: Callable[..., Any], point: _Point, inputs: tuple, key: Key) -> np.ndarray:
    """Rows of the outputs' Jacobian over many inputs, or random combinations of them: the same null space."""

    def outputs_of(flat: jax.Array, data: tuple) -> jax.Array:
        found = jax.tree.leaves(apply(point.rebuild(flat), *data))
        real = [part for leaf in found for part in (leaf.real, *([leaf.imag] * jnp.iscomplexobj(leaf)))]
        return jnp.concatenate([jnp.ravel(part).astype(flat.dtype) for part in real])

    rows = jax.eval_shape(outputs_of, point.flat, inputs).size
    needed = OUTPUTS_PER_PARAMETER * point.flat.size
    count = 1 + -(-needed // max(rows, 1))
    taken = min(rows, -(-needed // count))

    def slopes(flat: jax.Array, key: Key) -> jax.Array:
        """Of one draw of the data."""
        _, back = jax.vjp(lambda flat: outputs_of(flat, _drawn(inputs, keys.named(key, "data"))), flat)
        mixed = jax.random.normal(keys.named(key, "rows"), (taken, rows))
        weights = jnp.eye(rows) if taken == rows else mixed
        return jax.lax.map(lambda row: back(row)[0], weights, batch_size=64)

    compiled = jax.jit(
        lambda flat, all_keys: jax.lax.map(partial(slopes, flat), all_keys), compiler_options=quick_options()
    )
    found = np.asarray(compiled(point.flat, jax.random.split(key, count))).reshape(-1, point.flat.size)
    if not np.isfinite(found).all():
        raise ValueError("the outputs or their derivatives are not finite on data drawn like the inputs")
    return found


def _drawn(inputs: tuple, key: Key) -> tuple:
    """Data like the inputs."""

    def drawn(name: str, leaf: jax.Array) -> jax.Array:
        own = keys.named(key, name)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.mean(leaf) + jnp.std(leaf) * jax.random.normal(own, leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.ndim:
            return jax.random.choice(own, leaf.reshape(-1), leaf.shape)
        return leaf

    return tree.map_named(drawn, inputs)


def _tangent(spec: SymmetrySpec, params: Params, point: _Point) -> np.ndarray:
    """Velocities of the weights under every generator of the spec, one per column."""
    scales = {
        group.name: jnp.zeros((group.num_scales, *spec.shape(group)))
        for group in spec.groups
        if group.num_scales and not group.is_linear
    }
    matrices = {
        group.name: jnp.zeros((*spec.shape(group), group.size)) for group in spec.groups if group.is_linear
    }
    start, unravel = ravel_pytree((scales, matrices))

    def moved(parameters: jax.Array) -> jax.Array:
        logs, steps = unravel(parameters)
        element = Element(
            {},
            {name: jnp.exp(value) for name, value in logs.items()},
            {},
            {name: _near_identity(spec, name, value) for name, value in steps.items()},
        )
        return _flattened_like(point, act(spec, element, params))

    if not start.size:
        return np.zeros((point.flat.size, 0))
    return np.asarray(jax.jit(jax.jacfwd(moved), compiler_options=quick_options())(start))


def _near_identity(spec: SymmetrySpec, name: str, step: jax.Array) -> jax.Array:
    """A matrix of the group's kind, to first order in the step."""
    group, unit = spec.group(name), jnp.eye(step.shape[-1])
    if group.kind == "invertible":
        return unit + step
    skew = step - jnp.swapaxes(step, -1, -2)
    if group.centred:
        reflection = householder(group.size, step.dtype)
        inner = skew.at[..., 0, :].set(0).at[..., 0].set(0)
        skew = reflection @ inner @ reflection
    return unit + skew


def _flattened_like(point: _Point, params: Params) -> jax.Array:
    leaves = tree.named_leaves(params)
    return ravel_pytree({name: leaves[name] for name in dict.fromkeys(point.names.tolist())})[0]


def _compared(jacobian: np.ndarray, tangent: np.ndarray, names: np.ndarray) -> Completeness:
    _, values, directions = np.linalg.svd(jacobian, full_matrices=False)
    rank = _rank(values)
    flat = directions[rank:].T
    lengths = np.linalg.norm(tangent, axis=0)
    moved = tangent[:, lengths > FLAT * lengths.max(initial=0.0)]
    moved = moved / np.linalg.norm(moved, axis=0)
    if moved.size and np.abs(jacobian @ moved).max() > GAP * FLAT * values[0]:
        raise ValueError(
            "the spec's own action changes the outputs, so it is wrong here; ask symmetry.verify"
        )
    spanned, sizes, _ = np.linalg.svd(moved, full_matrices=False)
    spanned = spanned[:, : _rank(sizes)]
    rest, shares, _ = np.linalg.svd(flat - spanned @ (spanned.T @ flat), full_matrices=False)
    # Directions are orthonormal, so a share is one or zero, but for rounding.
    rest = rest[:, shares > 0.5]
    weights = {str(name): float((rest[names == name] ** 2).sum()) for name in dict.fromkeys(names.tolist())}
    ordered = sorted(weights.items(), key=lambda item: -item[1])
    found, total = spanned.shape[1], flat.shape[1]
    return Completeness(found, total, total - found, {n: share for n, share in ordered if share > 1e-6})


def _rank(values: np.ndarray) -> int:
    """Number of singular values above the gap; `ValueError` where there is none to be seen."""
    if not values.size:
        return 0
    rank = int((values > FLAT * values[0]).sum())
    if rank < len(values) and values[rank - 1] < GAP * values[rank]:
        raise ValueError(
            f"no gap is visible in the singular values: {values[rank - 1] / values[0]:.1e} is followed by "
            f"{values[rank] / values[0]:.1e} of the largest, so the dimension of the symmetry is not clear "
            "here; try other weights, inputs or another key"
        )
    return rank
