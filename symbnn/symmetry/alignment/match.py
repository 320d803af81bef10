"""Matching of any number of networks to given targets, a chunk of networks at a time."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax

from symbnn import tree
from symbnn.symmetry.alignment.features import Arrays, Features
from symbnn.symmetry.alignment.search import Chunk, Descent, HostPermutations, joined
from symbnn.symmetry.spec import SymmetrySpec
from symbnn.types import Params, Samples

# Networks whose features fill this much memory are matched together.
CHUNK_BYTES = 256 * 2**20

Matcher = Callable[[Chunk], Descent]


class Matching(NamedTuple):
    """Networks, and what they are compared by."""

    spec: SymmetrySpec
    features: Features
    samples: Samples

    def chunks(self) -> Iterator[tuple[slice, Arrays]]:
        """The slices of the samples, and their features."""
        for chunk in self.slices():
            yield chunk, self.features.extract(part_of(self.samples, chunk))

    def extracted(self) -> "Matching":
        """The same with its features taken from the samples once and for all, where they are one chunk."""
        if len(list(self.slices())) > 1:
            return self
        arrays = self.features.extract(self.samples)
        return self._replace(features=Features(self.features.leaves, lambda _: arrays))

    def slices(self) -> Iterator[slice]:
        """Slices of the samples of about `CHUNK_BYTES`, all of one length but the last."""
        num = tree.num_samples(self.samples)
        size = 4 * sum(math.prod(leaf.shape) for leaf in self.features.leaves)
        length = max(1, CHUNK_BYTES // max(size, 1))
        for begin in range(0, num, length):
            yield slice(begin, min(begin + length, num))


def match(
    matching: Matching, targets: Arrays, matcher: Matcher, start: HostPermutations | None = None
) -> Descent:
    """Permutations of every network that bring its features near the targets."""
    results = []
    for chunk, arrays in matching.chunks():
        here = None if start is None else {name: value[chunk] for name, value in start.items()}
        results.append(matcher(Chunk(matching.spec, matching.features.leaves, targets, arrays, here)))
    return joined(results)


def part_of(samples: Samples, chunk: slice) -> Samples:
    """Samples of a chunk; all of them are not copied."""
    length = chunk.stop - chunk.start
    return samples if length == tree.num_samples(samples) else _cut(samples, chunk.start, length)


@partial(jax.jit, static_argnames="length")
def _cut(samples: Samples, start: int | jax.Array, length: int) -> Samples:
    # One compilation for all chunks: a Python slice would be compiled for every place.
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, length), samples)


def extract_at(matching: Matching, index: int) -> Arrays:
    """Features of one of the networks."""
    return _only(matching.features.extract(part_of(matching.samples, slice(index, index + 1))))


def extract_one(features: Features, params: Params) -> Arrays:
    """Features of one network."""
    return _only(features.extract(_as_samples(params)))


# Compiled, as one call for every leaf takes longer than matching a small network.
@jax.jit
def _as_samples(params: Params) -> Samples:
    return jax.tree.map(lambda leaf: leaf[None], params)


@jax.jit
def _only(arrays: Arrays) -> Arrays:
    return tuple(array[0] for array in arrays)
