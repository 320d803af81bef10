"""Thousands of small networks trained in blocks, kept in checked shards, and read back with bounded memory.

After the checkpoint data set of Laurent, Aldea, Franchi (2024). `python -m experiments.model_zoo digits_8192`
takes two minutes on two CPU cores; run again it verifies every shard and trains only those that are damaged.
"""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded
from configs.parts import Blocks, Convergence, Data, Factory, HeavyBall, Milestones, Optimizer, Seeded


@dataclass(frozen=True)
class ModelZoo(Seeded, HeavyBall, Milestones, Convergence, Blocks):
    """Maximum-likelihood networks of one architecture from independent starts."""

    data: Data = Data()
    model: Factory = Factory()
    network: Literal["mlp", "optunet"] = "mlp"
    """OptuNet needs images of at least 18 pixels a side."""
    hidden: tuple[int, ...] = bounded((5,), 1, 1_000_000)
    """Units of the hidden dense layers."""
    num_networks: int = bounded(8_192, 1, 100_000_000)
    """Of the zoo."""
    shard_size: int = bounded(1_024, 1, 1_000_000)
    """Networks of a shard; one shard at a time is in memory."""
    precision: Literal["float16", "float32"] = "float16"
    """Of the stored weights; they train in single precision."""
    optimizer: Optimizer = "adam"
    """Without weight decay."""
    learning_rate: float = bounded(1e-2, 1e-10, 100.0)
    """Before the first of the milestones, if there are any."""
    num_epochs: int = bounded(10, 1, 100_000)
    """Passes over the training data."""


CONFIGS = {
    "digits_8192": (
        "8,192 networks 64-5-10 (385 weights, the size of OptuNet) on 1,297 bundled images",
        ModelZoo(),
    ),
    "debug": (
        "24 networks 64-4-10 on 200 digits in three shards: seconds, to see that everything runs",
        ModelZoo(
            data=Data(num_train=200, num_test=50),
            hidden=(4,),
            num_networks=24,
            shard_size=8,
            num_epochs=2,
        ),
    ),
    "optunet_8192": (
        "8,192 OptuNets, two steps each on 128 MNIST images: ten minutes on two CPU cores",
        ModelZoo(
            data=Data(name="mnist", num_train=128, num_test=100),
            network="optunet",
            hidden=(3,),
            shard_size=512,
            num_epochs=1,
        ),
    ),
    "optunet_mnist_cpu": (
        "96 OptuNets on 60,000 MNIST images, a fifth of the published epochs: 20 minutes of one core",
        ModelZoo(
            data=Data(name="mnist", is_normalised=True),
            network="optunet",
            hidden=(3,),
            # Kept after every shard.
            num_networks=96,
            shard_size=16,
            optimizer="sgd",
            learning_rate=0.04,
            # After six epochs two networks on trial were right on 58 and 74 % of 5,000 test images.
            num_epochs=12,
            milestones=(3, 6),
            # Published ones are right on 75 to 85 % of the images, an untrained one on 10 %.
            least_accuracy=0.5,
        ),
    ),
    "optunet_mnist": (
        "8,192 OptuNets, the published recipe without its weight decay: for accelerators",
        ModelZoo(
            data=Data(name="mnist", is_normalised=True),
            network="optunet",
            hidden=(3,),
            optimizer="sgd",
            learning_rate=0.04,
            num_epochs=60,
            milestones=(15, 30),
            least_accuracy=0.5,
        ),
    ),
}
