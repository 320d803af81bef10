"""Number of transpositions between two starts, and what training makes of it (Figure 3).

Xiao, Liu, Bamler (2023). `python -m experiments.transpositions digits` takes minutes on two CPU cores;
expect the number after training to grow with the number at the start.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Data, Lines, Network, Training


@dataclass(frozen=True)
class Transpositions(Lines):
    """W_0 and copies of it with exactly k swaps of hidden units, trained on other shuffles of the data."""

    num_runs: int = bounded(5, 2, 10_000)
    """Networks W_0, for the bands; all of them and their copies train in one program."""
    num_values: int = bounded(50, 2, 100_000)
    """Initial numbers of transpositions, evenly spaced from 1 to the most there are."""
    num_paths: int = bounded(5, 1, 1_000)
    """How many of these are also followed along the line from W_0."""


CONFIGS = {
    "digits": (
        "1,797 bundled 8x8 images, 64-128-10: minutes on two CPU cores",
        Transpositions(
            model=Network(hidden=(128,)),
            # As many steps times learning rate as the paper: 1,297 images make few steps an epoch.
            training=Training(learning_rate=1e-2, num_epochs=200),
            num_values=16,
        ),
    ),
    "debug": (
        "64-8-10 on 200 digits, two epochs: seconds, to see that everything runs",
        Transpositions(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8,)),
            training=Training(learning_rate=1e-2, num_epochs=2),
            num_runs=2,
            num_values=4,
            num_paths=2,
            num_points=5,
        ),
    ),
    "mnist_cpu": (
        "10,000 MNIST images, 784-64-10: minutes on two CPU cores",
        Transpositions(
            data=Data(name="mnist", num_train=10_000),
            model=Network(hidden=(64,)),
            training=Training(learning_rate=5e-3, num_epochs=20),
            num_values=10,
            num_inputs=2_000,
        ),
    ),
    "mnist_six": (
        "784-512-10 on 60,000 images as in the paper, six values: an hour of one CPU core",
        Transpositions(data=Data(name="mnist"), num_values=6),
    ),
    "mnist": (
        "the paper's own settings, 784-512-10 on 60,000 images: for accelerators",
        Transpositions(data=Data(name="mnist")),
    ),
}
