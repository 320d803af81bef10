"""Pairs of trained networks, exchangeability of units in ensembles and chains, orders of units in training.

Laurent, Aldea, Franchi (2024). `python -m experiments.diversity digits` takes two minutes on two CPU cores;
expect the ensemble to pass the test of exchangeability and one HMC chain to fail it. `mnist_lenet` takes
14 minutes of one core. Its images, epochs and learning rate were chosen among three recipes, by one
network each on held-out training images (98.37 %); 16,000 images at rate 0.02 and 10,000 images for 8 epochs
were seen on test images too (98.22 and 98.01 %), and a sixth recipe was not finished. `cifar10_resnet20`
takes a minute of one core, with the published weights of four ResNet-20s in the folder `pretrained` beside
the data.
"""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded
from configs.parts import PUBLISHED_RESNET20, Data, Factory, HeavyBall, Seeded, Trajectories


@dataclass(frozen=True)
class Training(HeavyBall):
    """Gradient descent with momentum whose rate falls in steps, no weight decay."""

    milestones: tuple[int, ...] = bounded((20, 30), 1, 100_000)
    """Epochs after which the rate is divided by ten."""
    num_epochs: int = bounded(40, 2, 100_000)
    """Passes over the training data."""
    epochs_between: int = bounded(5, 1, 100_000)
    """Epochs from one order of units to the next; divides the number of epochs."""
    members_per_block: int | None = bounded(None, 1, 1_000_000)
    """Networks trained at once, after which a stopped run goes on; all by default."""


@dataclass(frozen=True)
class Chain(Trajectories):
    """One chain of Hamiltonian Monte Carlo."""

    num_samples: int = bounded(300, 0, 10_000_000)
    """Draws kept; none to leave the chain out."""


@dataclass(frozen=True)
class Diversity(Seeded):
    """An ensemble and a chain of one network on one data set."""

    data: Data = Data()
    outside: tuple[str, ...] = ("negatives",)
    """Out of distribution: data sets, or test images with their pixels `permuted`, turned (`rotated`), or as
    `negatives`."""
    model: Factory = Factory()
    network: Literal["mlp", "lenet", "optunet", "resnet20", "resnet20_frn", "resnet18"] = "mlp"
    """`lenet` needs images of at least 12 pixels a side, `optunet` of 18; `resnet20` and `resnet18` have
    batch normalisation and can have no chain."""
    hidden: tuple[int, ...] = bounded((10,), 2, 1_000_000)
    """Units of each hidden dense layer of `mlp` and `optunet`."""
    width: float = bounded(1.0, 1e-3, 100.0)
    """Multiplies the channels of the other networks."""
    published: tuple[str, ...] = ()
    """Files of PyTorch's weights of CIFAR-10 ResNet-20s in the folder `pretrained` beside the data, which are
    compared instead of trained networks."""
    num_networks: int = bounded(300, 2, 1_000_000)
    """Of the ensemble."""
    num_paired: int = bounded(64, 2, 10_000)
    """Networks of which all pairs are compared."""
    training: Training = Training(learning_rate=0.1)
    chain: Chain = Chain(num_burnin=50, num_steps=50)


CONFIGS = {
    "digits": ("300 networks 64-10-10 and a chain of 300 draws on 1,297 bundled images", Diversity()),
    "debug": (
        "20 networks 64-4-10 on 200 digits: seconds, to see that everything runs",
        Diversity(
            data=Data(num_train=200, num_test=50),
            hidden=(4,),
            num_networks=20,
            num_paired=6,
            training=Training(num_epochs=4, milestones=(2,), learning_rate=0.05, epochs_between=2),
            chain=Chain(num_burnin=2, num_samples=20, num_steps=5),
        ),
    ),
    "mnist_lenet": (
        "112 LeNets on 16,000 MNIST images, against Fashion-MNIST and notMNIST: 14 minutes of one core",
        Diversity(
            data=Data(name="mnist", num_train=16_000, num_test=5_000),
            outside=("fashion_mnist", "notmnist"),
            network="lenet",
            # 18.7 a filter of the first layer, 7 of the second.
            num_networks=112,
            training=Training(
                num_epochs=5,
                milestones=(3, 4),
                learning_rate=0.05,
                batch_size=50,
                epochs_between=1,
                members_per_block=8,
            ),
            chain=Chain(num_samples=0),
        ),
    ),
    "cifar10_resnet20": (
        "four published ResNet-20s with BatchNorm, against Fashion-MNIST and notMNIST: a minute on one core",
        Diversity(
            # Training images are not needed.
            data=Data(name="cifar10", num_train=2, num_test=2_000),
            outside=("fashion_mnist", "notmnist"),
            network="resnet20",
            published=PUBLISHED_RESNET20,
            num_networks=4,
            num_paired=4,
            chain=Chain(num_samples=0),
        ),
    ),
    "debug_layers": (
        "12 ResNet-20s of an eighth of the width on 100 digits, no chain: seconds, to see that it runs",
        Diversity(
            data=Data(num_train=100, num_test=50),
            outside=("permuted", "rotated"),
            network="resnet20",
            width=0.125,
            num_networks=12,
            num_paired=4,
            training=Training(
                num_epochs=2,
                milestones=(1,),
                learning_rate=0.05,
                batch_size=50,
                epochs_between=1,
                members_per_block=6,
            ),
            chain=Chain(num_samples=0),
        ),
    ),
}
