"""Figures of weight sharing: the plane of (mean, standard deviation), and ablations."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from symbnn.plot.reliability import NORMAL_95
from symbnn.plot.style import BLUE, GREEN, GREY, RED, new_figure
from symbnn.sharing import CHI_SQUARE_95

# Enough to show where weights lie; a vector of millions would only blacken the page.
MOST_POINTS = 15_000


def plane(
    points: np.ndarray,
    panels: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]],
) -> Figure:
    """Weights in the plane, one panel per (title, labels, ellipse indices, means, covariances).

    Outliers (label -1) and ellipse weights are coloured; components are their 95 % ellipses.
    """
    figure, axes = new_figure(len(panels), width=6.0, height=4.6)
    shown = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    margin = 0.05 * (high - low) + 1e-9
    for panel, (title, labels, ellipses, means, covariances) in zip(axes, panels, strict=True):
        is_ellipse = np.zeros(len(points), bool)
        is_ellipse[ellipses] = True
        groups = {
            "shared": (GREY, (labels >= 0) & ~is_ellipse, 0.35),
            "outlier": (RED, labels < 0, 0.8),
            "ellipse weight": (GREEN, is_ellipse, 0.8),
        }
        for name, (colour, mask, opacity) in groups.items():
            chosen = points[shown[mask[shown]]]
            label = f"{name} ({int(mask.sum()):,})"
            panel.scatter(
                chosen[:, 0], chosen[:, 1], s=4, color=colour, alpha=opacity, linewidths=0, label=label
            )
        _draw_ellipses(panel, means, covariances)
        panel.set(
            title=f"{title}: {len(means):,} Gaussians",
            xlabel="mean of a weight",
            ylabel="standard deviation of a weight",
            xlim=(low[0] - margin[0], high[0] + margin[0]),
            ylim=(low[1] - margin[1], high[1] + margin[1]),
        )
        panel.legend(
            frameon=False,
            markerscale=3,
            ncols=3,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            fontsize="small",
        )
    return figure


def variants(differences: Mapping[str, Mapping[str, float]]) -> Figure:
    """Accuracy and NLL of every variant above those of the settings used, with 95 % intervals."""
    figure, panels = new_figure(2, width=5.0, height=1.0 + 0.26 * len(differences))
    names = list(differences)[::-1]
    scales = (("accuracy", 100.0, "points of test accuracy"), ("nll", 1.0, "test NLL"))
    for panel, (score, factor, label) in zip(panels, scales, strict=True):
        values, errors = (
            [factor * float(differences[name][key]) for name in names] for key in (score, f"{score}_error")
        )
        panel.axvline(0.0, color=GREY, linestyle="--", linewidth=1)
        panel.errorbar(values, range(len(names)), xerr=NORMAL_95 * np.array(errors), fmt="o", color=BLUE)
        panel.set(xlabel=f"{label} above the settings used", ylim=(-0.7, len(names) - 0.3))
        panel.set_yticks(range(len(names)), names if panel is panels[0] else [""] * len(names))
        panel.locator_params(axis="x", nbins=6)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
    return figure


def _draw_ellipses(panel: Axes, means: np.ndarray, covariances: np.ndarray) -> None:
    angle = np.linspace(0.0, 2 * np.pi, 60)
    circle = np.sqrt(CHI_SQUARE_95) * np.stack([np.cos(angle), np.sin(angle)])
    factors = np.linalg.cholesky(covariances)
    outlines = means[:, :, None] + factors @ circle
    lines = LineCollection(list(outlines.transpose(0, 2, 1)), colors=BLUE, linewidths=0.8, alpha=0.8)
    panel.add_collection(lines)
