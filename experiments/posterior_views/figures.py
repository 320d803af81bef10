"""Figures of a posterior's states: projections, pairs of weights, loss surfaces; one panel per state."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.pairs import draw_cloud
from symbnn.plot.style import RED, new_figure


def clouds(states: Mapping[str, np.ndarray], axes: Sequence[str]) -> Figure:
    """Two coordinates of every network, `(networks, 2)`, on one common scale; a panel for each title."""
    figure, panels = new_figure(len(states), width=3.6, height=4.0)
    reach = 1.05 * max(np.abs(places).max() for places in states.values())
    for panel, (title, places) in zip(panels, states.items(), strict=True):
        draw_cloud(panel, places)
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel=axes[0])
        panel.set_title(title, fontsize="medium")
    panels[0].set_ylabel(axes[1])
    return figure


def surfaces(ticks: np.ndarray, states: Mapping[str, np.ndarray]) -> Figure:
    """Loss on the plane through three networks, logarithmic colours, one scale for all."""
    figure, panels = new_figure(len(states), width=3.6, height=3.6)
    logs = {name: np.log10(np.maximum(np.asarray(losses), 1e-6)) for name, losses in states.items()}
    levels = np.linspace(
        min(values.min() for values in logs.values()), max(values.max() for values in logs.values()), 25
    )
    for panel, (name, values) in zip(panels, logs.items(), strict=True):
        drawn = panel.contourf(ticks, ticks, values, levels=levels, cmap="cividis")
        panel.plot([0, 1, 0], [0, 0, 1], "o", color="white", markeredgecolor=RED, markersize=7)
        panel.set(aspect="equal", xlabel="towards the second network")
        panel.set_title(name, fontsize="medium")
    panels[0].set_ylabel("towards the third network")
    figure.colorbar(drawn, ax=panels, label="log10 of the training loss", shrink=0.8)
    return figure
