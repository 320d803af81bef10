"""Alignment of networks to their own mean, from nothing.

A few of them find a common labelling by annealing, which favours no network's labels; the others are matched
to the mean of the few, and then each network to the mean of all others (`leave_one_out`).
"""

from functools import partial

import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.leave_one_out import leave_one_out
from symbnn.symmetry.alignment.match import Matcher, Matching, extract_at, match
from symbnn.symmetry.alignment.means import mean_features
from symbnn.symmetry.alignment.search import (
    Chunk,
    Descent,
    HostPermutations,
    Schedule,
    Search,
    anneal,
    by_descent,
    random_permutations,
)
from symbnn.symmetry.spec import SymmetrySpec

# Networks that are annealed together: their matrices have at most this many entries (16 MiB), which costs as
# much as the rounds that follow. More than that many tell no more about the mean.
ANNEALED_ENTRIES, LEAST_ANNEALED, MOST_ANNEALED = 2**22, 4, 64
SLOW, FAST = Schedule(0.3, 60), Schedule(0.3, 15)
# Up to so many entries the slow schedule takes less time than the rounds that follow.
SLOW_ENTRIES = 2**17


def to_common(search: Search, matching: Matching) -> Descent:
    """A common labelling from nothing; with restarts the best of several.

    Each is annealed from the labels of another network; after those come random labels.
    """
    num = tree.num_samples(matching.samples)
    few = _few(matching)
    is_all = len(few) == num
    part = matching if is_all else matching._replace(samples=tree.take(matching.samples, few))
    starts = (
        _annealed(search, part, number)
        if number < len(few)
        else random_permutations(matching.spec, len(few), search.key, number)
        for number in range(1 + search.restarts)
    )
    best = max(
        (leave_one_out(search, part, start) for start in starts), key=lambda end: end.objective[-1].sum()
    )
    if is_all:
        return best
    mean = mean_features(part, best.permutations)
    found = match(matching, mean, partial(by_descent, search._replace(restarts=0))).permutations
    for name, value in best.permutations.items():
        found[name][few] = value
    return leave_one_out(search, matching, found)


def repeated_mean(search: Search, matching: Matching, matcher: Matcher, first: Descent) -> Descent:
    """Matching to the mean of all, and the mean again, while that raises a matcher's own objective."""
    found, history = first, list[np.ndarray]()
    for _ in range(search.max_rounds):
        targets = mean_features(matching, found.permutations)
        candidate = match(matching, targets, matcher, found.permutations)
        value = candidate.objective[-1]
        if history and value.sum() - history[-1].sum() <= search.tolerance * abs(history[-1].sum()):
            is_better = value.sum() > history[-1].sum()
            history.append(value if is_better else history[-1])
            return (candidate if is_better else found)._replace(objective=np.stack(history))
        found = candidate
        history.append(value)
    return found._replace(objective=np.stack(history), converged=np.zeros_like(found.converged))


def _few(matching: Matching) -> np.ndarray:
    """Evenly spaced networks: of a chain, not only its beginning."""
    num = tree.num_samples(matching.samples)
    most = min(ANNEALED_ENTRIES // _entries(matching.spec), len(range(*next(matching.slices()).indices(num))))
    most = min(max(LEAST_ANNEALED, most), MOST_ANNEALED, num)
    return np.unique(np.linspace(0, num - 1, most).round().astype(int))


def _entries(spec: SymmetrySpec) -> int:
    """Entries of the matrices of one network."""
    return sum(int(np.prod(spec.shape(group))) * group.size for group in spec.groups)


def _annealed(search: Search, matching: Matching, anchor: int) -> HostPermutations:
    """Annealed from the labels that fit one of the networks, each group after those before it."""
    num = tree.num_samples(matching.samples)
    once = partial(by_descent, search._replace(restarts=0, max_sweeps=0))
    targets = extract_at(matching, anchor)
    start = match(matching, targets, once).permutations
    arrays = matching.features.extract(matching.samples)
    is_small = num * _entries(matching.spec) <= SLOW_ENTRIES
    chunk = Chunk(matching.spec, matching.features.leaves, (), arrays, start)
    return anneal(search, chunk, SLOW if is_small else FAST)
