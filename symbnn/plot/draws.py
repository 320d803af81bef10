"""Networks as draws: whatever holds them (`Fit`, `Empirical`, `Aligned`, a tree) goes in, chains come out."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from symbnn import chains, tree
from symbnn.symmetry.numerics import check_finite

LEAST_DRAWS = 4
"""Of a chain, for R-hat."""


class Draws(NamedTuple):
    """Networks chain by chain."""

    leaves: dict[str, Any]
    """By name, `(chains, draws, ...)`; all draws are one chain where chains are not known."""
    is_chained: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Chains, and draws of each."""
        return next(iter(self.leaves.values())).shape[:2]

    @property
    def is_comparable(self) -> bool:
        """Whether there are chains, long enough to be compared."""
        chains, draws = self.shape
        return self.is_chained and chains > 1 and draws >= LEAST_DRAWS


def samples_of(name: str, given: Any) -> tuple[dict[str, Any], int | None]:
    """Stacked networks, their leaves of real numbers by name; and the number of chains where it is known."""
    samples, num_chains = chains.unpack(given)
    leaves = {
        leaf: values
        for leaf, values in tree.named_leaves(samples).items()
        if hasattr(values, "dtype") and jnp.issubdtype(values.dtype, jnp.floating)
    }
    if not leaves:
        raise ValueError(
            f"{name}: expected networks stacked along a first axis, got no array of real numbers"
        )
    if tree.num_samples(leaves) == 0:
        raise ValueError(f"{name} holds no networks: the leading axis of every leaf has length 0")
    check_finite(leaves, "leave out the networks or chains that diverged", whose=f" of {name}")
    return leaves, num_chains


def states_of(figure: str, raw: Any, aligned: Any, *, least_chains: int) -> dict[str, Draws]:
    """Raw and aligned draws of the same networks, by name; chains that one of them knows hold for both."""
    given = {"raw": raw} if aligned is None else {"raw": raw, "aligned": aligned}
    held = {name: samples_of(name, networks) for name, networks in given.items()}
    known = {name: num_chains for name, (_, num_chains) in held.items() if num_chains is not None}
    if len(set(known.values())) > 1:
        raise ValueError(
            f"raw has {known['raw']} chains and aligned has {known['aligned']}; give both the same"
        )
    num_chains = next(iter(known.values()), None)
    if least_chains:
        _check_chains(figure, tree.num_samples(held["raw"][0]), num_chains, least_chains)
    states = {
        name: Draws(tree.by_chain(leaves, num_chains or 1), num_chains is not None)
        for name, (leaves, _) in held.items()
    }
    if aligned is not None:
        tree.check_same_shapes("aligned", states["aligned"].leaves, states["raw"].leaves)
    return states


def _check_chains(figure: str, num_samples: int, num_chains: int | None, least: int) -> None:
    """`ValueError` unless there are that many chains, of two draws or more."""
    remedy = (
        "posteriors.Empirical.from_chains(samples) where leaves are (chains, draws, ...), else "
        "posteriors.Empirical(samples, num_chains)"
    )
    if num_chains is None:
        raise ValueError(
            f"{figure} needs chains, of which a bare tree of samples says nothing; give {remedy}"
        )
    if num_chains < least:
        raise ValueError(
            f"{figure} compares at least {least} chains, got {num_chains}; if there are more, give {remedy}"
        )
    if num_samples < 2 * num_chains:
        raise ValueError(f"{figure} needs at least two draws of each chain, got {num_samples // num_chains}")
