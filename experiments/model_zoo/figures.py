"""Figure of a zoo: how well its networks do."""

import numpy as np
from matplotlib.figure import Figure

from symbnn.plot.style import BLUE, GREY, RED, new_figure


def zoo_panels(accuracy: np.ndarray, loss: np.ndarray, *, mean_predictor: float) -> Figure:
    """Test accuracy and training loss over the networks; accuracy in percent."""
    figure, (left, right) = new_figure(2, width=4.4, height=3.2)
    for panel, values, words in ((left, accuracy, "{:.1f} %"), (right, loss, "{:.2f}")):
        median = np.median(values)
        panel.hist(values, 40, color=BLUE)
        panel.axvline(median, color=GREY, linestyle="--", label=f"median {words.format(median)}")
    left.axvline(mean_predictor, color=RED, label=f"all together {mean_predictor:.1f} %")
    left.set(xlabel="test accuracy, %", ylabel="networks")
    right.set(xlabel="training loss of the last epoch, nats", ylabel="networks")
    for panel in (left, right):
        panel.legend(frameon=False)
    return figure
