"""Figure of diversity: pairs of networks, exchangeability of units, orders of units through training."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import BLUE, GREY, RED, draw_band, new_figure


def diversity_panels(
    inside: np.ndarray,
    outside: np.ndarray,
    counts: Mapping[str, np.ndarray],
    epochs: np.ndarray,
    taus: np.ndarray,
    milestones: Sequence[int],
) -> Figure:
    """Mutual information of pairs, counts of the unit with the largest weight, Kendall's τ by epoch.

    `counts` are shares of the samples by unit, `taus` is (network, epoch).
    """
    figure, (pairs, units, order) = new_figure(3, width=4.4, height=3.4)
    pairs.plot(inside, outside, ".", color=BLUE, markersize=3, alpha=0.4, markeredgewidth=0, rasterized=True)
    pairs.set(xlabel="mutual information, test images, nats", ylabel="out of distribution, nats")
    width = 0.8 / len(counts)
    for place, ((name, shares), colour) in enumerate(zip(counts.items(), (BLUE, RED), strict=True)):
        at = np.arange(len(shares)) + width * (place - 0.5)
        units.bar(at, 100 * shares, width, color=colour, label=name)
    units.axhline(100 / len(shares), color=GREY, linestyle="--", linewidth=1, label="exchangeable")
    units.set(xlabel="unit with the largest weight", ylabel="samples, %")
    units.set_ylim(0, 1.35 * max(100 * shares.max() for shares in counts.values()))
    units.legend(frameon=False, loc="upper left", ncols=2)
    draw_band(order, epochs, taus, label="", colour=BLUE)
    for milestone in milestones:
        order.axvline(milestone, color=GREY, linestyle=":", linewidth=1)
    order.set(xlabel="epoch (dotted: learning rate / 10)", ylabel="Kendall's τ to the order before")
    return figure
