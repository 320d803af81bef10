"""Alignment along chains: a draw starts from the permutation of a draw shortly before it.

Successive draws of one chain are close, so the permutation of an earlier draw is nearly right and one sweep
confirms it. The draws of a block all start from the last draw of the block before, which keeps them in one
batch; the first draw of every chain starts afresh.
"""

from collections.abc import Callable

import numpy as np

from symbnn import tree
from symbnn.symmetry.alignment.match import part_of
from symbnn.symmetry.alignment.search import Descent, HostPermutations, joined
from symbnn.types import Samples

BLOCK_DRAWS = 8


def match_chains(
    samples: Samples, num_chains: int, matched: Callable[[Samples, HostPermutations | None], Descent]
) -> Descent:
    """Match chain-major samples (index = chain · draws + draw) block by block."""
    num = tree.num_samples(samples)
    if num_chains < 1 or num % num_chains:
        raise ValueError(f"num_chains must divide the number of samples, {num}; got {num_chains}")
    draws = num // num_chains
    chain = np.arange(num_chains)
    positions, results = [chain * draws], [matched(tree.take(samples, chain * draws), None)]
    for begin in range(1, draws, BLOCK_DRAWS):
        length = min(BLOCK_DRAWS, draws - begin)
        index = (chain[:, None] * draws + np.arange(begin, begin + length)).ravel()
        before = results[-1].permutations
        each = len(positions[-1]) // num_chains
        last = chain * each + each - 1
        start = {name: np.repeat(value[last], length, axis=0) for name, value in before.items()}
        positions.append(index)
        # One chain's draws lie side by side, and cutting is cheaper than picking.
        is_one = num_chains == 1
        block = part_of(samples, slice(begin, begin + length)) if is_one else tree.take(samples, index)
        results.append(matched(block, start))
    back = np.argsort(np.concatenate(positions))
    everything = joined(results)
    return Descent(
        {name: value[back] for name, value in everything.permutations.items()},
        everything.objective[:, back],
        everything.converged[back],
    )
