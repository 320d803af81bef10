"""Figures of the compact posterior: pairs of posteriors, transpositions."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.style import BLUE, GREY, new_figure


def pair_plots(pairs: Mapping[tuple[str, str], Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Every weight as a point: its mean (above) and standard deviation (below) under two posteriors."""
    figure, panels = new_figure(len(pairs), 2, width=3.3, height=3.1)
    for column, ((one, other), parts) in enumerate(pairs.items()):
        for row, (part, words) in enumerate((("mean", "mean"), ("std", "standard deviation"))):
            panel = panels[row * len(pairs) + column]
            x, y = parts[part]
            low, high = min(x.min(), y.min()), max(x.max(), y.max())
            panel.plot([low, high], [low, high], "--", color=GREY, linewidth=1)
            panel.plot(x, y, ".", color=BLUE, markersize=2.5, alpha=0.35, markeredgewidth=0, rasterized=True)
            panel.set_title(f"{words}: correlation {np.corrcoef(x, y)[0, 1]:.2f}", fontsize=10)
            panel.set(xlabel=one, ylabel=other)
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
