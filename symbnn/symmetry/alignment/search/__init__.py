"""The search: features of networks and of a target go in, the best permutations and signs come out."""

from symbnn.symmetry.alignment.search.annealing import Schedule, anneal
from symbnn.symmetry.alignment.search.assignment import SOLVERS
from symbnn.symmetry.alignment.search.contributions import contribution_features, match_contributions
from symbnn.symmetry.alignment.search.cost import DevicePermutations, moved_feature
from symbnn.symmetry.alignment.search.descent import (
    ROUNDING,
    Descent,
    by_descent,
    joined,
    random_permutations,
)
from symbnn.symmetry.alignment.search.frank_wolfe import to_reference
from symbnn.symmetry.alignment.search.problem import (
    Chunk,
    HostPermutations,
    Problem,
    Search,
    groups_only,
    having,
    objective,
    plain_problem,
    restricted,
)
from symbnn.symmetry.alignment.search.steps import improve

__all__ = [
    "ROUNDING",
    "SOLVERS",
    "Chunk",
    "Descent",
    "DevicePermutations",
    "HostPermutations",
    "Problem",
    "Schedule",
    "Search",
    "anneal",
    "by_descent",
    "contribution_features",
    "groups_only",
    "having",
    "improve",
    "joined",
    "match_contributions",
    "moved_feature",
    "objective",
    "plain_problem",
    "random_permutations",
    "restricted",
    "to_reference",
]
