"""Figure of the compact posterior: pairs of posteriors."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import BLUE, GREY, new_figure


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
