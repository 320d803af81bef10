"""Figure of diversity: pairs of networks, exchangeability of units, orders of units through training."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.diversity.results import Orders, Results
from symbnn.plot.style import BLUE, GREY, PALETTE, RED, colours, draw_band, new_figure

# More layers than this are one band, as their lines could not be told apart.
MOST_LINES = 6
# More pairs than this lie on one another, and are small and pale.
MOST_DOTS = 50


def diversity_panels(results: Results) -> Figure:
    """Information of pairs, then what there is of: counts by unit, positions over layers, τ by epoch."""
    by_layer = {name: each for name, each in results.tested.items() if each.by_layer}
    pooled = {name: each.pooled for name, each in results.tested.items() if each.pooled}
    drawn = [lambda panel: _pairs(panel, results)]
    if by_layer:
        layer = next(iter(results.tested.values())).layers
        name = next(iter(layer))
        counts = {key: each.layers[name].counts for key, each in by_layer.items()}
        unit = f"unit of {name}" if len(layer) > 1 else "unit"
        drawn.append(lambda panel: _units(panel, f"{unit} with the largest weight", counts, None))
    if pooled:
        label = "part of a layer with its largest weight"
        shown = {key: each.counts for key, each in pooled.items()}
        expected = next(iter(pooled.values())).expected
        drawn.append(lambda panel: _units(panel, label, shown, expected / expected.sum()))
    if results.orders:
        orders = results.orders
        drawn.append(lambda panel: _orders(panel, orders))
    figure, panels = new_figure(len(drawn), width=4.4, height=3.4)
    for draw, panel in zip(drawn, panels, strict=True):
        draw(panel)
    return figure


def _pairs(panel: Axes, results: Results) -> None:
    outside = results.outside
    is_cloud = len(results.inside) > MOST_DOTS
    look: Any = {"markersize": 3 if is_cloud else 8, "alpha": 0.4 if is_cloud else 0.9, "markeredgewidth": 0}
    for (name, each), colour in zip(outside.items(), colours(len(outside)), strict=True):
        panel.plot(results.inside, each, ".", color=colour, label=name, rasterized=True, **look)
    panel.set(xlabel="mutual information, test images, nats", ylabel="out of distribution, nats")
    panel.xaxis.set_major_locator(MaxNLocator(5))
    if len(outside) > 1:
        legend = panel.legend(frameon=False, markerscale=4 if is_cloud else 1)
        for handle in filter(None, legend.legend_handles):
            handle.set_alpha(1.0)


def _units(panel: Axes, label: str, counts: dict[str, np.ndarray], expected: np.ndarray | None) -> None:
    """Shares of the samples by unit, beside what exchangeable units have: even, or as given."""
    width, size = 0.8 / len(counts), len(next(iter(counts.values())))
    shares = {name: 100 * each / each.sum() for name, each in counts.items()}
    for place, ((name, each), colour) in enumerate(zip(shares.items(), (BLUE, RED), strict=False)):
        panel.bar(
            np.arange(size) + width * (place - (len(counts) - 1) / 2), each, width, color=colour, label=name
        )
    even = np.full(size, 1 / size) if expected is None else expected
    steps: Any = {"color": GREY, "linestyle": "--", "linewidth": 1, "label": "exchangeable", "baseline": None}
    panel.stairs(100 * even, np.arange(size + 1) - 0.5, **steps)
    panel.set(xlabel=label, ylabel="samples, %")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_ylim(0, 1.35 * max(each.max() for each in shares.values()))
    panel.legend(frameon=False, loc="upper left", ncols=2)


def _orders(panel: Axes, orders: Orders) -> None:
    """One band for one layer or for many, lines for a few."""
    taus = orders.taus
    if 1 < len(taus) <= MOST_LINES:
        for (name, each), colour in zip(taus.items(), PALETTE, strict=False):
            draw_band(panel, orders.epochs, each, label=name, colour=colour)
        panel.legend(frameon=False)
    else:
        draw_band(panel, orders.epochs, np.concatenate(list(taus.values())), label="", colour=BLUE)
    for milestone in orders.milestones:
        panel.axvline(milestone, color=GREY, linestyle=":", linewidth=1)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="epoch (dotted: learning rate / 10)", ylabel="Kendall's τ to the order before")
