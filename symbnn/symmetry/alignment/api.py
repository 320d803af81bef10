"""`align`: many networks, one labelling of their hidden units.

Weight matching follows Git Re-Basin (Ainsworth, Hayase & Srinivasa 2023), Frank-Wolfe follows C2M3
(Crisostomi et al. 2024), activation matching by inner products is the recipe of Xiao, Liu & Bamler (2023).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import tree
from symbnn.names import lookup
from symbnn.symmetry.alignment.chain import match_chains
from symbnn.symmetry.alignment.features import Activations, Apply, Arrays, Features, element_of, in_units
from symbnn.symmetry.alignment.match import Search, extract_one, match
from symbnn.symmetry.alignment.methods import METHODS, PUBLIC_METHODS, Way, features_of
from symbnn.symmetry.alignment.precision import match_by_precision
from symbnn.symmetry.alignment.reference import match_to_mean, medoid, reference_params
from symbnn.symmetry.alignment.search import SOLVERS, Descent, HostPermutations, on_device
from symbnn.symmetry.group import Element, act_leaf, identity
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Key, Params, Samples

# Networks relabelled in one step of the final pass.
MOVED_TOGETHER = 8


SMALL_GROUP = 64
"""Units up to which a second descent costs next to nothing."""


class Aligned(NamedTuple):
    """Samples in one labelling."""

    samples: Samples
    """The samples, each moved by its element: the same functions."""
    elements: Element
    """Stacked: `act(spec, element, sample)` is the aligned sample."""
    reference: Params
    """The network, or mean of networks, that the samples were aligned to."""
    objective: np.ndarray
    """Agreement with the reference, `(rounds, samples)`; its sum over samples never falls."""
    converged: np.ndarray
    """Which samples could not be improved any more within the given number of rounds."""


def align(
    spec: SymmetrySpec,
    samples: Samples,
    *,
    reference: Params | int | str | None = None,
    method: str = "weights",
    apply: Apply | None = None,
    inputs: Any = None,
    activations: Activations | None = None,
    similarity: str = "correlation",
    warm_start: str | None = None,
    num_chains: int = 1,
    precision_weighted: bool = False,
    restarts: int | None = None,
    key: Key | None = None,
    max_sweeps: int = 100,
    max_rounds: int = 50,
    tolerance: float = 1e-4,
    solver: str = "auto",
) -> Aligned:
    """Relabel the hidden units of every sample so that they fit the reference; predictions do not change.

    Where the network is odd in a unit (tanh), the unit is also turned the right way round.

    Args:
        spec: The network's symmetries.
        samples: Networks with a leading sample axis; with `warm_start`, chain by chain.
        reference: A network, the index of a sample (default: the first), `"medoid"`, or `"mean"`, which is
            found together with the alignment.
        method: `"weights"`: all weights that touch a unit, one group at a time. `"activations"`: what the
            units compute on `inputs`. `"frank_wolfe"`: all weights and all groups at once.
        apply: The network function, for `"activations"`.
        inputs: What it is evaluated on.
        activations: Instead of `apply`, a function `(params, inputs) -> {group: (n, *over, units)}`.
        similarity: Of activations: `"correlation"`, `"inner_product"` (uncentred), or `"contributions"`
            (activation times outgoing weight).
        warm_start: `"chain"`: draws start from the permutation of an earlier draw of their chain.
        num_chains: Number of chains in `samples`.
        precision_weighted: A second pass that weighs by one over the variance of the aligned samples.
        restarts: Further starts, of which the best is kept: first the identity, so that with one restart the
            result is never worse than plain coordinate descent, then random ones in random order. Default:
            one if there are several groups, all small; in wide networks the identity does not win.
        key: For the random restarts.
        max_sweeps: Most sweeps over the groups in one descent.
        max_rounds: Most rounds of alignment to the mean, or of Frank-Wolfe.
        tolerance: Relative gain of the objective that is worth another look at the neighbouring groups.
        solver: Of the assignments: `"scipy"` on the host, `"optax"` on the device, or `"auto"`.
    """
    check_samples(spec, samples)
    restarts = default_restarts(spec) if restarts is None else restarts
    _check_settings(restarts, max_sweeps, max_rounds, warm_start, solver)
    network = reference_params(spec, samples, reference)
    _check_finite(network, "of the reference ")
    lookup(PUBLIC_METHODS, method, "alignment method")
    features, unit = in_units(
        features_of(spec, method, network, apply, inputs, activations, similarity), network
    )
    search = Search(restarts, key, max_sweeps, max_rounds, tolerance, solver)
    way = METHODS["contributions" if similarity == "contributions" and method == "activations" else method]
    if precision_weighted and not way.is_descent:
        raise ValueError("precision_weighted needs a sum over features; contributions are products")
    targets = extract_one(features, network)
    found = _first_match(spec, way, search, features, samples, targets, warm_start, num_chains)
    if _is(reference, "medoid"):
        network = tree.take(samples, medoid(spec, features, samples, found.permutations))
        targets = extract_one(features, network)
        found = match(spec, features, samples, targets, way.matcher(search))
    if _is(reference, "mean"):
        found = way.common(spec, features, samples, search, found)
        found, targets = match_to_mean(spec, features, samples, way.refine(search), search, found)
    if precision_weighted:
        found = match_by_precision(spec, features, samples, targets, way.refine(search), found)
    elements = stacked_elements(spec, found.permutations)
    moved = move(spec, elements, samples)
    if _is(reference, "mean"):
        network = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0).astype(leaf.dtype), moved)
    return Aligned(moved, elements, network, unit**2 * found.objective, found.converged)


def stacked_elements(spec: SymmetrySpec, permutations: HostPermutations) -> Element:
    """Elements of many networks that permute and flip, but do not rescale."""
    num = len(next(iter(permutations.values()), ()))
    unit = identity(spec)._replace(permutations={})
    ones = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), unit)
    found = element_of(on_device(permutations))
    signs = {name: value.astype(ones.signs[name].dtype) for name, value in found.signs.items()}
    return Element(found.permutations, ones.scales, ones.signs | signs)


@partial(jax.jit, static_argnames="spec")
def move(spec: SymmetrySpec, elements: Element, samples: Samples) -> Samples:
    """Every sample moved by its element, a few at a time: one copy of the samples, not two."""
    leaves = {leaf.name: leaf for leaf in spec.leaves}

    def moved(both: tuple[Element, Samples]) -> Samples:
        element, one = both
        return tree.map_named(lambda name, array: act_leaf(spec, element, leaves[name], array), one)

    # A rescaling by one may still round.
    return jax.lax.map(moved, (elements._replace(scales={}), samples), batch_size=MOVED_TOGETHER)


def _first_match(
    spec: SymmetrySpec,
    way: Way,
    search: Search,
    features: Features,
    samples: Samples,
    targets: Arrays,
    warm_start: str | None,
    num_chains: int,
) -> Descent:
    if warm_start is None:
        return match(spec, features, samples, targets, way.matcher(search))

    def matched(some: Samples, start: HostPermutations | None) -> Descent:
        matcher = way.matcher(search) if start is None else way.refine(search)
        return match(spec, features, some, targets, matcher, start)

    return match_chains(samples, num_chains, matched)


def default_restarts(spec: SymmetrySpec) -> int:
    """One group alone is matched exactly from any start; among wide ones the start by depth is the best."""
    sizes = [group.size for group in spec.groups]
    return int(len(sizes) > 1 and max(sizes) <= SMALL_GROUP)


def _is(reference: Params | int | str | None, strategy: str) -> bool:
    return isinstance(reference, str) and reference == strategy


def check_samples(spec: SymmetrySpec, samples: Samples) -> None:
    """`ValueError` for samples that do not fit the spec, are none, or are not finite."""
    check_params(spec, samples, num_leading=1)
    if not spec.groups:
        raise ValueError("the spec has no groups: there is nothing to align")
    if tree.num_samples(samples) == 0:
        raise ValueError("there are no samples: the leading axis of every leaf has length 0")
    for name, leaf in tree.named_leaves(samples).items():
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ValueError(f"leaf {name!r} is complex; only real weights can be matched")
    _check_finite(samples)


def _check_finite(params: Params, whose: str = "") -> None:
    for name, leaf in tree.named_leaves(params).items():
        if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and not bool(jnp.all(jnp.isfinite(leaf))):
            raise ValueError(f"leaf {name!r} {whose}has values that are not finite; they cannot be matched")


def _check_settings(
    restarts: int, max_sweeps: int, max_rounds: int, warm_start: str | None, solver: str
) -> None:
    for name, value, least in (
        ("restarts", restarts, 0),
        ("max_sweeps", max_sweeps, 1),
        ("max_rounds", max_rounds, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if warm_start is not None:
        lookup({"chain": None}, warm_start, "warm start")
    lookup({"auto": None, **SOLVERS}, solver, "assignment solver")
