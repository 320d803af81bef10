"""What the samples are aligned to: a network, one of the samples, their medoid, or their own mean.

The medoid of aligned samples is the one nearest their mean m: with N samples,
Σ_s ‖x_s − x_k‖² = Σ_s ‖x_s − m‖² + N ‖x_k − m‖².
"""

import numpy as np

from symbnn import tree
from symbnn.names import nearest
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.means import mean_features, squared_lengths
from symbnn.symmetry.alignment.search import (
    Chunk,
    HostPermutations,
    objective,
    plain_problem,
)
from symbnn.symmetry.spec import SymmetrySpec, check_params
from symbnn.types import Params, Samples

STRATEGIES = ("mean", "medoid")


def reference_params(spec: SymmetrySpec, samples: Samples, reference: Params | int | str | None) -> Params:
    """The network to align to, at first: the one given, the sample of that index, or the first one."""
    if isinstance(reference, str) and reference not in STRATEGIES:
        raise ValueError(f"unknown reference {reference!r}; {nearest(reference, STRATEGIES)}")
    if reference is None or isinstance(reference, str):
        reference = 0
    if isinstance(reference, int | np.integer):
        num = tree.num_samples(samples)
        if not -num <= reference < num:
            raise ValueError(f"reference must be the index of one of the {num} samples; got {reference}")
        return tree.take(samples, int(reference))
    try:
        check_params(spec, reference)
    except ValueError as error:
        raise ValueError(f"the reference does not fit the spec: {error}") from error
    return reference


def medoid(matching: Matching, permutations: HostPermutations) -> int:
    """Index of the sample whose moved features are nearest their mean."""
    mean = mean_features(matching, permutations)
    distances = []
    for chunk, arrays in matching.chunks():
        problem = plain_problem(Chunk(matching.spec, matching.features.leaves, mean, arrays))
        overlap = objective(problem, None, {name: value[chunk] for name, value in permutations.items()})
        # ‖x − m‖² without the term that all samples share.
        distances.append(np.asarray(squared_lengths(arrays), np.float64) - 2 * overlap)
    return int(np.argmin(np.concatenate(distances)))
