"""Ten thousand networks with two hidden units: their last layer before and after symmetry removal (Figure 1).

Laurent, Aldea, Franchi (2024). `python -m experiments.toy_posterior paper` takes half a minute on two CPU
cores; expect a ring, then a diamond, then one half of it.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Descent, Seeded


@dataclass(frozen=True)
class ToyPosterior(Seeded, Descent):
    """Networks 2-2-1 that tell two clouds of points in the plane apart; the recipe is the paper's."""

    num_networks: int = bounded(10_000, 10, 10_000_000)
    """Networks from independent starts."""
    members_per_block: int = bounded(2_500, 1, 1_000_000)
    """Networks trained at once."""
    num_points: int = bounded(200, 10, 1_000_000)
    """Points of each class."""
    distance: float = bounded(2.0, 0.1, 100.0)
    """From the origin to the centre of either cloud; the paper's clouds are not published."""
    spread: float = bounded(0.5, 0.01, 100.0)
    """Standard deviation of a cloud."""
    num_epochs: int = bounded(10, 1, 100_000)
    """Passes over the points."""
    batch_size: int = bounded(10, 1, 1_000_000)
    """Points per step."""
    learning_rate: float = bounded(2.0, 1e-10, 100.0)
    """Of plain gradient descent, without weight decay."""
    max_loss: float = bounded(0.01, 1e-10, 1e10)
    """Networks with a larger mean loss in the last epoch are left out."""
    incoming_norm: float = bounded(3.0, 1e-6, 1e6)
    """Length that the incoming weights of every unit are given."""
    min_count: int = bounded(3, 1, 1_000_000)
    """Cells of the figure with fewer networks stay blank."""


REFUSES = {
    "data.npz": "its points are drawn from two clouds, so that the law of the weights is known",
    "model.factory": "its figure is of the two outgoing weights of the network 2-2-1",
}


CONFIGS = {
    "paper": ("10,000 networks, the paper's recipe: half a minute on two CPU cores", ToyPosterior()),
    "debug": (
        "300 networks: seconds, to see that everything runs",
        ToyPosterior(num_networks=300, members_per_block=300, min_count=1),
    ),
}
