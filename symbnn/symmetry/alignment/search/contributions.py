"""Matching by contributions: what a unit adds to each unit that reads it, activation times outgoing weight.

For unit i of the reference and j of the network, summed over inputs x and readers k,

    Σ_x Σ_k a_i(x) w_ik · a'_j(x) w'_jk = (Σ_x a_i(x) a'_j(x)) · (Σ_k w_ik w'_jk),

the product of two Gram matrices. A reader's own label matters, so groups are settled from output to input:
each then has one assignment, against readers that are settled already.
"""

import numpy as np

from symbnn.symmetry.alignment.features import Arrays, Features, weight_features
from symbnn.symmetry.alignment.features.signs import best_signs, sign_key, with_signs
from symbnn.symmetry.alignment.features.weights import ACTIVATION
from symbnn.symmetry.alignment.search.descent import Descent
from symbnn.symmetry.alignment.search.problem import (
    Chunk,
    Problem,
    Search,
    by_parity,
    cost_blocks,
    having,
    identity_permutations,
    plain_problem,
    restricted,
)
from symbnn.symmetry.alignment.search.steps import chosen_signs, follow, solve
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.symmetry.spec.layer_order import depth_order
from symbnn.types import Params, Samples


def contribution_features(spec: SymmetrySpec, activations: Features, params: Params) -> Features:
    """Activations first, then every piece of the weights."""
    weights = weight_features(spec, params)

    def extract(samples: Samples) -> Arrays:
        return (*activations.extract(samples), *weights.extract(samples))

    return Features((*activations.leaves, *weights.leaves), extract)


def match_contributions(search: Search, chunk: Chunk) -> Descent:
    """Permutations of a chunk of networks, one group at a time from output to input: a start adds nothing."""
    problem = plain_problem(chunk, search.solver)
    permutations = identity_permutations(problem.spec, problem.num_items)
    everything = np.arange(problem.num_items)
    value = np.zeros(problem.num_items)
    for name in reversed(depth_order(chunk.spec)):
        current = permutations
        similar, outgoing = (
            by_parity(_part(problem, name, is_activation=is_activation), name)
            for is_activation in (True, False)
        )
        left = [cost_blocks(part, name, everything, current) for part in similar.values()]
        right = [cost_blocks(part, name, everything, current) for part in outgoing.values()]
        for together in zip(*left, *right, strict=True):
            rows, costs = together[0][0], tuple(cost for _, cost in together)
            activations, signs = best_signs(tuple(similar), costs[: len(left)])
            # What a unit contributes does not depend on which way round it is: its activation tells.
            cost = activations * with_signs(tuple(outgoing), costs[len(left) :], signs)
            step, gain = solve(problem, cost, len(rows))
            move = {name: step}
            if problem.spec.group(name).num_signs:
                move[sign_key(name)] = chosen_signs(signs, step)
            before = {key: array[rows] for key, array in permutations.items()}
            for key, array in follow(problem.spec, move, before).items():
                permutations[key][rows] = array
            value[rows] += gain + np.einsum("r...ii->r", np.asarray(cost))[: len(rows)]
    return Descent(permutations, value[None], np.ones(problem.num_items, bool))


def _part(problem: Problem, group: str, *, is_activation: bool) -> Problem:
    """The group's activations, or the weights that read it; those that write it where none does."""
    own = [i for i in having(problem, group) if (problem.leaves[i].name == ACTIVATION) == is_activation]
    reading = [
        i
        for i in own
        if any(f.group == group and f.role == "consumes" for _, f in problem.leaves[i].factors())
    ]
    return restricted(problem, reading or own)
