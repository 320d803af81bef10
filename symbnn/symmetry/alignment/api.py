"""`align`: many networks, one labelling of their hidden units.

Weight matching follows Git Re-Basin (Ainsworth, Hayase & Srinivasa 2023), and so does alignment to the mean,
after a start by annealing; Frank-Wolfe follows C2M3 (Crisostomi et al. 2024), activation matching by inner
products is the recipe of Xiao, Liu & Bamler (2023).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from symbnn import chains, tree
from symbnn.names import lookup
from symbnn.symmetry.alignment.chain import match_chains
from symbnn.symmetry.alignment.features import Activations, Apply, Arrays, in_units
from symbnn.symmetry.alignment.gauge import balanced, restored
from symbnn.symmetry.alignment.match import Matching, extract_one, match
from symbnn.symmetry.alignment.means import mean_features
from symbnn.symmetry.alignment.methods import METHODS, Way, features_of, way_of
from symbnn.symmetry.alignment.passes import in_passes
from symbnn.symmetry.alignment.precision import match_by_precision
from symbnn.symmetry.alignment.reference import medoid, reference_params
from symbnn.symmetry.alignment.samples import Aligned, check_samples, move, stacked_elements
from symbnn.symmetry.alignment.search import Descent, HostPermutations, Search
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Key, Params, Samples

RESTARTS = {8: 64, 16: 16, 64: 1}
"""By the units of the largest group up to which they cost next to nothing; the smaller, the more maxima."""


def align(
    spec: SymmetrySpec,
    samples: Any,
    *,
    reference: Params | int | str | None = None,
    method: str = "weights",
    apply: Apply | None = None,
    inputs: Any = None,
    activations: Activations | None = None,
    similarity: str | None = None,
    warm_start: str | None = None,
    num_chains: int | None = None,
    precision_weighted: bool = False,
    restarts: int | None = None,
    key: Key | None = None,
    max_sweeps: int = 100,
    max_rounds: int = 50,
    tolerance: float = 1e-4,
    solver: str = "auto",
) -> Aligned:
    """Relabel the hidden units of every sample so that they fit the reference; predictions do not change.

    Where the network is odd in a unit (tanh), the unit is also turned the right way round. Units that it only
    uses linearly (`Group.kind`) are mixed by the rotation, or by the invertible matrix, that fits them to
    those of the reference (`gauge`). Activations and precisions belong to single units: such units, and heads
    of them, are matched by plain weights. Scales of single units are left as they are; `balance` or
    `normalise` removes them before.

    Args:
        spec: The network's symmetries.
        samples: Networks, stacked along a first axis of every leaf; with `warm_start`, chain by chain. Or an
            `Empirical`, whose chains the result keeps.
        reference: A network, the index of a sample (default: the first), `"medoid"`, or `"mean"`: every
            sample is aligned to the mean of the others, from a common start that favours none.
        method: `"weights"`: all weights that touch a unit, one group at a time. `"activations"`: what the
            units compute on `inputs`. `"frank_wolfe"`: all weights and all groups at once, to one reference
            (the mean is relaxed by either method).
        apply: The network function, for `"activations"`.
        inputs: The data that `apply` or `activations` is evaluated on; a tuple for a network of several.
        activations: Instead of `apply`, a function `(params, *inputs) -> {group: (n, *over, units)}`.
        similarity: Of activations: `"correlation"` (default), `"inner_product"` (uncentred), or
            `"contributions"` (activation times outgoing weight).
        warm_start: `"chain"`: draws start from the permutation of an earlier draw of their chain.
        num_chains: Chains in `samples`, for `warm_start` (default: those of an `Empirical`, else one).
        precision_weighted: A second pass that weighs by one over the variance of the aligned samples.
        restarts: Further starts, of which the best is kept: first the identity, so that with one restart the
            result is never worse than plain coordinate descent, then random ones. Default: many if there are
            several groups, all small; in wide networks the identity does not win. With reference `"mean"`
            the common start is looked for again from every other sample, then at random; default: none.
        key: For the random restarts (default: a fixed one).
        max_sweeps: Most sweeps over the groups in one descent.
        max_rounds: Most rounds of alignment to the mean, or of Frank-Wolfe.
        tolerance: Relative gain of the objective that is worth another look at the neighbouring groups.
        solver: Of the assignments: `"scipy"` on the host, `"optax"` on the device, or `"auto"`, the faster.
    """
    if num_chains is not None and warm_start is None:
        raise ValueError("num_chains has no effect without warm_start='chain'")
    samples, num_chains = chains.unpack(samples, num_chains, partial(check_samples, spec))
    strategy = reference if isinstance(reference, str) else None
    default_restarts = 0 if strategy == "mean" else _default_restarts(spec)
    search = Search(
        default_restarts if restarts is None else restarts, key, max_sweeps, max_rounds, tolerance, solver
    )
    search.check()
    if warm_start is not None:
        lookup({"chain": None}, warm_start, "warm start")
    if similarity is not None and method in METHODS and method != "activations":
        raise ValueError(f"similarity compares activations; it has no effect with method {method!r}")
    way = way_of(method, similarity or "correlation", precision_weighted)
    network = reference_params(spec, samples, reference)
    check_finite(network, "nothing can be aligned to it", whose=" of the reference")
    if (method == "activations" or precision_weighted) and any(group.is_linear for group in spec.groups):
        plain = partial(
            align,
            reference=reference,
            method="weights" if method == "activations" else method,
            warm_start=warm_start,
            num_chains=num_chains if warm_start else None,
            restarts=restarts,
            key=key,
            max_sweeps=max_sweeps,
            max_rounds=max_rounds,
            tolerance=tolerance,
            solver=solver,
        )
        observed = {"apply": apply, "inputs": inputs, "activations": activations, "similarity": similarity}
        asked = partial(plain, method=method, precision_weighted=precision_weighted, **observed)
        mixed_last = method == "activations"
        return in_passes(spec, samples, plain, asked, mixed_last=mixed_last)._replace(num_chains=num_chains)
    gauge = balanced(spec, samples, network, is_own=strategy is None)
    samples, network = gauge.samples, gauge.reference
    features, unit = in_units(
        features_of(spec, method, network, apply, inputs, activations, similarity or "correlation"), network
    )
    along = (num_chains or 1) if warm_start else None
    matching, targets = Matching(spec, features, samples), extract_one(features, network)
    refine = partial(way.refine, search)
    if strategy == "mean":
        start = _first_match(matching, targets, way, search, along).permutations if along else None
        found = way.common(search, matching, start)
        targets = mean_features(matching, found.permutations)
    else:
        found = _first_match(matching, targets, way, search, along)
    if strategy == "medoid":
        network = tree.take(samples, medoid(matching, found.permutations))
        targets = extract_one(features, network)
        found = match(matching, targets, partial(way.match, search))
    if precision_weighted:
        found = match_by_precision(matching, targets, refine, found)
    elements = stacked_elements(spec, found.permutations)
    moved = move(spec, elements, samples)
    if strategy == "mean":
        network = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0).astype(leaf.dtype), moved)
    aligned = Aligned(moved, elements, network, unit**2 * found.objective, found.converged, num_chains)
    return restored(spec, gauge, aligned)


def _first_match(
    matching: Matching, targets: Arrays, way: Way, search: Search, num_chains: int | None
) -> Descent:
    """From nothing; along `num_chains` chains, if given, from an earlier draw."""

    def matched(some: Samples, start: HostPermutations | None) -> Descent:
        matcher = partial(way.match if start is None else way.refine, search)
        return match(matching._replace(samples=some), targets, matcher, start)

    samples = matching.samples
    return matched(samples, None) if num_chains is None else match_chains(samples, num_chains, matched)


def _default_restarts(spec: SymmetrySpec) -> int:
    """One group alone is matched exactly from any start; among wide ones the start by depth is the best."""
    sizes = [group.size for group in spec.groups]
    return next((num for most, num in RESTARTS.items() if max(sizes) <= most), 0) if len(sizes) > 1 else 0
