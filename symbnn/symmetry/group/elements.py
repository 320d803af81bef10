"""Elements of the symmetry group: the identity, random ones, products and inverses.

act(compose(g, h), params) = act(g, act(h, params)). With A the part of an element that permutes, rescales and
flips and M its matrices, (M, A)(M', A') = (M · A M' A^-1, A A'): the arrays of an element transform under
another one like leaves, a matrix as one with a vector and a dual axis.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys
from symbnn.symmetry.group.act import Element, act_piece, check_element, permute, relabel, transposed
from symbnn.symmetry.group.matrices import fixing_ones, random_invertible, random_orthogonal
from symbnn.symmetry.spec import Factor, Group, Piece, SymmetrySpec
from symbnn.types import Key


def identity(spec: SymmetrySpec) -> Element:
    """The element that changes nothing."""
    return Element(
        permutations={
            group.name: jnp.broadcast_to(jnp.arange(group.size, dtype=jnp.int32), spec.shape(group))
            for group in spec.groups
        },
        scales={g.name: jnp.ones((g.num_scales, *spec.shape(g))) for g in spec.groups if g.num_scales},
        signs={g.name: jnp.ones((g.num_signs, *spec.shape(g))) for g in spec.groups if g.num_signs},
        matrices={
            g.name: jnp.broadcast_to(jnp.eye(g.size), (*spec.shape(g), g.size))
            for g in spec.groups
            if g.is_linear
        },
    )


def random_element(spec: SymmetrySpec, key: Key, *, log_scale: float = 0.5) -> Element:
    """Uniform permutations, signs and orthogonal matrices; scales exp(log_scale · N(0, 1)).

    Invertible matrices have condition numbers of at most ten: float32 loses one digit by them, not all.
    """
    return _random_element(spec, key, jnp.asarray(log_scale))


def compose(spec: SymmetrySpec, g: Element, h: Element) -> Element:
    """The element that acts as h first, then g."""
    g, h = _completed(spec, g), _completed(spec, h)
    return Element(
        {name: relabel(spec, g, spec.group(name), value) for name, value in h.permutations.items()},
        {name: g.scales[name] * value for name, value in _relabelled(spec, g, h.scales).items()},
        {name: g.signs[name] * value for name, value in _relabelled(spec, g, h.signs).items()},
        {name: g.matrices[name] @ value for name, value in _conjugated(spec, g, h.matrices).items()},
    )


def inverse(spec: SymmetrySpec, g: Element) -> Element:
    """The element that undoes g."""
    g = _completed(spec, g)
    permutations: dict[str, jax.Array] = {}
    for group in spec.groups:
        # π'[ρ(i)] = π[i]^-1: invert row by row, then move the rows by the inverse of what g does to them.
        undone = Element(permutations, {}, {})
        rows = jnp.argsort(g.permutations[group.name], axis=-1)
        permutations[group.name] = permute(spec, undone, group.over, rows)
    undone = Element(permutations, {}, {})
    inverted = {name: 1 / value for name, value in g.scales.items()}
    undone = Element(permutations, _relabelled(spec, undone, inverted), _relabelled(spec, undone, g.signs))
    return undone._replace(
        matrices=_conjugated(
            spec,
            undone,
            {name: _inverted(spec.group(name), value) for name, value in g.matrices.items()},
        )
    )


def _completed(spec: SymmetrySpec, element: Element) -> Element:
    """The element with the identity wherever it says nothing."""
    check_element(spec, element)
    return Element(*(none | given for none, given in zip(identity(spec), element, strict=True)))


def _relabelled(spec: SymmetrySpec, element: Element, arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Arrays of several generators, by group, in the labels that the element gives."""
    return {
        name: jax.vmap(functools.partial(relabel, spec, element, spec.group(name)))(value)
        for name, value in arrays.items()
    }


def _conjugated(spec: SymmetrySpec, element: Element, matrices: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """A M A^-1 for the part A of the element that permutes, rescales and flips."""
    monomial = element._replace(matrices={})
    return {
        name: act_piece(spec, monomial, Piece(_matrix_factors(spec, spec.group(name)), value))
        for name, value in matrices.items()
    }


def _matrix_factors(spec: SymmetrySpec, group: Group) -> tuple[Factor, ...]:
    """How a group's matrices transform: rows as vectors, columns as duals."""
    zero, signs = Factor(group.size, group.name), (1,) * group.num_signs
    vector, dual = (
        Factor(zero.size, zero.group, (exponent,) * group.num_scales, signs)  # type: ignore[arg-type]
        for exponent in (1, -1)
    )
    return (*(Factor(spec.size(name), name) for name in group.over), vector, dual)


def _inverted(group: Group, matrices: jax.Array) -> jax.Array:
    return jnp.linalg.inv(matrices) if group.kind == "invertible" else transposed(matrices)


@functools.partial(jax.jit, static_argnums=0)
def _random_element(spec: SymmetrySpec, key: Key, log_scale: jax.Array) -> Element:
    """One draw of each kind for all groups together: a sort per group would compile for long."""
    none = identity(spec)
    rows = np.asarray([g.size for g in spec.groups for _ in range(math.prod(spec.shape(g)[:-1]))], int)
    row = np.repeat(np.arange(len(rows)), rows)
    within = np.arange(len(row)) - (np.cumsum(rows) - rows)[row]
    total = {name: sum(value.size for value in part.values()) for name, part in none._asdict().items()}
    order = jax.random.uniform(keys.named(key, "permutation"), (total["permutations"],))
    # Sorted by row, then by chance: the positions within each row come out shuffled.
    *_, positions = jax.lax.sort((jnp.asarray(row), order, jnp.asarray(within)), num_keys=2)
    scales = jnp.exp(log_scale * jax.random.normal(keys.named(key, "scale"), (total["scales"],)))
    signs = jax.random.rademacher(keys.named(key, "sign"), (total["signs"],), dtype=scales.dtype)
    return Element(
        _shaped_like(none.permutations, positions),
        _shaped_like(none.scales, scales),
        _shaped_like(none.signs, signs),
        _random_matrices(spec, keys.named(key, "matrix")),
    )


def _random_matrices(spec: SymmetrySpec, key: Key) -> dict[str, jax.Array]:
    """Groups of one kind and size are drawn together: decompositions, too, compile for long."""
    alike: dict[tuple, list[Group]] = {}
    for group in spec.groups:
        if group.is_linear:
            alike.setdefault((group.kind, group.centred, group.size), []).append(group)
    found: dict[str, jax.Array] = {}
    for (kind, centred, size), groups in alike.items():
        shapes = {group.name: (*spec.shape(group), size) for group in groups}
        count = sum(math.prod(shape[:-2]) for shape in shapes.values())
        own = keys.named(key, f"{kind} {centred} {size}")
        if kind == "invertible":
            drawn = random_invertible(own, count, size)
        else:
            drawn = random_orthogonal(own, count, size - centred)
            drawn = fixing_ones(drawn) if centred else drawn
        empty = {name: jnp.empty(shape) for name, shape in shapes.items()}
        found |= _shaped_like(empty, drawn.reshape(-1))
    return {group.name: found[group.name] for group in spec.groups if group.name in found}


def _shaped_like(arrays: dict[str, jax.Array], flat: jax.Array) -> dict[str, jax.Array]:
    result, start = {}, 0
    for name, array in arrays.items():
        result[name] = flat[start : start + array.size].reshape(array.shape)
        start += array.size
    return result
