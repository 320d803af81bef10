"""Trained networks made one without training: what every step of `compact.merge` is worth.

`python -m experiments.merging digits` takes a minute on two CPU cores; `cifar10_resnet20` half an hour, with
the published weights of four ResNet-20s in the folder `pretrained` beside the data. Expect the mean of two as
they are to guess, and the fitted one to lose ten points of accuracy.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import PUBLISHED_RESNET20, Data, Network, Seeded, Training


@dataclass(frozen=True)
class Merging(Seeded):
    """Networks that are merged in pairs, and all of them."""

    data: Data = Data()
    model: Network = Network(hidden=(64, 64))
    training: Training = Training(learning_rate=1e-2, num_epochs=100)
    num_networks: int = bounded(4, 2, 100)
    """Trained from different starts; unless published ones are merged."""
    published: tuple[str, ...] = ()
    """Files of PyTorch's weights of CIFAR-10 ResNet-20s, in the folder `pretrained` beside the data."""
    num_inputs: int = bounded(500, 1, 10_000_000)
    """Training inputs that units are compared on, statistics measured and layers fitted."""


CONFIGS = {
    "digits": ("1,797 bundled 8x8 images, four networks 64-64-64-10: a minute on two CPU cores", Merging()),
    "debug": (
        "two networks 64-8-8-10 on 200 digits, 20 epochs: seconds, to see that everything runs",
        Merging(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(8, 8)),
            training=Training(learning_rate=1e-2, num_epochs=20),
            num_networks=2,
            num_inputs=100,
        ),
    ),
    "cifar10_resnet20": (
        "four published ResNet-20s with BatchNorm (91.4 to 92.0 %): half an hour on two CPU cores",
        Merging(
            data=Data(name="cifar10"),
            published=PUBLISHED_RESNET20,
        ),
    ),
}
