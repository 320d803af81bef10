"""Gauges of units that matrices mix: minimum mass over GL(n), and principal axes of what rotations leave.

With S₁ the sum of the Gram matrices of all weights that transform as vectors, x → A x, and S₂ of the duals,
x → A^-T x, the mass is tr(S₁ M) + tr(S₂ M⁻¹) with M = A Aᵀ > 0. It is convex along geodesics, and least at

    M = S₁^-½ (S₁^½ S₂ S₁^½)^½ S₁^-½,

where S₁ and S₂ become equal; for 1 × 1 that is the scale s² = √(S₂ / S₁). What is left is O(n), and the
eigenvectors of S₁ + S₂ are axes that every rotation of the network shares.
"""

import jax
import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.gauges.mass import counted, mass_of
from symbnn.symmetry.group import Element, act, compose, identity
from symbnn.symmetry.group.act import transposed
from symbnn.symmetry.group.matrices import fixing_ones, householder
from symbnn.symmetry.spec import Factor, Group, Piece, SymmetrySpec, split
from symbnn.types import Params

# Weights of rank below n have no minimum in the directions that they miss: those count as if they had this
# share of the network's mass. Its square is what float64 still resolves in the product of two Gram matrices.
RIDGE = 1e-7
GAP = 1e-8
"""Between Gram matrices of vectors and duals, relative: the mass is flat there to all of float64's digits."""
TURNS = 50
"""Most rounds over groups that share weights; one is enough for those that share none."""
# Steps in a turn for weights that carry a group twice, which no single step balances.
REPEATED = 12


def mixed_groups(spec: SymmetrySpec) -> list[Group]:
    """Groups that any invertible matrix may mix."""
    return [group for group in spec.groups if group.kind == "invertible"]


def balancing(spec: SymmetrySpec, params: Params) -> Element:
    """The matrices of least mass, all scales as they are; traceable, of weights in float64."""
    mass = mass_of(spec, params, count_bias=True).total()

    def turn(state: tuple[Element, jax.Array, jax.Array]) -> tuple[Element, jax.Array, jax.Array]:
        element, _, number = state
        step, gap = balanced_once(spec, act(spec, element, params), True, mass)
        return compose(spec, step, element), gap, number + 1

    def is_open(state: tuple[Element, jax.Array, jax.Array]) -> jax.Array:
        return (state[1] > GAP) & (state[2] < TURNS)

    start = identity(spec), jnp.full((), jnp.inf), jnp.array(0)
    return Element({}, {}, {}, jax.lax.while_loop(is_open, turn, start)[0].matrices)


def balanced_once(
    spec: SymmetrySpec, params: Params, count_bias: bool, mass: jax.Array
) -> tuple[Element, jax.Array]:
    """The element that balances every invertible group, one after the other, and how unbalanced they were.

    `mass` is that of the network before anything was balanced.
    """
    matrices, residual = dict[str, jax.Array](), jnp.zeros(())
    for group in mixed_groups(spec):
        vectors, duals = gram_matrices(spec, group, params, count_bias)
        gap = _size(vectors - duals) / jnp.maximum(_size(vectors) + _size(duals), jnp.finfo(float).tiny)
        residual = jnp.maximum(residual, jnp.max(gap))
        is_repeated = _occurs_twice(spec, group)
        step = _balancing(vectors, duals, mass, is_repeated)
        if is_repeated:
            step = _repeated(spec, group, params, step, count_bias, mass)
        matrices[group.name] = step
        params = act(spec, Element({}, {}, {}, {group.name: step}), params)
    return Element({}, {}, {}, matrices), residual


def _balancing(vectors: jax.Array, duals: jax.Array, mass: jax.Array, is_repeated: bool) -> jax.Array:
    """Where the other axis of the weights moves along, half the step keeps it from going too far."""
    step = _root_of_metric(vectors, duals, mass)
    return _power(step, 0.5) if is_repeated else step


def _repeated(
    spec: SymmetrySpec, group: Group, params: Params, first: jax.Array, count_bias: bool, mass: jax.Array
) -> jax.Array:
    def further(_, total: jax.Array) -> jax.Array:
        moved = act(spec, Element({}, {}, {}, {group.name: total}), params)
        return _balancing(*gram_matrices(spec, group, moved, count_bias), mass, True) @ total

    return jax.lax.fori_loop(0, REPEATED, further, first)


def gram_matrices(
    spec: SymmetrySpec, group: Group, params: Params, count_bias: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Sums `(*over, n, n)` over all weights that carry a group: as vectors, and as duals."""
    arrays = tree.named_leaves(params)
    zeros = jnp.zeros((*spec.shape(group), group.size))
    sums = {False: zeros, True: zeros}
    for leaf in counted(spec, count_bias):
        array = arrays[leaf.name]
        if not jnp.issubdtype(array.dtype, jnp.floating):
            continue
        for piece in split(leaf.axes, array):
            for axis, factor in enumerate(piece.factors):
                if factor.group == group.name:
                    is_dual = any(exponent < 0 for exponent in factor.scales)
                    sums[is_dual] = sums[is_dual] + _gram(group, piece, axis)
    return sums[False], sums[True]


def principal_axes(spec: SymmetrySpec, params: Params) -> Params:
    """The network with the units of every group that rotates along its principal axes, largest first.

    Where two axes have the same weight they are not unique. Which way round an axis is remains to be said by
    signs, except for groups that fix the vector of ones, which have none: there most weight is positive.
    """
    for group in spec.groups:
        if not group.is_linear:
            continue
        vectors, duals = gram_matrices(spec, group, params)
        total = vectors + duals
        if not group.centred:
            rotation = transposed(jnp.linalg.eigh(total)[1][..., ::-1])
        else:
            reflection = householder(group.size, total.dtype)
            inner = (reflection @ total @ reflection)[..., 1:, 1:]
            rotation = transposed(jnp.linalg.eigh(inner)[1][..., ::-1])
            rotation = fixing_ones(_turned(spec, group, params, rotation))
        params = act(spec, Element({}, {}, {}, {group.name: rotation}), params)
    return params


def _turned(spec: SymmetrySpec, group: Group, params: Params, rotation: jax.Array) -> jax.Array:
    """Axes turned so that their cubed weights have a positive sum, over weights that nothing else turns."""
    arrays = tree.named_leaves(params)
    reflection = householder(group.size, rotation.dtype)[1:]
    sums = jnp.zeros(rotation.shape[:-1])
    for leaf in counted(spec, True):
        for piece in split(leaf.axes, arrays[leaf.name]):
            for axis, factor in enumerate(piece.factors):
                others = [*piece.factors[:axis], *piece.factors[axis + 1 :]]
                if factor.group == group.name and not any(_turns(spec, other) for other in others):
                    front = [_position(piece.factors, name) for name in group.over] + [axis]
                    rest = [number for number in range(piece.array.ndim) if number not in front]
                    rows = piece.array.transpose(front + rest)
                    rows = rows.reshape(*rows.shape[: len(front)], -1)
                    sums = sums + jnp.sum((rotation @ reflection @ rows) ** 3, axis=-1)
    return jnp.where(sums < 0, -1, 1)[..., None] * rotation


def _turns(spec: SymmetrySpec, factor: Factor) -> bool:
    """Whether signs or matrices of a group act on the axis."""
    groups = {group.name: group for group in spec.groups}
    group = groups.get(factor.group or "")
    return group is not None and (group.is_linear or any(parity % 2 for parity in factor.signs))


def _gram(group: Group, piece: Piece, axis: int) -> jax.Array:
    rank = piece.array.ndim
    left, right = list(range(rank)), list(range(rank))
    right[axis] = rank
    over = [_position(piece.factors, name) for name in group.over]
    return jnp.einsum(piece.array, left, piece.array, right, [*over, axis, rank], precision="highest")


def _position(factors: tuple[Factor, ...], name: str) -> int:
    return [factor.group for factor in factors].index(name)


def _occurs_twice(spec: SymmetrySpec, group: Group) -> bool:
    return any(
        sum(factor.group == group.name for factor in piece) > 1
        for leaf in spec.leaves
        for piece in leaf.pieces()
    )


def _root_of_metric(vectors: jax.Array, duals: jax.Array, mass: jax.Array) -> jax.Array:
    """The symmetric A with A Aᵀ = M of the module's docstring."""
    ridge = jnp.where(mass > 0, RIDGE * mass, 1) * jnp.eye(vectors.shape[-1])
    vectors, duals = vectors + ridge, duals + ridge
    root, inverse = _power(vectors, 0.5), _power(vectors, -0.5)
    return _power(inverse @ _power(root @ duals @ root, 0.5) @ inverse, 0.5)


def _power(matrices: jax.Array, exponent: float) -> jax.Array:
    """Of symmetric positive matrices."""
    values, axes = jnp.linalg.eigh((matrices + transposed(matrices)) / 2)
    floor = RIDGE**2 * jnp.max(values, axis=-1, keepdims=True)
    return (axes * jnp.maximum(values, floor)[..., None, :] ** exponent) @ transposed(axes)


def _size(matrices: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(matrices**2, axis=(-2, -1)))
