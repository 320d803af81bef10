"""Frozen settings of the studies: `configs/<study>.py` holds a dataclass and its named instances."""

from typing import Any, NamedTuple

from configs import (
    aligned_diagnostics,
    compact_posterior,
    compact_trained,
    diversity,
    loss_barriers,
    model_zoo,
    posterior_quality,
    posterior_views,
    pruning,
    scaling_symmetry,
    toy_posterior,
    transpositions,
    weight_sharing,
)
from configs.fields import check, walk


class Study(NamedTuple):
    """One line about a study, and its configs: name -> (one line, config)."""

    summary: str
    configs: dict[str, tuple[str, Any]]


STUDIES = {
    name: Study((module.__doc__ or "").splitlines()[0], dict(module.CONFIGS))
    for name, module in {
        "compact_posterior": compact_posterior,
        "compact_trained": compact_trained,
        "aligned_diagnostics": aligned_diagnostics,
        "pruning": pruning,
        "loss_barriers": loss_barriers,
        "transpositions": transpositions,
        "toy_posterior": toy_posterior,
        "weight_sharing": weight_sharing,
        "scaling_symmetry": scaling_symmetry,
        "model_zoo": model_zoo,
        "diversity": diversity,
        "posterior_quality": posterior_quality,
        "posterior_views": posterior_views,
    }.items()
}

__all__ = ["STUDIES", "Study", "check", "walk"]
