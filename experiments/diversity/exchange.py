"""Exchangeability of units, layer by layer and over all layers.

A law of networks that does not change when the units of any one layer are relabelled makes the unit with the
largest weight uniform in every layer, and independently so from layer to layer. So its relative positions,
(index + 1/2) / units, may be pooled over layers as well as networks, which is all that a few networks allow.
"""

from typing import NamedTuple

import numpy as np

from symbnn import diagnostics
from symbnn.diagnostics import Exchangeability
from symbnn.diagnostics.exchangeability import LEAST_PER_UNIT, NUM_SIMULATED, unit_axis
from symbnn.symmetry import SymmetrySpec
from symbnn.types import Samples

LEVEL = 0.05
"""Of every test."""
LEAST_SAMPLES = 10
"""Fewer networks say nothing of a layer by itself."""
NUM_BINS = 8
"""Parts of a layer that positions are counted in: as many as the units of small layers."""


class Pooled(NamedTuple):
    """Positions of the units with the largest weight, of all layers and networks."""

    counts: np.ndarray
    """By part of the layer, from its first units to its last."""
    expected: np.ndarray
    """Of exchangeable units; not quite even where parts do not divide the units."""
    statistic: float
    p_value: float
    """Simulated."""
    critical: float
    """Statistic that exchangeable units exceed at rate `LEVEL`."""

    @property
    def excess(self) -> np.ndarray:
        """Positions counted over positions expected."""
        return self.counts / self.expected

    @property
    def noticed(self) -> float:
        """Share of all positions that the first part must hold for the test to see it, the others alike.

        An excess d over the expected e of N moves the statistic to d²/e + d²/(N - e).
        """
        total, expected = self.counts.sum(), self.expected[0]
        excess = np.sqrt(self.critical / (1 / expected + 1 / (total - expected)))
        return float(min(1.0, (expected + excess) / total))


class Judged(NamedTuple):
    """One set of networks."""

    layers: dict[str, Exchangeability]
    pooled: Pooled | None
    """None where there is one layer, whose own test says more."""

    @property
    def num_samples(self) -> int:
        """Networks."""
        return int(next(iter(self.layers.values())).counts.sum())

    @property
    def by_layer(self) -> dict[str, Exchangeability]:
        """Tests of single layers; none of too few networks."""
        return self.layers if self.num_samples >= LEAST_SAMPLES else {}

    @property
    def holm(self) -> dict[str, float]:
        """p-values adjusted for the number of layers: exchangeable units fail in any at rate `LEVEL`."""
        return dict(zip(self.by_layer, _holm([each.p_value for each in self.by_layer.values()]), strict=True))

    @property
    def thin(self) -> list[str]:
        """Layers with too few samples per unit for the chi-square law."""
        return [
            name
            for name, each in self.by_layer.items()
            if each.counts.sum() < LEAST_PER_UNIT * len(each.counts)
        ]


def layers(spec: SymmetrySpec) -> list[str]:
    """Groups of two or more units of which every network has one, along an axis of some leaf."""
    return [
        group.name
        for group in spec.groups
        if group.size > 1 and not group.over and not group.is_linear and unit_axis(spec, group.name)
    ]


def test(spec: SymmetrySpec, samples: Samples) -> Judged:
    """All layers of a set of networks, and all together."""
    found = {name: diagnostics.exchangeability(spec, samples, group=name) for name in layers(spec)}
    return Judged(found, pool([each.counts for each in found.values()]) if len(found) > 1 else None)


def pool(counts: list[np.ndarray]) -> Pooled:
    """Positions of several layers together; `counts` are those of every unit, layer by layer."""
    generator, expected = np.random.default_rng(0), np.zeros(NUM_BINS)
    observed, drawn = np.zeros(NUM_BINS), np.zeros((NUM_SIMULATED, NUM_BINS))
    for each in counts:
        parts = (NUM_BINS * (np.arange(len(each)) + 0.5) / len(each)).astype(int)
        shares = np.bincount(parts, minlength=NUM_BINS) / len(each)
        observed += np.bincount(parts, weights=each, minlength=NUM_BINS)
        expected += each.sum() * shares
        drawn += generator.multinomial(each.sum(), shares, size=NUM_SIMULATED)
    # Where all layers are narrow some parts have no units.
    filled = expected > 0
    observed, expected, drawn = observed[filled], expected[filled], drawn[:, filled]
    statistic = np.sum((observed - expected) ** 2 / expected)
    simulated = np.sum((drawn - expected) ** 2 / expected, axis=1)
    # Rounding may not part what is a tie.
    as_far = 1 + np.count_nonzero(simulated >= statistic * (1 - 1e-9))
    p_value, critical = as_far / (NUM_SIMULATED + 1), np.quantile(simulated, 1 - LEVEL)
    return Pooled(observed, expected, float(statistic), float(p_value), float(critical))


def _holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values: (m - i + 1) p for that of rank i of m, and none below those before."""
    order, adjusted, largest = np.argsort(p_values), np.zeros(len(p_values)), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()
