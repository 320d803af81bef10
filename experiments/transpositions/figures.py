"""Figure of the number of transpositions (NoT) before and after training, and along the line."""

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from symbnn.plot.style import BLUE, GREEN, GREY, RED, draw_band, new_figure

COLOURS = {"weights": GREEN, "activations": RED}


def transposition_panels(
    initial: np.ndarray,
    found: Mapping[str, Mapping[str, np.ndarray]],
    weights: np.ndarray,
    paths: Mapping[str, Mapping[int, np.ndarray]],
) -> Figure:
    """NoT after training, distance and barrier against initial NoT; NoT along the line by each matching.

    `found` holds arrays (run, value), `paths` arrays (run, point) by initial NoT.
    """
    figure, panels = new_figure(3, 2, width=4.2, height=3.3)
    final, distance, barrier, *lines = panels
    final.plot(initial, initial, "--", color=GREY, label="as at the start")
    for panel, name in ((distance, "distance"), (barrier, "barrier")):
        draw_band(panel, initial, found["as trained"][name], label="not aligned", colour=BLUE)
    for method, colour in COLOURS.items():
        label = f"matched by {method}"
        draw_band(final, initial, found[method]["transpositions"], label=label, colour=colour)
        for panel, name in ((distance, "distance"), (barrier, "barrier")):
            draw_band(panel, initial, found[method][name], label=label, colour=colour)
    final.set(title="(a) NoT after training", ylabel="NoT", xlabel="initial NoT")
    distance.set(title="(b) distance", ylabel="squared distance of the weights", xlabel="initial NoT")
    barrier.set(title="(c) loss barrier", ylabel="test loss barrier, nats", xlabel="initial NoT")
    for panel, method in zip(lines, COLOURS, strict=False):
        colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(paths[method])))
        for (count, rows), colour in zip(paths[method].items(), colours, strict=True):
            draw_band(panel, weights, rows, label=f"initial NoT {count}", colour=to_hex(colour))
        panel.set(title=f"(d) NoT to W_0, matched by {method}", xlabel="weight of W_1", ylabel="NoT")
    for panel in (final, distance):
        panel.legend(frameon=False)
    # Both panels of lines have the same colours; their legend fills the place that is left over.
    panels[-1].set_axis_off()
    panels[-1].legend(*lines[0].get_legend_handles_labels(), frameon=False, loc="center left")
    return figure
