"""What the stages of the study found: the one thing that tables, words and figures are made of."""

from typing import Any, NamedTuple

import numpy as np

from experiments.diversity.exchange import Judged

ENSEMBLE, CHAIN = "ensemble", "one HMC chain"
INSIDE = "inside"


class Orders(NamedTuple):
    """Kendall's τ between successive orders of units."""

    epochs: np.ndarray
    """Of the second of two orders."""
    milestones: tuple[int, ...]
    """Epochs after which the learning rate is divided by ten."""
    taus: dict[str, np.ndarray]
    """(network, epoch) by layer."""

    @classmethod
    def of(cls, training: Any, taus: dict[str, Any]) -> "Orders":
        """From the settings of the training, and τ by layer."""
        found = {name: np.asarray(each) for name, each in taus.items()}
        num = next(iter(found.values())).shape[1]
        return cls(np.arange(2, num + 2) * training.epochs_between, training.milestones, found)


class Results(NamedTuple):
    """All numbers of one run."""

    tested: dict[str, Judged]
    """Exchangeability by set: the ensemble and, if there is one, the chain."""
    accuracies: Any
    """Of every network, on test examples."""
    information: dict[str, Any]
    """Mutual information of every pair: inside first, then out of distribution by name."""
    orders: Orders | None
    """None where no training was followed."""

    @property
    def outside(self) -> dict[str, np.ndarray]:
        """Mutual information out of distribution."""
        return {name: np.asarray(each) for name, each in self.information.items() if name != INSIDE}

    @property
    def inside(self) -> np.ndarray:
        """Mutual information on test examples."""
        return np.asarray(self.information[INSIDE])
