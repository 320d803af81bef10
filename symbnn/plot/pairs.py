"""Two weights of every network against each other, raw and aligned: symmetric copies become one cloud."""

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbnn.plot.chains import name_chains
from symbnn.plot.choice import choose
from symbnn.plot.draws import states_of
from symbnn.plot.style import BLUE, GREY, colours, new_figure, shortened

MOST_POINTS = 20_000
"""Of a panel: more would only blacken it."""


def pairs(raw: Any, aligned: Any = None, *, which: Any = 2, figure: Any = None) -> Figure:
    """A row for every pair of the weights, raw and aligned on one scale; coloured by chain where it is known.

    Args:
        raw: Networks as they were drawn: a `Fit`, an `Empirical`, or a tree with a leading axis.
        aligned: The same networks aligned, drawn beside them; an `Aligned` will do.
        which: At least two weights, as for `rank`.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    states = states_of("pairs", raw, aligned, least_chains=0)
    weights = choose(which, states["raw"])
    if len(weights) < 2:
        raise ValueError(
            f"which: expected at least two weights to make a pair of, got {list(map(str, weights))}"
        )
    rows = list(itertools.combinations(weights, 2))
    figure, panels = new_figure(len(states), len(rows), width=3.6, height=3.3, figure=figure)
    places = iter(panels)
    for pair in rows:
        values = {name: [weight.draws(draws) for weight in pair] for name, draws in states.items()}
        limits = [
            _limits(np.concatenate([each[axis].ravel() for each in values.values()])) for axis in (0, 1)
        ]
        for name, (x, y) in values.items():
            panel = next(places)
            for chain, colour in enumerate(colours(len(x))):
                points = np.stack([x[chain], y[chain]], axis=1)[:: max(1, x.size // MOST_POINTS)]
                draw_cloud(panel, points, colour=colour, size=_size(x.size), label=f"chain {chain}")
            panel.set(xlim=limits[0], ylim=limits[1])
            panel.set_xlabel(shortened(str(pair[0]), 40))
            panel.set_title(name, fontsize="medium")
        panels[panels.index(panel) - len(states) + 1].set_ylabel(shortened(str(pair[1]), 36))
    name_chains(figure, panels[0], states["raw"].shape[0])
    return figure.get_figure(root=True)


def draw_cloud(
    panel: Axes, points: np.ndarray, *, colour: str = BLUE, size: float = 4, label: str = ""
) -> None:
    """Points `(points, 2)`, with lines through zero."""
    panel.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    panel.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    panel.plot(
        *points.T,
        ".",
        color=colour,
        markersize=size,
        alpha=0.6,
        markeredgewidth=0,
        label=label,
        rasterized=True,
    )


def _size(number: int) -> float:
    """Of a point: thousands must not cover one another."""
    return 7.0 if number < 500 else 4.0


def _limits(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.05 * abs(low) or 1.0
    return low - margin, high + margin
