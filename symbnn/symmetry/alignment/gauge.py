"""Invertible matrices out of the way: networks are compared where rotations are all that is left of them.

Where any invertible matrix may mix units (`Group.kind`), copies of one network need not have a number in
common, and no rotation brings them together. So every network x_s is moved by the matrices b_s that give it
least mass (`gauges.mixing`), is matched there, by an element q_s, and then goes where the reference r is:

    g_s = b_r^-1 · q_s · b_s.

The line between the reference and the result is then that between b_r r and q_s b_s x_s, moved as a whole:
the functions on it are the same. Means and medoids, which are no network of the caller's, stay balanced.
Groups of units that cannot be balanced (`CONDITION`) are matched by rotations only, with a warning.
"""

import warnings
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.samples import MOVED_TOGETHER, Aligned, move
from symbnn.symmetry.gauges import balancing, mixed_groups
from symbnn.symmetry.group import Element, act, compose, inverse
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Params, Samples

CONDITION = 1e3
"""Of balancing matrices: float32 loses three of its seven digits by them. Weights that nothing reads, as in a
product of matrices through more units than its rank, have no least mass, and matrices of any condition."""


class Gauge(NamedTuple):
    """Networks where they are compared, and how they came there."""

    samples: Samples
    reference: Params
    elements: Element | None = None
    """Stacked, of the samples; None if all are where they were."""
    back: Element | None = None
    """From there to where the reference was; None if the result stays."""


def balanced(spec: SymmetrySpec, samples: Samples, reference: Params, *, is_own: bool) -> Gauge:
    """Networks with all invertible matrices balanced; `is_own` if the caller named the reference."""
    if not mixed_groups(spec):
        return Gauge(samples, reference)
    alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reference)
    elements, element = _tame(_balancing(spec, samples), _balancing(spec, alone))
    return Gauge(
        move(spec, elements, samples),
        tree.take(move(spec, element, alone), 0),
        elements,
        inverse(spec, tree.take(element, 0)) if is_own else None,
    )


def restored(spec: SymmetrySpec, gauge: Gauge, aligned: Aligned) -> Aligned:
    """The result as elements of the networks that were given, where their reference was."""
    if gauge.elements is None:
        return aligned
    elements = jax.vmap(partial(_joined, spec, gauge.back))(aligned.elements, gauge.elements)
    if gauge.back is None:
        return aligned._replace(elements=elements)
    num = tree.num_samples(aligned.samples)
    back = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), gauge.back)
    return aligned._replace(
        samples=move(spec, back, aligned.samples),
        elements=elements,
        reference=act(spec, gauge.back, aligned.reference),
    )


def _tame(*elements: Element) -> list[Element]:
    """Without the groups of which some network has matrices that would cost float32 its digits."""
    kept = {
        name
        for name in elements[0].matrices
        if all(np.linalg.cond(np.asarray(each.matrices[name])).max() < CONDITION for each in elements)
    }
    if wild := sorted(elements[0].matrices.keys() - kept):
        warnings.warn(
            f"units of {', '.join(map(repr, wild))} cannot be balanced: some network uses fewer directions "
            "of them than there are, so they are rotated onto the reference, but not mixed by other matrices",
            RuntimeWarning,
            stacklevel=4,
        )
    return [
        each._replace(matrices={name: value for name, value in each.matrices.items() if name in kept})
        for each in elements
    ]


def _joined(spec: SymmetrySpec, back: Element | None, found: Element, first: Element) -> Element:
    both = compose(spec, found, first)
    return both if back is None else compose(spec, back, both)


def _balancing(spec: SymmetrySpec, samples: Samples) -> Element:
    """In float64, as eigenvalues of products of Gram matrices span the fourth power of the weights' range."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    with jax.enable_x64(True):
        found = _balancing_of_all(spec, samples)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), found)


@partial(jax.jit, static_argnames="spec")
def _balancing_of_all(spec: SymmetrySpec, samples: Samples) -> Element:
    def one(params: Params) -> Element:
        wide = jax.tree.map(_widened, params)
        return balancing(spec, wide)

    return jax.lax.map(one, samples, batch_size=MOVED_TOGETHER)


def _widened(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
