"""What the width of a network does to the mean, the spread and the barriers of an ensemble, aligned or not.

The aligned ensemble of Xiao, Liu, Bamler (2023), Table 1, at several widths. `python -m experiments.widths
mnist` takes about a quarter of an hour on two CPU cores; expect aligned Gaussians to come nearer to the
ensemble, and aligned barriers to fall, as networks get wider.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Compact, Data, Ensemble, Prior, Seeded


@dataclass(frozen=True)
class Widths(Seeded):
    """Ensembles of perceptrons with one hidden layer of several widths."""

    data: Data = Data()
    widths: tuple[int, ...] = bounded((8, 32, 128), 1, 1_000_000)
    """Hidden units."""
    inference: Prior = Prior()
    ensemble: Ensemble = Ensemble(num_members=5, num_epochs=200)
    compact: Compact = Compact()
    num_points: int = bounded(11, 3, 10_001)
    """Points on the line between two networks, ends included."""
    num_alignment_inputs: int | None = bounded(None, 1, 10_000_000)
    """Training images whose activations units are matched by; all by default."""


REFUSES = {"model.factory": "it compares perceptrons of several widths"}

CONFIGS = {
    "digits": ("1,797 bundled 8x8 images, 64-8-10 to 64-128-10: a minute on two CPU cores", Widths()),
    "debug": (
        "64-4-10 and 64-8-10 on 200 digits: seconds, to see that everything runs",
        Widths(
            data=Data(num_train=200, num_test=50),
            widths=(4, 8),
            ensemble=Ensemble(num_members=3, num_epochs=40, learning_rate=0.03),
            compact=Compact(num_draws=10, num_draw_seeds=2),
            num_points=5,
        ),
    ),
    "mnist": (
        "60,000 images, 784-32-10, 784-128-10 and the paper's 784-512-10: a quarter of an hour on two cores",
        Widths(
            data=Data(name="mnist"),
            widths=(32, 128, 512),
            ensemble=Ensemble(num_members=5),
            num_alignment_inputs=10_000,
        ),
    ),
}
