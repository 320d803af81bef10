"""The search: features of networks and of a target go in, the best permutations and signs come out."""

from symbnn.symmetry.alignment.search.assignment import SOLVERS, assign
from symbnn.symmetry.alignment.search.contributions import contribution_features, match_contributions
from symbnn.symmetry.alignment.search.descent import Descent, descend, settle
from symbnn.symmetry.alignment.search.frank_wolfe import to_reference, to_universe
from symbnn.symmetry.alignment.search.problem import (
    HostPermutations,
    Problem,
    groups_only,
    identity_permutations,
    make_problem,
    objective,
    on_device,
)

__all__ = [
    "SOLVERS",
    "Descent",
    "HostPermutations",
    "Problem",
    "assign",
    "contribution_features",
    "descend",
    "groups_only",
    "identity_permutations",
    "make_problem",
    "match_contributions",
    "objective",
    "on_device",
    "settle",
    "to_reference",
    "to_universe",
]
