"""Accuracy against the share of weights kept, ranked by the standard deviations of posteriors (Figure 5).

Xiao, Liu, Bamler (2023). The posteriors are those of the study `compact_posterior`.
`python -m experiments.pruning digits` takes minutes on two CPU cores; expect the standard deviations of
aligned samples to rank better than those of raw ones at every level, and magnitude to rank better still.
"""

from dataclasses import dataclass, fields

from configs import compact_posterior
from configs.fields import bounded
from configs.parts import Posteriors


@dataclass(frozen=True)
class Pruning(Posteriors):
    """HMC, an ensemble and VI; their standard deviations, magnitude and chance rank weights for removal."""

    num_networks: int = bounded(40, 1, 1_000_000)
    """HMC samples that curves are averaged over, evenly spaced; also the number of random rankings."""
    posteriors: str | None = None
    """Run directory of `compact_posterior` with the same settings, whose posteriors are taken; by default
    they are made."""


def _of(settings: Posteriors, *, num_networks: int) -> Pruning:
    shared = {field.name: getattr(settings, field.name) for field in fields(Posteriors)}
    return Pruning(**shared, num_networks=num_networks)


CONFIGS = {
    name: (summary, _of(config, num_networks=3 if name == "debug" else 40))
    for name, (summary, config) in compact_posterior.CONFIGS.items()
}
