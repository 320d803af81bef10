"""Figure of what width does to an ensemble."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import PALETTE, draw_band, new_figure


def against_width(
    widths: Sequence[int],
    variation: Mapping[str, np.ndarray],
    accuracy: Mapping[str, np.ndarray],
    barrier: Mapping[str, np.ndarray],
) -> Figure:
    """Total variation, accuracy of the mean network, and loss barrier; arrays are (repetition, width)."""
    figure, panels = new_figure(3, width=4.2, height=3.4)
    labels = {
        "total variation to the ensemble": variation,
        "accuracy of the mean network": accuracy,
        "test loss barrier, nats": barrier,
    }
    for panel, (label, curves) in zip(panels, labels.items(), strict=True):
        for (name, values), colour in zip(curves.items(), PALETTE, strict=False):
            draw_band(panel, np.array(widths), values, label=name, colour=colour)
        panel.set(xscale="log", xlabel="hidden units", ylabel=label, ylim=(0, None))
        panel.set_xticks(widths, [str(width) for width in widths])
        panel.minorticks_off()
    panels[0].legend(frameon=False)
    return figure
