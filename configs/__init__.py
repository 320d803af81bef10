"""Frozen settings of the studies: `configs/<study>.py` holds a dataclass and its named instances."""

from typing import Any, NamedTuple

from configs import compact_posterior, loss_barriers, pruning, transpositions
from configs.fields import check, walk


class Study(NamedTuple):
    """One line about a study, and its configs: name -> (one line, config)."""

    summary: str
    configs: dict[str, tuple[str, Any]]


STUDIES = {
    name: Study((module.__doc__ or "").splitlines()[0], dict(module.CONFIGS))
    for name, module in {
        "compact_posterior": compact_posterior,
        "pruning": pruning,
        "loss_barriers": loss_barriers,
        "transpositions": transpositions,
    }.items()
}

__all__ = ["STUDIES", "Study", "check", "walk"]
