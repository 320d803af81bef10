"""The matching methods by name: which features they compare and how they search."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from symbnn.names import lookup
from symbnn.symmetry.alignment.features import (
    Activations,
    Apply,
    Arrays,
    Features,
    activation_features,
    correlation,
    hooked_features,
    weight_features,
)
from symbnn.symmetry.alignment.match import Matcher, Search, descent_matcher
from symbnn.symmetry.alignment.means import mean_features
from symbnn.symmetry.alignment.search import (
    Descent,
    HostPermutations,
    contribution_features,
    match_contributions,
    to_reference,
    to_universe,
)
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Params, Samples


class Way(NamedTuple):
    """How a method searches."""

    matcher: Callable[[Search], Matcher]
    """From nothing."""
    refine: Callable[[Search], Matcher]
    """From permutations that are nearly right."""
    common: Callable[[SymmetrySpec, Features, Samples, Search, Descent], Descent]
    """A better start for alignment to the mean than the match to one of the samples."""
    is_descent: bool = True


def features_of(
    spec: SymmetrySpec,
    method: str,
    params: Params,
    apply: Apply | None,
    inputs: Any,
    activations: Activations | None,
    similarity: str,
) -> Features:
    """The features that a method compares."""
    if method != "activations":
        return weight_features(spec, params)
    transformed = lookup(SIMILARITIES, similarity, "similarity")
    if (apply is None) == (activations is None) or inputs is None:
        raise ValueError("method 'activations' needs inputs= and either apply= or activations=")
    if activations is not None:
        found = hooked_features(spec, activations, params, inputs)
    else:
        assert apply is not None
        found = activation_features(spec, apply, params, inputs)
    return transformed(spec, found, params)


def _descent_again(search: Search) -> Matcher:
    return descent_matcher(search._replace(restarts=0))


def _contributions(search: Search) -> Matcher:
    def matcher(
        spec: SymmetrySpec,
        features: Features,
        targets: Arrays,
        arrays: Arrays,
        start: HostPermutations | None,
    ) -> Descent:
        # Settled from output to input in one pass: a start has nothing to add.
        return match_contributions(spec, features, targets, arrays, solver=search.solver)

    return matcher


def _frank_wolfe(search: Search) -> Matcher:
    """Frank-Wolfe, rounded, then polished by coordinate descent, which can only raise the objective."""

    def matcher(
        spec: SymmetrySpec,
        features: Features,
        targets: Arrays,
        arrays: Arrays,
        start: HostPermutations | None,
    ) -> Descent:
        rounded = to_reference(
            spec,
            features.leaves,
            targets,
            arrays,
            max_rounds=search.max_rounds,
            tolerance=search.tolerance,
            solver=search.solver,
        )
        return descent_matcher(search)(spec, features, targets, arrays, rounded)

    return matcher


def _universe(
    spec: SymmetrySpec, features: Features, samples: Samples, search: Search, found: Descent
) -> Descent:
    """Frank-Wolfe of all networks at once; kept if the rounded result is better than its start."""
    permutations, _ = to_universe(
        spec,
        features.leaves,
        features.extract(samples),
        found.permutations,
        max_rounds=search.max_rounds,
        tolerance=search.tolerance,
        solver=search.solver,
    )

    def length(candidate: HostPermutations) -> float:
        mean, _ = mean_features(spec, features, samples, candidate)
        return float(sum(np.vdot(array, array) for array in mean))

    is_better = length(permutations) > length(found.permutations)
    return found._replace(permutations=permutations) if is_better else found


def _unchanged(
    spec: SymmetrySpec, features: Features, samples: Samples, search: Search, found: Descent
) -> Descent:
    return found


METHODS = {
    "weights": Way(descent_matcher, _descent_again, _unchanged),
    "activations": Way(descent_matcher, _descent_again, _unchanged),
    "contributions": Way(_contributions, _contributions, _unchanged, is_descent=False),
    "frank_wolfe": Way(_frank_wolfe, _descent_again, _universe),
}

PUBLIC_METHODS = {name: way for name, way in METHODS.items() if name != "contributions"}
"""Contributions are a similarity of activations, with a search of their own."""

SIMILARITIES: dict[str, Callable[[SymmetrySpec, Features, Params], Features]] = {
    "correlation": lambda spec, features, params: correlation(spec, features),
    "inner_product": lambda spec, features, params: features,
    "contributions": contribution_features,
}
