"""Panels that several studies draw: accuracy against pruning."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import PALETTE, new_figure


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
