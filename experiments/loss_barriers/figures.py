"""Figures of the line between two networks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.common.figures import draw_band
from experiments.harness.style import PALETTE, new_figure


def lines_through_training(
    weights: np.ndarray,
    epochs: Sequence[int],
    loss: Mapping[str, np.ndarray],
    error: Mapping[str, np.ndarray],
) -> Figure:
    """Loss above error along the line, one column per epoch; arrays are (epoch, pair, point)."""
    columns = len(epochs)
    figure, panels = new_figure(columns, 2, width=3.4, height=2.9)
    for column, epoch in enumerate(epochs):
        above, below = panels[column], panels[columns + column]
        for (name, curves), colour in zip(loss.items(), PALETTE, strict=False):
            draw_band(above, weights, curves[column], label=name, colour=colour)
            draw_band(below, weights, 100 * error[name][column], label=name, colour=colour)
        above.set(title=f"after epoch {epoch}", ylim=(0, None))
        below.set(xlabel="weight of the second network", ylim=(0, None))
    panels[0].set_ylabel("test loss, nats")
    panels[columns].set_ylabel("test error, %")
    legend = panels[0].get_legend_handles_labels()
    figure.legend(*legend, frameon=False, loc="outside upper center", ncols=len(loss))
    return figure
