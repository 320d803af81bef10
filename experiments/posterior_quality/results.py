"""Numbers of the study of posterior quality by entry, with their intervals and names."""

from typing import Any, NamedTuple

import numpy as np

from experiments.harness.tables import Cell

ONE, MANY = "one", "many"
ENSEMBLE, NETWORKS, CHAINS, SINGLE = "ensemble", "networks", "chains", "single"
NAMES = {
    "dropout": "dropout",
    "variational": "VI",
    "swag": "SWAG",
    "laplace": "Laplace",
    "sghmc": "SGHMC",
    "hmc": "HMC",
    ENSEMBLE: "deep ensemble",
    NETWORKS: "reference networks",
    CHAINS: "reference HMC chains",
    SINGLE: "one network",
}
HEADS = {
    "accuracy": "accuracy, %",
    "ece": "ECE, %",
    "ace": "ACE, %",
    "classwise_ace": "classwise ACE, %",
    "brier": "Brier, %",
    "nll": "NLL, 0.01 nats",
    "information": "MI, 0.01 nats",
    "aupr": "AUPR, %",
    "fpr95": "FPR95, %",
    "auroc": "AUROC, %",
}


class Estimate(NamedTuple):
    """A number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def cell(self) -> Cell:
        """The value with half the width of its interval."""
        return Cell(self.value, 0.5 * (self.high - self.low))

    @property
    def holds_zero(self) -> bool:
        """Whether the interval does."""
        return self.low <= 0.0 <= self.high

    def text(self, decimals: int = 2) -> str:
        """`0.31 [0.12, 0.50]`."""
        return f"{self.value:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


class Results(NamedTuple):
    """All numbers of a run, by entry: `swag_one`, `swag_many`, `ensemble`, ..."""

    scores: dict[str, Any]
    discrepancies: dict[str, Any]
    num_modes: int
    layers: list[str]
    outside: tuple[str, ...]
    last_layer: tuple[str, ...] = ()
    """Methods that vary the last layer only."""

    def entries(self) -> list[str]:
        """One-mode methods, then those of many modes, then the ensemble and the references."""
        ends = [f"_{ONE}", f"_{MANY}"]
        methods = [name for end in ends for name in self.scores if name.endswith(end)]
        return methods + [name for name in (SINGLE, ENSEMBLE, CHAINS, NETWORKS) if name in self.scores]

    def compared(self, reference: str) -> list[str]:
        """Entries that have a discrepancy from this reference."""
        return [entry for entry in self.entries() if entry in self.discrepancies[reference]]

    def methods(self) -> list[str]:
        """Methods that have a version of either kind."""
        return [name.removesuffix(f"_{ONE}") for name in self.scores if name.endswith(f"_{ONE}")]

    def name(self, method: str) -> str:
        """`SWAG`, or `VI of the last layer`."""
        return NAMES[method] + (" of the last layer" if method in self.last_layer else "")

    def label(self, entry: str) -> str:
        """`SWAG, 10 modes`."""
        method, _, version = entry.partition("_")
        modes = {ONE: ", one mode", MANY: f", {self.num_modes} modes", "": ""}
        return self.name(method) + modes[version]

    def score(self, entry: str, name: str) -> Estimate:
        """Mean over repetitions, its interval from resampled images."""
        return _estimate(np.asarray(self.scores[entry][name], float).mean(axis=0))

    def gain(self, method: str, name: str) -> Estimate:
        """Many modes minus one, on the same images; the interval from resampling them for both at once."""
        many, one = (
            np.asarray(self.scores[f"{method}_{version}"][name], float).mean(axis=0)
            for version in (MANY, ONE)
        )
        return _estimate(many - one)

    def discrepancy(self, reference: str, entry: str, version: str) -> Estimate:
        """Mean over repetitions of MMD², and of the ends of its interval."""
        found = self.discrepancies[reference][entry][version]
        return Estimate(float(np.mean(found["value"])), *np.asarray(found["interval"], float).mean(axis=0))

    def p_value(self, reference: str, entry: str, version: str) -> float:
        """Of equal laws; the largest over repetitions."""
        return float(np.max(self.discrepancies[reference][entry][version]["p_value"]))


def _estimate(values: np.ndarray) -> Estimate:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return Estimate(float(values[0]), float(low), float(high))
