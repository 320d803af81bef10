"""The few weights that a figure shows, named by the user or found as the worst of their network.

A weight is meant by `("out/kernel", (3, 5))`, by `"out/kernel[3, 5]"`, by `"out/kernel"` (the worst of that
leaf), or by a number: so many, the worst of every leaf first. The worst is the one with the largest split
R-hat, which shows where chains disagree; without chains to compare, the one with the largest standard
deviation.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from symbnn.diagnostics import rank_rhat, split_rhat
from symbnn.names import nearest
from symbnn.plot.draws import Draws

WEIGHTS_TOGETHER = 2**16
"""Weights judged at a time: bounds the memory, not the size of the network."""


class Weight(NamedTuple):
    """One number of a network."""

    leaf: str
    place: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.leaf}[{', '.join(map(str, self.place))}]" if self.place else self.leaf

    def draws(self, draws: Draws) -> np.ndarray:
        """Its values, `(chains, draws)`."""
        return np.asarray(draws.leaves[self.leaf][(..., *self.place)], np.float64)

    def rhat(self, draws: Draws) -> float | None:
        """Rank-normalised R-hat; None where there is nothing to compare."""
        if not draws.is_comparable:
            return None
        return float(rank_rhat(jnp.asarray(self.draws(draws), jnp.float32)[..., None])[0])


def choose(which: Any, draws: Draws) -> list[Weight]:
    """The weights that are meant; a `ValueError` says which name or index is wrong."""
    if isinstance(which, int) and not isinstance(which, bool):
        if which < 1:
            raise ValueError(f"which: expected at least one weight, got {which}")
        return _worst(draws, which)
    chosen = [which] if _is_one(which) else which
    if not isinstance(chosen, Sequence) or not chosen:
        raise ValueError(
            f"which: expected a number of weights, or weights such as ('out/kernel', (3, 5)), got {which!r}"
        )
    return [_weight(entry, draws) for entry in chosen]


def _is_one(which: Any) -> bool:
    if isinstance(which, str):
        return True
    is_pair = isinstance(which, tuple) and len(which) == 2
    return is_pair and isinstance(which[0], str) and not isinstance(which[1], str)


def _weight(entry: Any, draws: Draws) -> Weight:
    """One entry of `which`."""
    leaf, index = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None)
    if (
        isinstance(leaf, str)
        and leaf not in draws.leaves
        and (parts := re.fullmatch(r"(.*)\[([-\d, ]+)\]", leaf))
    ):
        leaf, index = parts[1], tuple(int(number) for number in parts[2].split(","))
    if leaf not in draws.leaves:
        raise ValueError(f"which: unknown leaf {leaf!r}; {nearest(str(leaf), draws.leaves)}")
    shape = draws.leaves[leaf].shape[2:]
    if index is None:
        return next(_worst_of_leaf(draws, leaf, 1))[1]
    places = tuple(np.atleast_1d(index).tolist())
    is_inside = len(places) == len(shape) and all(
        isinstance(place, int) and -size <= place < size for place, size in zip(places, shape, strict=True)
    )
    if not is_inside:
        raise ValueError(f"which: leaf {leaf!r} has shape {shape}; got the index {index}")
    return Weight(leaf, tuple(place % size for place, size in zip(places, shape, strict=True)))


def _worst(draws: Draws, number: int) -> list[Weight]:
    """The worst weight of every leaf, worst first, then the second worst of every leaf, and so on."""
    found = [
        (place, -score, weight)
        for leaf in draws.leaves
        for place, (score, weight) in enumerate(_worst_of_leaf(draws, leaf, number))
    ]
    return [weight for *_, weight in sorted(found)[:number]]


def _worst_of_leaf(draws: Draws, leaf: str, number: int) -> Iterator[tuple[float, Weight]]:
    values = draws.leaves[leaf]
    flat = values.reshape(*values.shape[:2], -1)
    parts = [
        _score(flat[..., start : start + WEIGHTS_TOGETHER], draws.is_comparable)
        for start in range(0, flat.shape[2], WEIGHTS_TOGETHER)
    ]
    scores = np.concatenate([np.empty(0), *parts])
    for place in np.argsort(-scores, kind="stable")[:number]:
        index = np.unravel_index(place, values.shape[2:]) if values.ndim > 2 else ()
        yield float(scores[place]), Weight(leaf, tuple(map(int, index)))


def _score(values: Any, is_comparable: bool) -> np.ndarray:
    """R-hat or standard deviation; none of a weight that never moves, which has nothing to show."""
    values = jnp.asarray(values, jnp.float32)
    scores = np.asarray(split_rhat(values) if is_comparable else values.std((0, 1)), np.float64)
    moves = np.asarray(values.max((0, 1)) > values.min((0, 1)))
    return np.where(moves, scores, -1.0)
