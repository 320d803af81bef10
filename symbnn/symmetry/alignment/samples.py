"""Samples before and after alignment: checked first, moved by the elements that were found in the end."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.features import element_of
from symbnn.symmetry.alignment.search import HostPermutations
from symbnn.symmetry.group import Element, act, identity
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Params, Samples

# Networks relabelled in one step of the final pass.
MOVED_TOGETHER = 8


class Aligned(NamedTuple):
    """Samples in one labelling."""

    samples: Samples
    """The samples, each moved by its element: the same functions."""
    elements: Element
    """Stacked: `act(spec, element, sample)` is the aligned sample."""
    reference: Params
    """The network, or mean of networks, that the samples were aligned to."""
    objective: np.ndarray
    """Agreement with the reference, `(rounds, samples)`, an inner product; its sum over samples never falls.
    With reference `"mean"` it is the mean inner product with the *other* samples, so the mean over samples is
    that of two different samples; 0 for a sample alone."""
    converged: np.ndarray
    """Which samples could not be improved any more within the given number of rounds."""
    num_chains: int | None = None
    """Chains that the samples come from, if that is known: so the result can be given as samples itself."""


def check_samples(spec: SymmetrySpec, samples: Samples) -> None:
    """`ValueError` for samples that do not fit the spec, are none, or are not finite."""
    check_params(spec, samples, num_leading=1)
    if not spec.groups:
        raise ValueError("the spec has no groups, so there is nothing to align")
    if tree.num_samples(samples) == 0:
        raise ValueError("align needs at least one sample; the leading axis of every leaf has length 0")
    for name, leaf in tree.named_leaves(samples).items():
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ValueError(f"leaf {name!r} is complex; only networks with real weights can be aligned")
    check_finite(samples, "networks with infinite or missing weights cannot be aligned")


def stacked_elements(spec: SymmetrySpec, permutations: HostPermutations) -> Element:
    """Elements of many networks that permute, flip and rotate, but do not rescale."""
    num = len(next(iter(permutations.values()), ()))
    unit = identity(spec)._replace(permutations={})
    ones = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), unit)
    found = element_of({name: jnp.asarray(value) for name, value in permutations.items()})
    signs = {name: value.astype(ones.signs[name].dtype) for name, value in found.signs.items()}
    matrices = {name: value.astype(ones.matrices[name].dtype) for name, value in found.matrices.items()}
    return Element(found.permutations, ones.scales, ones.signs | signs, ones.matrices | matrices)


@partial(jax.jit, static_argnames="spec")
def move(spec: SymmetrySpec, elements: Element, samples: Samples) -> Samples:
    """Every sample moved by its element, a few at a time: one copy of the samples, not two."""
    # A rescaling by one may still round.
    both = elements._replace(scales={}), samples
    return jax.lax.map(lambda one: act(spec, *one), both, batch_size=MOVED_TOGETHER)
