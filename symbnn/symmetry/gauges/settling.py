"""Translations taken out: biases that do nothing are zero, and what can move on has moved on.

Along every translation of a spec (`SymmetrySpec.translations`) the leaf that it is named after is left
without a part in its direction: a dead key bias becomes 0, a value bias moves into the output bias, a
LayerNorm shift into the biases of its readers, kernels that read or write a centred value are centred. The
function is the same, and means and variances over samples no longer count differences that no output sees.
"""

import jax.numpy as jnp

from symbnn import tree
from symbnn.symmetry.group.translate import part, step, translate
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.symmetry.spec.translations import Translation
from symbnn.types import Params

SWEEPS = 2
"""What one translation moves on may have a part along another: a shift that moves into positions."""


def settle(spec: SymmetrySpec, params: Params) -> Params:
    """The weights without any part along the spec's translations: the same function, one point for all.

    `jax.vmap(lambda p: settle(spec, p))(samples)` settles many networks. Scales and matrices change what a
    part is measured by, so `balance` and `fold_gains` come first, and `align` last.
    """
    check_params(spec, params)
    whole = [one for one in spec.translations if not _is_along(one)]
    along = [one for one in spec.translations if _is_along(one)]
    for translation in SWEEPS * (whole + along):
        params = _without(translation, params)
    return params


def _is_along(translation: Translation) -> bool:
    return bool(_axes(translation))


def _axes(translation: Translation) -> tuple[int, ...]:
    """Axes of the leaf along which the translation has a direction."""
    first = translation.changes[0]
    own = {index for axis in first.amount for index in axis}
    return tuple(axis for axis, indices in enumerate(first.axes) if not {*indices} <= own)


def _without(translation: Translation, params: Params) -> Params:
    """Moved by t = −⟨u, leaf⟩ / ⟨u, u⟩ with the direction u."""
    leaves = {name: jnp.asarray(leaf) for name, leaf in tree.named_leaves(params).items()}
    first, axes = translation.changes[0], _axes(translation)
    leaf = part(leaves, first.place)
    direction = step(translation, first, jnp.ones(translation.shape, leaf.dtype), leaves)
    amount = (direction * leaf).sum(axes) / (direction * direction).sum(axes)
    return translate(translation, -amount.reshape(translation.shape), params)
