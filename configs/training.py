"""How the networks of the studies of weight space are trained. Defaults: the paper's settings."""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded


@dataclass(frozen=True)
class Training:
    """Maximum likelihood by minibatches, every network with its own shuffle of the data."""

    optimizer: Literal["sgd", "momentum", "nesterov", "adam"] = "momentum"
    """Of the likelihood alone: the studies of barriers have no prior."""
    learning_rate: float = bounded(1e-3, 1e-10, 100.0)
    """Constant."""
    momentum: float = bounded(0.9, 0.0, 0.9999)
    """Of `momentum` and `nesterov`."""
    batch_size: int = bounded(64, 1, 1_000_000)
    """Examples per step."""
    num_epochs: int = bounded(50, 1, 100_000)
    """Passes over the training data."""
    members_per_block: int | None = bounded(None, 1, 1_000_000)
    """Networks trained at once, where memory does not hold them all; all by default."""
