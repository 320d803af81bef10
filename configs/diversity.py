"""Pairs of trained networks, exchangeability of units in ensembles and chains, orders of units in training.

Laurent, Aldea, Franchi (2024). `python -m experiments.diversity digits` takes two minutes on two CPU cores;
expect the ensemble to pass the test of exchangeability and one HMC chain to fail it.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Data, Factory, HeavyBall, Seeded, Trajectories


@dataclass(frozen=True)
class Training(HeavyBall):
    """Gradient descent with momentum whose rate falls in steps, no weight decay."""

    milestones: tuple[int, ...] = bounded((20, 30), 1, 100_000)
    """Epochs after which the rate is divided by ten."""
    num_epochs: int = bounded(40, 2, 100_000)
    """Passes over the training data."""
    epochs_between: int = bounded(5, 1, 100_000)
    """Epochs from one order of units to the next; divides the number of epochs."""


@dataclass(frozen=True)
class Chain(Trajectories):
    """One chain of Hamiltonian Monte Carlo."""

    num_samples: int = bounded(300, 10, 10_000_000)
    """Draws kept."""


@dataclass(frozen=True)
class Diversity(Seeded):
    """An ensemble and a chain of one network on one data set."""

    data: Data = Data()
    model: Factory = Factory()
    hidden: tuple[int, ...] = bounded((10,), 2, 1_000_000)
    """Units of each hidden layer."""
    num_networks: int = bounded(300, 10, 1_000_000)
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
}
