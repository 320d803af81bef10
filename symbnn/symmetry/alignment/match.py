"""Matching of any number of networks to given targets: chunks of networks, several starts, best kept."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import keys, tree
from symbnn.symmetry.alignment.features import Arrays, Features
from symbnn.symmetry.alignment.search import (
    Descent,
    HostPermutations,
    Problem,
    descend,
    identity_permutations,
    make_problem,
    settle,
)
from symbnn.symmetry.group import random_element
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.symmetry.spec.layer_order import depth_order
from symbnn.types import Key, Samples

# Networks whose features fill this much memory are matched together.
CHUNK_BYTES = 256 * 2**20


class Search(NamedTuple):
    """Settings of the search over permutations."""

    restarts: int = 0
    key: Key | None = None
    max_sweeps: int = 100
    max_rounds: int = 50
    tolerance: float = 1e-4
    solver: str = "auto"


class Chunk(NamedTuple):
    """Networks that are matched together, and what to."""

    spec: SymmetrySpec
    features: Features
    targets: Arrays
    arrays: Arrays
    """Features of the networks, stacked."""
    start: HostPermutations | None


Matcher = Callable[[Chunk], Descent]


def match(
    spec: SymmetrySpec,
    features: Features,
    samples: Samples,
    targets: Arrays,
    matcher: Matcher,
    start: HostPermutations | None = None,
) -> Descent:
    """Permutations of every network that bring its features near the targets."""
    results = []
    for chunk in chunks(features, samples):
        arrays = features.extract(part_of(samples, chunk))
        here = None if start is None else {name: value[chunk] for name, value in start.items()}
        results.append(matcher(Chunk(spec, features, targets, arrays, here)))
    return joined(results)


def by_descent(search: Search, chunk: Chunk) -> Descent:
    """Descent from the start, then from the identity, then from random permutations in random order."""
    spec, features, targets, arrays, start = chunk
    problem = make_problem(spec, features.leaves, targets, arrays, solver=search.solver)
    order = depth_order(spec)
    run = partial(descend, problem, max_sweeps=search.max_sweeps, tolerance=search.tolerance)
    best = run(settle(problem, order) if start is None else start, order=order)
    for restart in range(search.restarts):
        first, shuffled = _restart(problem, search, restart) if restart else (_unmoved(problem), order)
        best = _better(best, run(first, order=shuffled))
    return best


def chunks(features: Features, samples: Samples) -> list[slice]:
    """Slices of the sample axis of about `CHUNK_BYTES` each, all of one length but the last."""
    num = tree.num_samples(samples)
    size = 4 * sum(math.prod(leaf.shape) for leaf in features.leaves)
    length = max(1, CHUNK_BYTES // max(size, 1))
    return [slice(begin, min(begin + length, num)) for begin in range(0, num, length)]


def part_of(samples: Samples, chunk: slice) -> Samples:
    """Samples of a chunk; all of them are not copied."""
    length = chunk.stop - chunk.start
    return samples if length == tree.num_samples(samples) else _cut(samples, chunk.start, length)


@partial(jax.jit, static_argnames="length")
def _cut(samples: Samples, start: int, length: int) -> Samples:
    # One compilation for all chunks: a Python slice would be compiled for every place.
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, length), samples)


def joined(results: Sequence[Descent]) -> Descent:
    """Results of several chunks as one; a network that ended early keeps its last objective."""
    sweeps = max(len(result.objective) for result in results)
    return Descent(
        {
            name: np.concatenate([result.permutations[name] for result in results])
            for name in results[0].permutations
        },
        np.concatenate([extended(result.objective, sweeps) for result in results], axis=1),
        np.concatenate([result.converged for result in results]),
    )


def extended(objective: np.ndarray, sweeps: int) -> np.ndarray:
    """The history of an objective with its last row repeated up to that many rows."""
    return np.concatenate([objective, np.repeat(objective[-1:], sweeps - len(objective), axis=0)])


def extract_one(features: Features, params: Samples) -> Arrays:
    """Features of one network."""
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    return tuple(array[0] for array in features.extract(one))


def _unmoved(problem: Problem) -> HostPermutations:
    return identity_permutations(problem.spec, problem.num_items)


def _restart(problem: Problem, search: Search, restart: int) -> tuple[HostPermutations, Sequence[str]]:
    key = jax.random.fold_in(jax.random.key(0) if search.key is None else search.key, restart)
    all_keys = jax.random.split(keys.named(key, "start"), problem.num_items)
    drawn = jax.vmap(lambda one: random_element(problem.spec, one).permutations)(all_keys)
    names = [group.name for group in problem.spec.groups]
    shuffled = np.asarray(jax.random.permutation(keys.named(key, "order"), len(names)))
    return {name: np.array(value, np.int32) for name, value in drawn.items()}, [names[i] for i in shuffled]


def _better(a: Descent, b: Descent) -> Descent:
    """For every network the descent that ended higher."""
    is_b = b.objective[-1] > a.objective[-1]
    sweeps = max(len(a.objective), len(b.objective))

    def chosen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(is_b.reshape(-1, *[1] * (x.ndim - 1)), y, x)

    return Descent(
        {name: chosen(value, b.permutations[name]) for name, value in a.permutations.items()},
        np.where(is_b, extended(b.objective, sweeps), extended(a.objective, sweeps)),
        chosen(a.converged, b.converged),
    )
