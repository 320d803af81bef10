"""Figures of the compact posterior: spread of weights, pruning, transpositions."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import BLUE, GREY, PALETTE, RED, new_figure


def spread_histograms(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Figure:
    """Standard deviations of all weights before and after alignment, one panel per posterior."""
    figure, panels = new_figure(len(before))
    for panel, name in zip(panels, before, strict=True):
        both = np.concatenate([before[name], after[name]])
        bins = np.linspace(both.min(), both.max(), 60).tolist()
        panel.hist(
            before[name], bins, color=RED, alpha=0.6, label=f"raw, median {np.median(before[name]):.2f}"
        )
        panel.hist(
            after[name], bins, color=BLUE, alpha=0.6, label=f"aligned, median {np.median(after[name]):.2f}"
        )
        panel.set(title=name, xlabel="standard deviation of a weight", ylabel="weights")
        panel.legend(frameon=False)
    return figure


def pruning_curves(kept: np.ndarray, accuracy: Mapping[str, np.ndarray], *, title: str) -> Figure:
    """Accuracy against the share of weights kept, one line per ranking."""
    figure, (panel,) = new_figure(width=7.0, height=4.0)
    for (name, values), colour in zip(accuracy.items(), PALETTE, strict=False):
        style = "--" if name == "random" else "-"
        panel.plot(100 * kept, 100 * values, style, color=colour, marker="o", markersize=3.5, label=name)
    panel.invert_xaxis()
    panel.set(title=title, xlabel="weights kept, %", ylabel="test accuracy, %", ylim=(0, 102))
    panel.legend(frameon=False, title="keep the weights of ...", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def transposition_histogram(counts: np.ndarray, *, num_units: int) -> Figure:
    """Number of transpositions from each sample to the reference, beside that of random permutations.

    A random permutation of n units has n - H_n transpositions on average (H_n: harmonic number).
    """
    figure, (panel,) = new_figure()
    panel.hist(counts, np.arange(-0.5, num_units + 0.5).tolist(), color=BLUE)
    random = num_units - sum(1 / k for k in range(1, num_units + 1))
    panel.axvline(random, color=GREY, linestyle="--", label=f"random permutation: {random:.1f}")
    panel.set(
        title=f"NoT to the reference, {num_units} units",
        xlabel="number of transpositions",
        ylabel="samples",
    )
    panel.legend(frameon=False)
    return figure
