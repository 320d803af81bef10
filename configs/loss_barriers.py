"""Loss and error between two trained networks, with and without alignment, through training (Figure 2).

Xiao, Liu, Bamler (2023). `python -m experiments.loss_barriers digits` takes a minute on two CPU cores; expect
every aligned barrier below the unaligned one of the same pair.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Data, Lines, Network, Training


@dataclass(frozen=True)
class LossBarriers(Lines):
    """Pairs of networks from different seeds, judged along the line between them at several epochs."""

    num_pairs: int = bounded(5, 1, 10_000)
    """Pairs of networks; all of them train in one program."""
    epochs: tuple[int, ...] = bounded((1, 5, 20, 50), 1, 100_000)
    """Rising epochs after which the pairs are judged; the last is the end of training."""


CONFIGS = {
    "digits": (
        "1,797 bundled 8x8 images, 64-128-10: a minute on two CPU cores",
        LossBarriers(
            model=Network(hidden=(128,)),
            # As many steps times learning rate as the paper: 1,297 images make few steps an epoch.
            training=Training(learning_rate=1e-2, num_epochs=200),
            num_pairs=10,
            epochs=(5, 20, 50, 200),
            num_points=21,
        ),
    ),
    "debug": (
        "64-8-10 on 200 digits, two epochs: seconds, to see that everything runs",
        LossBarriers(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8,)),
            training=Training(learning_rate=1e-2, num_epochs=2),
            num_pairs=2,
            epochs=(1, 2),
        ),
    ),
    "mnist_cpu": (
        "10,000 MNIST images, 784-128-10: minutes on two CPU cores",
        LossBarriers(
            data=Data(name="mnist", num_train=10_000),
            model=Network(hidden=(128,)),
            training=Training(learning_rate=5e-3, num_epochs=50),
            num_pairs=5,
            num_inputs=2_000,
        ),
    ),
    "mnist": (
        "the paper's own settings, 784-512-10 on 60,000 images: eight minutes on two CPU cores",
        LossBarriers(data=Data(name="mnist")),
    ),
}
