"""Figure of the line between two networks."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.barrier import draw_lines
from symbnn.plot.style import new_figure


def lines(weights: np.ndarray, loss: Mapping[str, np.ndarray]) -> Figure:
    """Loss along the line, one curve per variant; arrays are (pair, point)."""
    figure, (panel,) = new_figure(width=5.6, height=3.6)
    draw_lines(panel, {name: (weights, curves) for name, curves in loss.items()})
    panel.set(xlabel="weight of the second network", ylabel="test loss, nats per character")
    panel.legend(frameon=False)
    return figure
