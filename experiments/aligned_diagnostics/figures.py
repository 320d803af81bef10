"""Figures of convergence diagnostics."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from symbnn.plot.style import BLUE, GREY, PALETTE, RED, new_figure

TICKS = (1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 4.0, 10.0)
SMALLEST = 1e-4


def rhat_curves(
    values: Mapping[str, np.ndarray], *, limit: float, raw: str, function: str, control: str
) -> Figure:
    """Share of quantities with an R-hat up to each value; the further right a curve, the worse it looks."""
    figure, (panel,) = new_figure(width=8.0, height=4.2)
    marked = {raw: (RED, "-"), function: ("black", "-"), control: (GREY, "--")}
    others = iter([colour for colour in PALETTE if colour not in (RED, GREY)] or [BLUE])
    for name, rhat in values.items():
        colour, style = marked[name] if name in marked else (next(others), "-")
        excess = np.sort(np.maximum(np.asarray(rhat) - 1.0, SMALLEST))
        share = np.arange(1, len(excess) + 1) / len(excess)
        width = 2.4 if name in marked else 1.5
        panel.plot(excess, 100 * share, style, color=colour, linewidth=width, label=name)
    panel.axvline(limit - 1.0, color=GREY, linewidth=1, linestyle=":")
    panel.text(limit - 1.0, 101, f"{limit:g}", ha="center", va="bottom", fontsize=9, color=GREY)
    panel.set_xscale("log")
    panel.set(xlabel="rank-normalised R-hat", ylabel="quantities up to this value, %", ylim=(0, 100))
    panel.set_xlim(1e-3, None)
    panel.xaxis.set_major_locator(FixedLocator([tick - 1.0 for tick in TICKS]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda excess, _: f"{1.0 + excess:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
