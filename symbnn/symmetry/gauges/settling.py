"""Translations taken out: biases that do nothing are zero, and what can move on has moved on.

Along every translation of a spec (`SymmetrySpec.translations`) the leaf that it is named after is left
without a part in its direction: a dead key bias becomes 0, a value bias moves into the output bias, a
LayerNorm shift into the biases of its readers, kernels that read or write a centred value are centred. The
function is the same, and means and variances over samples no longer count differences that no output sees.
"""

import jax
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
    part is measured by, so `balance` and `fold_gains` come first, and `align` last. A gain that is zero
    somewhere is refused; inside `vmap` or `jit`, where it cannot be seen, what it divides stays as it is.
    """
    check_params(spec, params)
    _check_powers(spec, params)
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
    is_finite = jnp.all(jnp.isfinite(direction))
    # In its largest entry, whose square would else overflow.
    size = jnp.where(is_finite, jnp.max(jnp.abs(direction)), 1.0)
    unit = direction / jnp.where(size == 0, 1.0, size)
    amount = (unit * leaf).sum(axes) / (unit * unit).sum(axes) / size
    moved = translate(translation, -amount.reshape(translation.shape), params)
    return jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), moved, params)


def _check_powers(spec: SymmetrySpec, params: Params) -> None:
    """`ValueError` naming a leaf that is zero somewhere and divided by; traced ones pass."""
    leaves = {name: jnp.asarray(leaf) for name, leaf in tree.named_leaves(params).items()}
    powers = [power for one in spec.translations for change in one.changes for power in change.powers]
    for power in powers:
        base = part(leaves, power.place) + power.offset
        if power.exponent < 0 and not isinstance(base, jax.core.Tracer) and bool((base == 0).any()):
            raise ValueError(
                f"leaf {power.place.leaf!r} is zero somewhere, so the translations behind it have no "
                "direction; nothing can be settled along them"
            )
