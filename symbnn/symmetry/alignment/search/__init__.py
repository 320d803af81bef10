"""The search: features of networks and of a target go in, the best permutations and signs come out."""

from symbnn.symmetry.alignment.search.assignment import SOLVERS
from symbnn.symmetry.alignment.search.contributions import contribution_features, match_contributions
from symbnn.symmetry.alignment.search.descent import Descent, by_descent, joined
from symbnn.symmetry.alignment.search.frank_wolfe import to_reference, to_universe
from symbnn.symmetry.alignment.search.problem import (
    Chunk,
    HostPermutations,
    Search,
    groups_only,
    objective,
    on_device,
    plain_problem,
)

__all__ = [
    "SOLVERS",
    "Chunk",
    "Descent",
    "HostPermutations",
    "Search",
    "by_descent",
    "contribution_features",
    "groups_only",
    "joined",
    "match_contributions",
    "objective",
    "on_device",
    "plain_problem",
    "to_reference",
    "to_universe",
]
