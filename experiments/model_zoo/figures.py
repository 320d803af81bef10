"""Figure of a zoo: how well its networks do."""

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.style import BLUE, GREY, RED, new_figure


def zoo_panels(accuracy: np.ndarray, loss: np.ndarray, *, mean_predictor: float) -> Figure:
    """Test accuracy and training loss over the networks; accuracy in percent."""
    figure, (left, right) = new_figure(2, width=4.4, height=3.2)
    left.hist(accuracy, 40, color=BLUE)
    left.axvline(np.median(accuracy), color=GREY, linestyle="--", label=f"median {np.median(accuracy):.1f} %")
    left.axvline(mean_predictor, color=RED, label=f"all together {mean_predictor:.1f} %")
    left.set(xlabel="test accuracy, %", ylabel="networks")
    left.legend(frameon=False)
    right.hist(loss, 40, color=BLUE)
    right.axvline(np.median(loss), color=GREY, linestyle="--", label=f"median {np.median(loss):.2f}")
    right.set(xlabel="training loss of the last epoch, nats", ylabel="networks")
    right.legend(frameon=False)
    return figure
