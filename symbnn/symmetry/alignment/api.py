"""`align`: many networks, one labelling of their hidden units."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.symmetry.act import Element, identity
from symbnn.symmetry.alignment.descent import HostPermutations
from symbnn.symmetry.alignment.features import weight_features
from symbnn.symmetry.alignment.match import Search, extract_one, match
from symbnn.symmetry.relabel import permute
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Key, Params, Samples

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
    """Agreement with the reference after every round, `(rounds, samples)`; its sum never falls."""
    converged: np.ndarray
    """Which samples could not be improved any more within the given number of rounds."""


def align(
    spec: SymmetrySpec,
    samples: Samples,
    *,
    reference: Params | int | None = None,
    restarts: int = 0,
    key: Key | None = None,
    max_sweeps: int = 100,
    tolerance: float = 1e-6,
) -> Aligned:
    """Relabel the hidden units of every sample so that they fit the reference."""
    _check_samples(spec, samples)
    target = _reference_params(spec, samples, reference)
    features = weight_features(spec, target)
    search = Search(restarts, key, max_sweeps, tolerance)
    found = match(spec, features, samples, extract_one(features, target), search)
    elements = stacked_elements(spec, found.permutations)
    return Aligned(move(spec, elements, samples), elements, target, found.objective, found.converged)


def stacked_elements(spec: SymmetrySpec, permutations: HostPermutations) -> Element:
    """Elements of many networks that only permute."""
    num = len(next(iter(permutations.values()))) if permutations else 0
    unit = identity(spec)
    rest = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), unit._replace(permutations={})
    )
    return rest._replace(permutations={name: jnp.asarray(value) for name, value in permutations.items()})


@partial(jax.jit, static_argnames="spec")
def move(spec: SymmetrySpec, elements: Element, samples: Samples) -> Samples:
    """Every sample relabelled by its element, a few at a time: one copy of the samples, not two."""
    return jax.lax.map(
        lambda both: permute(spec, *both), (elements.permutations, samples), batch_size=MOVED_TOGETHER
    )


def _reference_params(spec: SymmetrySpec, samples: Samples, reference: Params | int | None) -> Params:
    if reference is None:
        reference = 0
    if isinstance(reference, int):
        num = tree.num_samples(samples)
        if not -num <= reference < num:
            raise ValueError(f"reference sample {reference} is out of range; there are {num} samples")
        return tree.take(samples, reference)
    check_params(spec, reference)
    return reference


def _check_samples(spec: SymmetrySpec, samples: Samples) -> None:
    check_params(spec, samples, num_leading=1)
    if tree.num_samples(samples) == 0:
        raise ValueError("there are no samples: the leading axis of every leaf has length 0")
    for name, leaf in tree.named_leaves(samples).items():
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not bool(jnp.all(jnp.isfinite(leaf))):
            raise ValueError(f"leaf {name!r} has values that are not finite; they cannot be matched")
