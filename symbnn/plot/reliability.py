"""Reliability diagrams: is what was predicted with confidence q right with frequency q?

The band is Wilson's 95 % interval of the accuracy of every bin,

    (k + z²/2 ± z sqrt(k (n - k) / n + z²/4)) / (n + z²),   k right of n, z = 1.96,

which stays sensible for bins of a few inputs, all of them right.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from symbnn.evaluate import ReliabilityCurve, reliability_curve
from symbnn.plot.style import BLUE, GREY, new_figure

NORMAL_95 = 1.959964


def reliability(predictions: Any, labels: Any = None, *, bins: int = 15, figure: Any = None) -> Figure:
    """Accuracy against confidence with 95 % intervals, above the number of inputs in every bin.

    Confidence of exactly one has a bin of its own, drawn to the right of one.

    Args:
        predictions: Probabilities `(inputs, classes)`, or what `evaluate.reliability_curve` returns; or
            several of these by name, a column each.
        labels: The true classes `(inputs,)`, for probabilities.
        bins: Of equal width, for probabilities.
        figure: An empty figure or subfigure to draw into, instead of a new one.
    """
    named = predictions if isinstance(predictions, Mapping) else {"": predictions}
    if not named:
        raise ValueError("predictions: expected at least one, got an empty dict")
    curves = {name: _curve(name, each, labels, bins) for name, each in named.items()}
    figure, panels = new_figure(
        len(curves), 2, width=3.8, height=2.4, figure=figure, height_ratios=(3.0, 1.0)
    )
    for (name, curve), above, below in zip(curves.items(), panels, panels[len(curves) :], strict=False):
        _draw_accuracy(above, curve)
        _draw_counts(below, curve)
        above.set_title(
            f"{name}, ECE {_gap(curve):.3f}" if name else f"ECE {_gap(curve):.3f}", fontsize="medium"
        )
    panels[0].set_ylabel("accuracy")
    panels[len(curves)].set_ylabel("inputs")
    handles, words = panels[0].get_legend_handles_labels()
    figure.legend(handles, words, frameon=False, loc="outside lower center", ncols=3)
    return figure.get_figure(root=True)


def wilson_interval(right: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the 95 % interval of a share, `right` of `count`."""
    square = NORMAL_95**2
    centre = right + 0.5 * square
    reach = NORMAL_95 * np.sqrt(right * (count - right) / count + 0.25 * square)
    return (centre - reach) / (count + square), (centre + reach) / (count + square)


def _curve(name: str, given: Any, labels: Any, bins: int) -> Any:
    """The curve, in NumPy's arrays."""
    curve: Any
    if isinstance(given, ReliabilityCurve):
        curve = given
    elif labels is None:
        what = f" of {name!r}" if name else ""
        raise ValueError(
            f"labels: probabilities{what} need the true classes beside them; give them, or what "
            "evaluate.reliability_curve returns"
        )
    else:
        curve = reliability_curve(given, labels, bins=bins)
    return curve._replace(**{name: np.asarray(part, np.float64) for name, part in curve._asdict().items()})


def _gap(curve: Any) -> float:
    """The expected calibration error: empty bins have no gap."""
    gaps = np.where(curve.counts > 0, np.abs(curve.accuracy - curve.confidence), 0.0)
    return float(np.sum(curve.counts * gaps) / np.sum(curve.counts))


def _draw_accuracy(panel: Axes, curve: Any) -> None:
    is_full = curve.counts > 0
    counts, confidence, accuracy = (part[is_full] for part in curve[1:])
    low, high = wilson_interval(accuracy * counts, counts)
    panel.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="calibrated")
    panel.fill_between(confidence, low, high, color=BLUE, alpha=0.2, linewidth=0, label="95 % interval")
    # Bars as well as a band: a single bin has no width to fill.
    panel.vlines(confidence, low, high, color=BLUE, linewidth=1, alpha=0.7)
    panel.plot(confidence, accuracy, color=BLUE, marker="o", markersize=4, label="accuracy")
    panel.set(xlim=(0, 1 + _last_width(curve)), ylim=(-0.02, 1.02))
    panel.tick_params(labelbottom=False)


def _draw_counts(panel: Axes, curve: Any) -> None:
    widths = np.append(np.diff(curve.edges), _last_width(curve))
    panel.bar(curve.edges, curve.counts, widths, align="edge", color=BLUE, edgecolor="white", linewidth=0.5)
    panel.set_yscale("log")
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set(xlim=(0, 1 + _last_width(curve)), ylim=(0.7, None), xlabel="confidence")


def _last_width(curve: Any) -> float:
    """Of the bin of confidence one, which has no width of its own."""
    return 0.5 / (len(curve.edges) - 1)
