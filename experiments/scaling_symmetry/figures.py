"""Figure of mass and minimum mass, of the law of the imbalance, and of a mass without minimum."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from symbnn.plot.style import BLUE, GREY, PALETTE, RED, new_figure


def scaling_panels(
    mass: np.ndarray,
    minimum: np.ndarray,
    left: Mapping[str, tuple[np.ndarray, np.ndarray]],
    scales: np.ndarray,
    orbits: Mapping[str, np.ndarray],
) -> Figure:
    """Minimum against mass, excess, share of the imbalance left against the law, mass along an orbit.

    `left` holds (by the law, measured) for every way of training, `orbits` masses at `scales`.
    """
    figure, (scatter, excess, law, orbit) = new_figure(2, 2, width=4.6, height=3.7)
    both = np.array([min(mass.min(), minimum.min()), max(mass.max(), minimum.max())])
    scatter.plot(both, both, "--", color=GREY, linewidth=1, label="equal")
    scatter.plot(mass, minimum, ".", color=BLUE, alpha=0.5, markeredgewidth=0)
    scatter.set(xlabel="mass after training", ylabel="least mass over rescalings")
    scatter.legend(frameon=False)
    # Few networks in many bins would look like noise.
    excess.hist(100 * (mass / minimum - 1), min(30, 2 + len(mass) // 4), color=BLUE)
    excess.yaxis.set_major_locator(MaxNLocator(integer=True))
    excess.set(xlabel="excess over the least mass, %", ylabel="networks", xlim=(0, None))
    _draw_law(law, left)
    for (name, masses), colour in zip(orbits.items(), (BLUE, RED), strict=True):
        orbit.plot(scales, masses / masses[np.argmin(np.abs(np.log(scales)))], color=colour, label=name)
    orbit.set(xscale="log", xlabel="scale of all hidden units", ylabel="mass, in that of scale 1")
    orbit.set_ylim(0, 3)
    orbit.legend(frameon=False)
    return figure


def _draw_law(panel: Axes, left: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    panel.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1, label="the law")
    for (name, (predicted, measured)), colour in zip(left.items(), PALETTE, strict=False):
        # Noisy minibatches are drawn hollow.
        face = "none" if "minibatches" in name else colour
        x, y = predicted + 0 * measured, measured
        panel.plot(x.ravel(), y.ravel(), "o", color=colour, markerfacecolor=face, markersize=4, label=name)
    panel.set(xlabel="share of the imbalance left by the law", ylabel="share left as measured")
    panel.set(xlim=(0, 1.02), ylim=(-0.25, 1.1))
    panel.legend(frameon=False, fontsize=7)
