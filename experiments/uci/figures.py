"""Figures over all tables: NLL of the methods, and what compact posteriors lose of it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.uci.compact import CONTROLS, DRAWS
from experiments.uci.findings import MOST_LOST, Scores
from experiments.uci.scores import WORDS, known
from symbnn.plot.style import PALETTE, new_figure

LEAST = 1e-3
"""Differences below this are drawn at it: the axis is logarithmic."""
MARKERS = "osD"
"""The next where the colours begin again."""


def nll(judged: Scores) -> Figure:
    """A row for every table, a dot for every method, at its NLL above the least one of the row."""
    methods = [method for method in WORDS if any(method in each for each in judged.values())]
    excess: dict[str, list[float | None]] = {WORDS[method]: [] for method in methods}
    for each in judged.values():
        values = {method: known(each.get(method, {}).get("nll")) for method in methods}
        least = min((value for value in values.values() if value is not None), default=0.0)
        for method, value in values.items():
            excess[WORDS[method]].append(None if value is None else value - least)
    return _dots(list(judged), excess, "NLL above the best method, nats")


def compact(laws: Scores) -> Figure:
    """A row for every table, a dot for every refined law and control, at what it loses."""
    shown = [name for name in next(iter(laws.values())) if name != DRAWS]
    losses = {law: [known(each[law]["gap"]) for each in laws.values()] for law in shown}
    figure = _dots(list(laws), losses, "NLL above that of the draws, nats", hollow=set(_controls()))
    figure.axes[0].axvline(MOST_LOST, color="0.5", linewidth=0.8)
    return figure


def _controls() -> list[str]:
    return ["q_d", *(name for names in CONTROLS.values() for name in names)]


def _dots(
    rows: Sequence[str],
    columns: Mapping[str, Sequence[float | None]],
    label: str,
    *,
    hollow: set[str] | frozenset[str] = frozenset(),
) -> Figure:
    figure, (panel,) = new_figure(width=7.0, height=1.6 + 0.32 * len(rows))
    offsets = np.linspace(-0.3, 0.3, len(columns))
    for index, (name, values) in enumerate(columns.items()):
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[index // len(PALETTE)]
        places = [(max(value, LEAST), row) for row, value in enumerate(values) if value is not None]
        panel.plot(
            [place[0] for place in places],
            [place[1] + offsets[index] for place in places],
            marker,
            color=colour,
            markersize=4,
            markerfacecolor="none" if name in hollow else colour,
            label=name,
        )
    panel.set(xlabel=label, xscale="log")
    panel.set_yticks(range(len(rows)), rows)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4)
    return figure
