"""Figure of what every step of a merge is worth."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from symbnn.plot.style import PALETTE, new_figure


def steps(accuracies: Mapping[str, Sequence[float]], single: Sequence[float]) -> Figure:
    """A dot for every merged pair in the row of its step; lines where the networks themselves are."""
    figure, (panel,) = new_figure(width=6.0, height=3.2)
    for row, values in enumerate(accuracies.values()):
        panel.plot(values, [row] * len(values), "o", color=PALETTE[0], alpha=0.7)
    for value in single:
        panel.axvline(value, color=PALETTE[1], linewidth=0.8)
    panel.set_yticks(range(len(accuracies)), list(accuracies))
    panel.invert_yaxis()
    panel.set(xlabel="test accuracy", xlim=(0, 1))
    return figure
