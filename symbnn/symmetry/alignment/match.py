"""Matching of any number of networks to given targets: chunks of networks, several starts, best kept."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.symmetry.act import random_element
from symbnn.symmetry.alignment.assignment import Solver
from symbnn.symmetry.alignment.descent import (
    Descent,
    HostPermutations,
    Problem,
    descend,
    identity_permutations,
    make_problem,
    settle,
)
from symbnn.symmetry.alignment.features import Arrays, Features
from symbnn.symmetry.depth import depth_order
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Key, Samples

# Networks whose features fill this much memory are matched together.
CHUNK_BYTES = 256 * 2**20


class Search(NamedTuple):
    """Settings of the search over permutations."""

    restarts: int = 0
    key: Key | None = None
    max_sweeps: int = 100
    tolerance: float = 1e-6
    solver: Solver = "auto"


def match(
    spec: SymmetrySpec,
    features: Features,
    samples: Samples,
    targets: Arrays,
    search: Search,
    start: HostPermutations | None = None,
) -> Descent:
    """Permutations of every network that bring its features near the targets."""
    results = []
    for chunk in chunks(samples):
        arrays = features.extract(tree.take(samples, chunk))
        problem = make_problem(spec, features.leaves, targets, arrays, solver=search.solver)
        here = None if start is None else {name: value[chunk] for name, value in start.items()}
        results.append(_search(problem, depth_order(spec), search, here))
    return joined(results)


def chunks(samples: Samples) -> list[slice]:
    """Slices of the sample axis of about `CHUNK_BYTES` each, all of one length but the last."""
    num = tree.num_samples(samples)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(samples)) // num
    length = max(1, CHUNK_BYTES // max(size, 1))
    return [slice(begin, min(begin + length, num)) for begin in range(0, num, length)]


def joined(results: Sequence[Descent]) -> Descent:
    """Results of several chunks as one; a network that ended early keeps its last objective."""
    sweeps = max(len(result.objective) for result in results)
    return Descent(
        {
            name: np.concatenate([result.permutations[name] for result in results])
            for name in results[0].permutations
        },
        np.concatenate([_extended(result.objective, sweeps) for result in results], axis=1),
        np.concatenate([result.converged for result in results]),
    )


def _search(
    problem: Problem, order: Sequence[str], search: Search, start: HostPermutations | None
) -> Descent:
    """Descent from the start, then from the identity, then from random permutations in random order."""
    first = settle(problem, order) if start is None else start
    run = partial(descend, problem, max_sweeps=search.max_sweeps, tolerance=search.tolerance)
    best = run(first, order=order)
    for restart in range(search.restarts):
        if restart == 0:
            found = run(identity_permutations(problem.spec, problem.num_items), order=order)
        else:
            key = jax.random.fold_in(jax.random.key(0) if search.key is None else search.key, restart)
            shuffled = jax.random.permutation(keys.named(key, "order"), len(order))
            found = run(_random_permutations(problem, key), order=[order[i] for i in np.asarray(shuffled)])
        best = _better(best, found)
    return best


def _random_permutations(problem: Problem, key: Key) -> HostPermutations:
    all_keys = jax.random.split(key, problem.num_items)
    drawn = jax.vmap(lambda one: random_element(problem.spec, one).permutations)(all_keys)
    return {name: np.array(value, np.int32) for name, value in drawn.items()}


def _better(a: Descent, b: Descent) -> Descent:
    """For every network the descent that ended higher."""
    is_b = b.objective[-1] > a.objective[-1]
    sweeps = max(len(a.objective), len(b.objective))

    def chosen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(is_b.reshape(-1, *[1] * (x.ndim - 1)), y, x)

    return Descent(
        {name: chosen(value, b.permutations[name]) for name, value in a.permutations.items()},
        np.where(is_b, _extended(b.objective, sweeps), _extended(a.objective, sweeps)),
        chosen(a.converged, b.converged),
    )


def _extended(objective: np.ndarray, sweeps: int) -> np.ndarray:
    missing = sweeps - len(objective)
    return np.concatenate([objective, np.repeat(objective[-1:], missing, axis=0)])


def extract_one(features: Features, params: Samples) -> Arrays:
    """Features of one network."""
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    return tuple(array[0] for array in features.extract(one))
