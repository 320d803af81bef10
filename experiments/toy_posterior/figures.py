"""Figure of the last layer of many small networks before and after symmetry removal."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import GREY, new_figure

# The paper's: cells across the panel, half the width of the panel, networks at which the colour saturates.
CELLS, LIMIT, SATURATION = 85, 4.0, 30


def last_layer_panels(weights: Mapping[str, np.ndarray], *, min_count: int) -> Figure:
    """Density of the two weights `(networks, 2)`, one panel per gauge."""
    figure, panels = new_figure(len(weights), width=4.1, height=4.0)
    for panel, (name, pair) in zip(panels, weights.items(), strict=True):
        panel.axhline(0, color=GREY, linewidth=0.5, zorder=0)
        panel.axvline(0, color=GREY, linewidth=0.5, zorder=0)
        drawn = panel.hexbin(
            pair[:, 0],
            pair[:, 1],
            gridsize=CELLS,
            extent=(-LIMIT, LIMIT, -LIMIT, LIMIT),
            mincnt=min_count,
            vmax=SATURATION,
            cmap="viridis_r",
            linewidths=0.1,
        )
        panel.set(title=name, xlabel="weight of the first unit", aspect="equal")
        panel.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT))
    panels[0].set_ylabel("weight of the second unit")
    figure.colorbar(drawn, ax=panels, label="networks", shrink=0.8, extend="max")
    return figure
