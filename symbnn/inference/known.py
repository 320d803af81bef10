"""Running statistics that are known: the law of a whole network from that of its weights."""

import dataclasses
from typing import Any

import jax

from symbnn.models.base import join_statistics, named_weights
from symbnn.posteriors import DiagonalGaussian, FixedLeaves, LowRankGaussian
from symbnn.types import Params


def with_statistics(gaussians: DiagonalGaussian | LowRankGaussian, statistics: Params) -> Any:
    """Gaussians over weights, stacked over modes, as laws of networks with these statistics; as they are if
    there are none."""
    if not statistics:
        return gaussians

    def one(gaussian: Any, known: Params) -> FixedLeaves:
        def named(weights: Params) -> Params:
            return named_weights(join_statistics(weights, known))

        parts = {part.name: named(getattr(gaussian, part.name)) for part in dataclasses.fields(gaussian)}
        return FixedLeaves(join_statistics(gaussian.mean, known), dataclasses.replace(gaussian, **parts))

    return jax.vmap(one)(gaussians, statistics)
