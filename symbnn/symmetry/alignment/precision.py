"""A second pass that weighs every weight by its precision: the Mahalanobis distance to the reference.

−½ Σ w (reference − g x)² = Σ (w · reference) (g x) − ½ w (g x)² + constant, an inner product with the
features x and x²; w is one over the variance of the aligned samples. A weight that hardly varies would decide
alone, so a tenth of the mean variance of its array is added.
"""

import jax.numpy as jnp

from symbnn.symmetry.alignment.features import Arrays, Features, without_signs
from symbnn.symmetry.alignment.match import Matcher, Matching, match
from symbnn.symmetry.alignment.means import variance_of_features
from symbnn.symmetry.alignment.search import Descent
from symbnn.types import Samples

RIDGE = 0.1


def match_by_precision(matching: Matching, targets: Arrays, matcher: Matcher, first: Descent) -> Descent:
    """Match again from the permutations of a first pass, by precision-weighted distance."""
    features = matching.features
    variance = variance_of_features(matching, first.permutations)
    # Equal samples have no variance at all: any weight will do.
    smallest = jnp.finfo(targets[0].dtype).tiny
    precision = tuple(1 / (part + RIDGE * jnp.mean(part) + smallest**0.5) for part in variance)
    weighted = tuple(w * target for w, target in zip(precision, targets, strict=True))

    def extract(some: Samples) -> Arrays:
        arrays = features.extract(some)
        return (*arrays, *(array**2 for array in arrays))

    both = Features((*features.leaves, *without_signs(features.leaves)), extract)
    against = (*weighted, *(-w / 2 for w in precision))
    return match(matching._replace(features=both), against, matcher, first.permutations)
