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
from symbnn.symmetry.group.translate import translate
from symbnn.symmetry.group.verify import doubled
from symbnn.symmetry.jacobian import jacobian_of
from symbnn.symmetry.numerics import check_finite, quick_options
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Key, Params

LARGEST = 4000
"""Parameters: beyond, a singular value decomposition takes minutes and gigabytes."""

# Noise on every weight, relative to its leaf: enough to leave what is special about a point. Where something
# is missing other points are tried, as a unit may still be dead, until two of them agree.
NOISES = (0.3, 1.0, 1.0, 1.0)
# Directions along which outputs change by less than this share of the largest change may be symmetries, and
# must then differ from all others by at least this factor. Rounding leaves 1e-16 to 1e-14; true changes of
# attention behind attention go down to 1e-10.
FLAT, GAP = 1e-12, 100.0


class Completeness(NamedTuple):
    """How many dimensions of symmetry a network has near some weights, and how many a spec explains."""

    found: int
    """Of what the spec spans by its action and its translations, with rotations that `fold_gains` frees."""
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
        inputs: The data. More is drawn like them: numbers with their mean, narrower and wider, integers
            from those present; so they should hold every token.
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
    results: list[Completeness] = []
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(doubled, (params, inputs))
        measure = _measuring(spec, apply, inputs, key)
        for number, noise in enumerate(NOISES):
            result = measure(_generic(spec, params, noise, jax.random.fold_in(key, number)))
            is_settled = not result.missing or any(result.total == other.total for other in results)
            results.append(result)
            if is_settled:
                break
    # A special point has more symmetries than its neighbours, never fewer.
    return min(results, key=lambda result: result.total)


def _measuring(
    spec: SymmetrySpec, apply: Callable[..., Any], inputs: tuple, key: Key
) -> Callable[[Params], Completeness]:
    """What measures at one point after another; outputs and actions are compiled once."""
    slopes: list[Callable[[jax.Array], np.ndarray]] = []
    tangents: dict[SymmetrySpec, Callable[[Params], jax.Array]] = {}

    def measure(params: Params) -> Completeness:
        specs, params = _with_folded(spec, apply, params, inputs)
        point = _flattened(spec, params)
        if not slopes:
            slopes.append(jacobian_of(apply, point.rebuild, point.flat.size, inputs, key))
        for one in specs:
            tangents.setdefault(one, _tangent_of(one, point.names))
        tangent = np.concatenate([np.asarray(tangents[one](params)) for one in specs], axis=1)
        return _compared(slopes[0](point.flat), tangent, point.names)

    return measure


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


def _tangent_of(spec: SymmetrySpec, names: np.ndarray) -> Callable[[Params], jax.Array]:
    """Velocities of the weights under every generator of the spec, one per column, as a function of them."""
    scales = {
        group.name: jnp.zeros((group.num_scales, *spec.shape(group)))
        for group in spec.groups
        if group.num_scales and not group.is_linear
    }
    matrices = {
        group.name: jnp.zeros((*spec.shape(group), group.size)) for group in spec.groups if group.is_linear
    }
    amounts = [jnp.zeros(translation.shape) for translation in spec.translations]
    start, unravel = ravel_pytree((scales, matrices, amounts))

    def moved(parameters: jax.Array, params: Params) -> jax.Array:
        logs, steps, amounts = unravel(parameters)
        for translation, amount in zip(spec.translations, amounts, strict=True):
            params = translate(translation, amount, params)
        element = Element(
            {},
            {name: jnp.exp(value) for name, value in logs.items()},
            {},
            {name: _near_identity(spec, name, value) for name, value in steps.items()},
        )
        leaves = tree.named_leaves(act(spec, element, params))
        return ravel_pytree({name: leaves[name] for name in dict.fromkeys(names.tolist())})[0]

    if not start.size:
        return lambda params: jnp.zeros((names.size, 0))
    return jax.jit(partial(jax.jacfwd(moved), start), compiler_options=quick_options())


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
