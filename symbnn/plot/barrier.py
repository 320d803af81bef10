"""Loss and error along the straight line between two networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbnn.evaluate import Barrier
from symbnn.plot.style import colours, draw_band, new_figure


def barrier(
    curves: Any, *, loss: str = "loss", error: str = "error (share of inputs)", figure: Any = None
) -> Figure:
    """Loss beside error along the line, with the height of the barrier in the legend.

    Curves of many pairs, stacked as `jax.vmap` of `evaluate.barrier` gives them, are drawn as their mean with
    a band of one standard deviation.

    Args:
        curves: One `evaluate.Barrier`, or several by name.
        loss: What the loss is called, with its unit.
        error: What the error is called.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    named = {"": curves} if isinstance(curves, Barrier) else curves
    if not isinstance(named, Mapping) or not named or not all(isinstance(b, Barrier) for b in named.values()):
        raise ValueError(
            "curves: expected what evaluate.barrier returns, or several of them by name, got "
            f"{type(curves).__name__}"
        )
    figure, panels = new_figure(2, width=4.4, height=3.5, figure=figure)
    for panel, field, words in zip(panels, ("loss", "error"), (loss, error), strict=True):
        lines = {}
        for name, each in named.items():
            rows = _rows(f"{name} {field}".strip(), getattr(each, field))
            label = _label(name, np.ravel(getattr(each, f"{field}_barrier")))
            lines[label] = np.reshape(each.weights, rows.shape)[0], rows
        draw_lines(panel, lines)
        panel.set(xlabel="weight of the second network", ylabel=words)
        # Above the panel: a curve may rise anywhere in it.
        panel.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure.get_figure(root=True)


def draw_lines(panel: Axes, lines: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """By label, weights `(points,)` and curves `(pairs, points)`: a colour each, mean and band over pairs."""
    for (label, (weights, rows)), colour in zip(lines.items(), colours(len(lines)), strict=True):
        draw_band(panel, weights, rows, label=label, colour=colour)


def _rows(name: str, curve: Any) -> np.ndarray:
    """One row for each pair of networks."""
    rows = np.asarray(curve, np.float64)
    if not np.isfinite(rows).all():
        raise ValueError(f"curves: {name} has values that are not finite; is one of the networks broken?")
    return rows.reshape(-1, rows.shape[-1])


def _label(name: str, barriers: np.ndarray) -> str:
    spread = f" ± {barriers.std():.2g}" if len(barriers) > 1 else ""
    return f"{name + ': ' if name else ''}barrier {barriers.mean():.2g}{spread}"
