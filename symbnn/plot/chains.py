"""Chains of single weights, raw against aligned: rank plots and traces.

Rank plots (Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021): all draws of a weight are ranked together, and
every chain shows how often it holds the low, middle and high ranks. Chains that draw from the same law show
flat histograms; a chain that stays in one mode shows a heap.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from symbnn.plot.choice import Weight, choose
from symbnn.plot.draws import Draws, states_of
from symbnn.plot.style import BLUE, PALETTE, RED, colours, new_figure, shortened

STATE_COLOURS = {"raw": RED, "aligned": BLUE}


def rank(
    raw: Any, aligned: Any = None, *, which: Any = 4, bins: int | None = None, figure: Any = None
) -> Figure:
    """Histograms of the ranks of every chain's draws among all draws, a row for each weight.

    Args:
        raw: Networks of two chains or more, as they were drawn: a `Fit` or an `Empirical` that knows its
            chains.
        aligned: The same networks aligned, drawn beside them; an `Aligned` will do.
        which: The weights: a number of them, the worst first, or `("out/kernel", (3, 5))`, `"out/kernel"`
            (the worst of that leaf), or a list of such.
        bins: Of each histogram; 20 if chains are long enough.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    states = states_of("rank", raw, aligned, least_chains=2)
    chains, draws = states["raw"].shape
    bins = min(20, draws) if bins is None else bins
    if not 2 <= bins <= chains * draws:
        raise ValueError(f"bins: expected from 2 to {chains * draws}, the number of draws, got {bins}")

    def draw(panel: Axes, values: np.ndarray, colour: str) -> None:
        counts = rank_counts(values, bins)
        # A chain's strip is one high; the fullest bin fills nine tenths of it.
        unit = 0.9 / counts.max()
        edges = np.linspace(0, chains * draws, bins + 1)
        for chain, heights in enumerate(counts):
            panel.bar(
                edges[:-1],
                unit * heights,
                np.diff(edges),
                bottom=chain,
                align="edge",
                color=colour,
                alpha=0.8,
            )
            panel.axhline(chain + unit * draws / bins, color="black", linestyle=":", linewidth=0.8)
        panel.set_yticks(np.arange(chains) + 0.45, [str(chain) for chain in range(chains)])
        panel.set(xlim=(0, chains * draws), ylim=(0, chains))

    figure, panels = _grid(states, which, draw, figure=figure, height=1.0 + 0.24 * chains)
    for panel in panels[-len(states) :]:
        panel.set_xlabel(f"rank among {chains * draws:,} (dotted: uniform)")
    for panel in panels[:: len(states)]:
        panel.set_ylabel("chain")
    return figure.get_figure(root=True)


def trace(raw: Any, aligned: Any = None, *, which: Any = 4, figure: Any = None) -> Figure:
    """The draws of every chain one after another, a row for each weight, on one scale raw and aligned.

    Args:
        raw: Networks as they were drawn: a `Fit` or an `Empirical` that knows its chains.
        aligned: The same networks aligned, drawn beside them; an `Aligned` will do.
        which: The weights, as for `rank`.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    states = states_of("trace", raw, aligned, least_chains=1)
    chains, _ = states["raw"].shape

    def draw(panel: Axes, values: np.ndarray, colour: str) -> None:
        for chain, (each, shade) in enumerate(zip(values, colours(chains), strict=True)):
            panel.plot(each, color=shade, linewidth=0.9, alpha=0.85, label=f"chain {chain}")
        panel.margins(x=0.01)

    figure, panels = _grid(states, which, draw, figure=figure, height=1.9)
    for start in range(0, len(panels), len(states)):
        _share_scale(panels[start : start + len(states)])
    for panel in panels[-len(states) :]:
        panel.set_xlabel("draw")
    for panel in panels[:: len(states)]:
        panel.set_ylabel("weight")
    name_chains(figure, panels[0], chains)
    return figure.get_figure(root=True)


def rank_counts(values: np.ndarray, bins: int) -> np.ndarray:
    """How many draws of each chain have a rank in each bin, `(chains, bins)`; ties share their mean rank."""
    ranks = rankdata(values).reshape(values.shape)
    edges = np.linspace(0.5, values.size + 0.5, bins + 1)
    return np.stack([np.histogram(each, edges)[0] for each in ranks])


def _share_scale(panels: list[Axes]) -> None:
    """The same limits of the vertical axis, wide enough for all."""
    limits = np.array([panel.get_ylim() for panel in panels])
    for panel in panels:
        panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def name_chains(figure: Any, panel: Axes, chains: int) -> None:
    """A legend below the figure, where there are few enough chains to tell by their colours."""
    if 1 < chains <= len(PALETTE):
        handles, labels = panel.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=chains, markerscale=2)


def _grid(
    states: dict[str, Draws],
    which: Any,
    draw: Callable[[Axes, np.ndarray, str], None],
    *,
    figure: Any,
    height: float,
) -> tuple[Any, list[Axes]]:
    """A row of panels for each weight, a column for each state; named by weight, state and R-hat."""
    weights = choose(which, states["raw"])
    figure, panels = new_figure(len(states), len(weights), width=4.6, height=height, figure=figure)
    places = iter(panels)
    for weight in weights:
        for state, draws in states.items():
            panel = next(places)
            draw(panel, weight.draws(draws), STATE_COLOURS[state])
            _name(panel, weight, state, draws)
    return figure, panels


def _name(panel: Axes, weight: Weight, state: str, draws: Draws) -> None:
    rhat = weight.rhat(draws)
    words = state if rhat is None else f"{state}, R-hat {rhat:.2f}"
    panel.set_title(f"{shortened(str(weight), 40)}\n{words}", loc="left", fontsize=9)
