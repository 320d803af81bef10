"""Alignment of distributions: Gaussians with independent weights, by 2-Wasserstein distance.

W₂² between diagonal Gaussians is ‖μ − μ'‖² + ‖σ − σ'‖², so matching means and standard deviations together
minimises it (Rossi et al. 2023). For variational posteriors and SWAG.
"""

from functools import partial
from typing import Any

import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.features import Arrays, Features, in_units, weight_features, without_signs
from symbnn.symmetry.alignment.match import Matching, extract_one, match
from symbnn.symmetry.alignment.reference import reference_params
from symbnn.symmetry.alignment.samples import Aligned, check_samples, move, stacked_elements
from symbnn.symmetry.alignment.search import Search, by_descent
from symbnn.symmetry.numerics import check_finite
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Key, Samples


def align_gaussians(
    spec: SymmetrySpec,
    means: Samples,
    stds: Samples,
    *,
    reference: Any = 0,
    restarts: int = 0,
    key: Key | None = None,
    max_sweeps: int = 100,
    tolerance: float = 1e-4,
) -> Aligned:
    """Relabel diagonal Gaussians so that they are near a reference; `samples` of the result is (means, stds).

    Units are relabelled and flipped, but not mixed, even where the network allows it: independent weights
    would be independent no more.

    Args:
        spec: The network's symmetries.
        means: Mean weights, with a leading axis over the Gaussians.
        stds: Standard deviations, likewise.
        reference: A pair (mean, std) of networks, or the index of one of the Gaussians.
        restarts, key, max_sweeps, tolerance: As in `align`.
    """
    for some in (means, stds):
        check_samples(spec, some)
    if tree.num_samples(means) != tree.num_samples(stds):
        raise ValueError(
            "means and stds must hold as many Gaussians; got "
            f"{tree.num_samples(means)} means and {tree.num_samples(stds)} standard deviations"
        )
    if not isinstance(reference, tuple | int | np.integer):
        raise ValueError(
            "the reference must be a pair (mean, std) of networks, or the index of one of the Gaussians; got "
            f"{reference!r}"
        )
    both = reference if isinstance(reference, tuple) else (reference, reference)
    network = (reference_params(spec, means, both[0]), reference_params(spec, stds, both[1]))
    check_finite(network, "nothing can be aligned to it", whose=" of the reference")
    whole, spec = spec, spec.permutations_only()
    weights = weight_features(spec, network[0])

    def extract(samples: Samples) -> Arrays:
        return (*weights.extract(samples[0]), *weights.extract(samples[1]))

    features, unit = in_units(Features((*weights.leaves, *without_signs(weights.leaves)), extract), network)
    search = Search(restarts=restarts, key=key, max_sweeps=max_sweeps, tolerance=tolerance)
    search.check()
    matching = Matching(spec, features, (means, stds))
    found = match(matching, extract_one(features, network), partial(by_descent, search))
    elements = stacked_elements(spec, found.permutations)
    # A flipped weight is as uncertain as before.
    moved = (move(spec, elements, means), move(spec, elements._replace(signs={}), stds))
    elements = stacked_elements(whole, found.permutations)
    return Aligned(moved, elements, network, unit**2 * found.objective, found.converged)
