"""Figures of the line between two networks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.barrier import draw_lines
from symbnn.plot.style import new_figure


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
        draw_lines(above, {name: (weights, curves[column]) for name, curves in loss.items()})
        draw_lines(below, {name: (weights, 100 * curves[column]) for name, curves in error.items()})
        above.set(title=f"after epoch {epoch}", ylim=(0, None))
        below.set(xlabel="weight of the second network", ylim=(0, None))
    panels[0].set_ylabel("test loss, nats")
    panels[columns].set_ylabel("test error, %")
    legend = panels[0].get_legend_handles_labels()
    figure.legend(*legend, frameon=False, loc="outside upper center", ncols=len(loss))
    return figure
