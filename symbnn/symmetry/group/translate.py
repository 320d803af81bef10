"""Translations applied to weights: exact at any amount, one after the other."""

import string

import jax
import jax.numpy as jnp

from symbnn import keys, tree
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.symmetry.spec.translations import Change, Cut, Place, Translation
from symbnn.types import Key, Params


def translate(translation: Translation, amount: jax.Array, params: Params) -> Params:
    """The weights moved by an amount of the translation's shape."""
    leaves = {name: jnp.asarray(leaf) for name, leaf in tree.named_leaves(params).items()}
    moved = dict(leaves)
    for change in translation.changes:
        added = step(translation, change, amount, leaves)
        name = change.place.leaf
        moved[name] = _added(moved[name], change.place.cuts, added)
    return tree.map_named(lambda name, leaf: moved[name] if name in translation.leaves else leaf, params)


def random_translation(spec: SymmetrySpec, key: Key, params: Params, *, size: float = 1.0) -> Params:
    """The weights moved along every translation of the spec, by normal amounts."""
    for number, translation in enumerate(spec.translations):
        dtype = jnp.result_type(tree.named_leaves(params)[translation.changes[0].place.leaf])
        own = keys.named(jax.random.fold_in(key, number), "translation")
        params = translate(translation, size * jax.random.normal(own, translation.shape, dtype), params)
    return params


def step(
    translation: Translation, change: Change, amount: jax.Array, leaves: dict[str, jax.Array]
) -> jax.Array:
    """What is added to the leaf of a change."""
    sizes = dict(translation.sizes)
    leaf = part(leaves, change.place)
    letters = {index: string.ascii_letters[number] for number, index in enumerate(sizes)}
    arrays, words = [], []
    factors = [
        ((part(leaves, power.place) + power.offset) ** _exponent(power.exponent), power.axes)
        for power in change.powers
    ]
    for array, axes in ((amount, change.amount), *factors):
        arrays.append(array.reshape([sizes[index] for axis in axes for index in axis]))
        words.append("".join(letters[index] for axis in axes for index in axis))
    kept = [index for axis in change.axes for index in axis if letters[index] in "".join(words)]
    found = jnp.einsum(f"{','.join(words)}->{''.join(letters[index] for index in kept)}", *arrays)
    spread = [sizes[index] if index in kept else 1 for axis in change.axes for index in axis]
    whole = jnp.broadcast_to(found.reshape(spread), [sizes[i] for axis in change.axes for i in axis])
    return (change.coefficient * whole.reshape(leaf.shape)).astype(leaf.dtype)


def part(leaves: dict[str, jax.Array], place: Place) -> jax.Array:
    """The part of a leaf that a place names."""
    leaf = leaves[place.leaf]
    for cut in place.cuts:
        leaf = _taken(leaf, cut)
    return leaf


def _taken(array: jax.Array, cut: Cut) -> jax.Array:
    blocks = _blocks(array, cut)
    taken = jax.lax.slice_in_dim(blocks, cut.start, cut.start + cut.length, axis=cut.axis + 1)
    return taken.reshape(*array.shape[: cut.axis], cut.outer * cut.length, *array.shape[cut.axis + 1 :])


def _added(array: jax.Array, cuts: tuple[Cut, ...], added: jax.Array) -> jax.Array:
    """The array with something added to a part of it."""
    if not cuts:
        return array + added
    first, *rest = cuts
    new = _blocks(_added(_taken(array, first), tuple(rest), added), first)
    blocks = jax.lax.dynamic_update_slice_in_dim(_blocks(array, first), new, first.start, axis=first.axis + 1)
    return blocks.reshape(array.shape)


def _blocks(array: jax.Array, cut: Cut) -> jax.Array:
    return array.reshape(*array.shape[: cut.axis], cut.outer, -1, *array.shape[cut.axis + 1 :])


def _exponent(exponent: float) -> float | int:
    """Whole powers of negative numbers are real."""
    return int(exponent) if float(exponent).is_integer() else exponent
