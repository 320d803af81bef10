"""The matching methods by name: which features they compare and how they search."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from symbnn.names import lookup
from symbnn.symmetry.alignment.consensus import repeated_mean, to_common
from symbnn.symmetry.alignment.features import (
    Activations,
    Apply,
    Features,
    activation_features,
    correlation,
    hooked_features,
    weight_features,
)
from symbnn.symmetry.alignment.leave_one_out import leave_one_out
from symbnn.symmetry.alignment.match import Matching, extract_at, match
from symbnn.symmetry.alignment.search import (
    Chunk,
    Descent,
    HostPermutations,
    Search,
    by_descent,
    contribution_features,
    match_contributions,
    to_reference,
)
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Params


class Way(NamedTuple):
    """How a method searches."""

    match: Callable[[Search, Chunk], Descent]
    """From nothing."""
    refine: Callable[[Search, Chunk], Descent]
    """From permutations that are nearly right."""
    common: Callable[[Search, Matching, HostPermutations | None], Descent]
    """All networks to their own mean, from permutations that are nearly right or from nothing."""


def way_of(method: str, similarity: str, precision_weighted: bool) -> Way:
    """How a method searches; contributions, a similarity of activations, have a way of their own."""
    way = lookup(METHODS, method, "alignment method")
    if method != "activations" or similarity != "contributions":
        return way
    if precision_weighted:
        raise ValueError(
            "similarity 'contributions' multiplies activations by weights, which cannot be weighted by "
            "precision; use similarity 'correlation' or 'inner_product', or precision_weighted=False"
        )
    return CONTRIBUTIONS


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
        raise ValueError("method 'activations' needs inputs= and one of apply= and activations=")
    if activations is not None:
        found = hooked_features(spec, activations, params, inputs)
    else:
        assert apply is not None
        found = activation_features(spec, apply, params, inputs)
    return transformed(spec, found, params)


def _from_start(search: Search, chunk: Chunk) -> Descent:
    return by_descent(search._replace(restarts=0), chunk)


def _by_frank_wolfe(search: Search, chunk: Chunk) -> Descent:
    """Frank-Wolfe, rounded, then polished by coordinate descent, which can only raise the objective."""
    return by_descent(search, chunk._replace(start=to_reference(search, chunk)))


def _common(search: Search, matching: Matching, start: HostPermutations | None) -> Descent:
    return to_common(search, matching) if start is None else leave_one_out(search, matching, start)


def _common_contributions(search: Search, matching: Matching, start: HostPermutations | None) -> Descent:
    first = extract_at(matching, 0)
    matcher = partial(match_contributions, search)
    return repeated_mean(search, matching, matcher, match(matching, first, matcher, start))


METHODS = {
    "weights": Way(by_descent, _from_start, _common),
    "activations": Way(by_descent, _from_start, _common),
    "frank_wolfe": Way(_by_frank_wolfe, _from_start, _common),
}

CONTRIBUTIONS = Way(match_contributions, match_contributions, _common_contributions)

SIMILARITIES: dict[str, Callable[[SymmetrySpec, Features, Params], Features]] = {
    "correlation": lambda spec, features, params: correlation(spec, features),
    "inner_product": lambda spec, features, params: features,
    "contributions": contribution_features,
}
