"""Panels that several studies draw: pruning, spread of weights, bands over repetitions."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.style import BLUE, PALETTE, RED, new_figure


def pruning_panels(
    kept: np.ndarray, accuracy: Mapping[str, Mapping[str, np.ndarray]], *, columns: int
) -> Figure:
    """One panel per kind of network, one line per ranking; arrays are (network, level)."""
    figure, panels = new_figure(
        columns, -(-len(accuracy) // columns), width=max(4.2, 5.6 / columns), height=3.2
    )
    for panel, (kind, curves) in zip(panels, accuracy.items(), strict=True):
        for (name, rows), colour in zip(curves.items(), PALETTE, strict=False):
            # Rankings that need no posterior are dashed.
            style = "-" if "σ" in name else "--"
            mean = 100 * rows.mean(0)
            panel.plot(100 * kept, mean, style, color=colour, marker="o", markersize=3, label=name)
        panel.invert_xaxis()
        panel.set(xlabel="weights kept, %", ylim=(0, 102))
        panel.set_title(kind, fontsize="medium")
    for panel in panels[::columns]:
        panel.set_ylabel("test accuracy, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, loc="outside lower center", ncols=min(len(labels), 3 * columns)
    )
    return figure


def spread_histograms(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Figure:
    """Standard deviations of all weights before and after alignment, one panel per posterior."""
    figure, panels = new_figure(len(before))
    for panel, name in zip(panels, before, strict=True):
        both = np.concatenate([before[name], after[name]])
        bins = np.linspace(both.min(), both.max(), 60).tolist()
        for values, colour, words in ((before[name], RED, "raw"), (after[name], BLUE, "aligned")):
            label = f"{words}, median {np.median(values):.2f}"
            panel.hist(values, bins, color=colour, alpha=0.6, label=label)
        panel.set(title=name, xlabel="standard deviation of a weight", ylabel="weights")
        panel.legend(frameon=False)
    return figure


def draw_band(panel: Axes, x: np.ndarray, rows: np.ndarray, *, label: str, colour: str) -> None:
    """Mean over the rows, with a band of one standard deviation either side."""
    mean, spread = rows.mean(0), rows.std(0)
    panel.plot(x, mean, color=colour, marker="o", markersize=3, label=label)
    panel.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
