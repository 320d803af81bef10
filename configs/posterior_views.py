"""A posterior in pictures, before and after symmetry removal: projections, pairs of weights, loss surfaces.

`python -m experiments.posterior_views digits` takes three minutes on two CPU cores; expect clouds that
shrink and a valley between three networks where there was a ridge.
"""

from dataclasses import dataclass

from configs.fields import bounded
from configs.parts import Data, Ensemble, Network, Prior, Seeded


@dataclass(frozen=True)
class PosteriorViews(Seeded):
    """Many independently trained networks, seen as trained, balanced, and aligned."""

    data: Data = Data()
    model: Network = Network(hidden=(16,))
    inference: Prior = Prior()
    ensemble: Ensemble = Ensemble(num_members=300, num_epochs=100)
    num_inputs: int = bounded(500, 2, 10_000_000)
    """Training images that the loss surfaces are measured on."""
    grid: int = bounded(41, 3, 1_001)
    """Points a side of a loss surface."""


CONFIGS = {
    "digits": ("300 networks 64-16-10 on 1,297 bundled 8x8 images", PosteriorViews()),
    "debug": (
        "12 networks 64-4-10 on 200 digits: seconds, to see that everything runs",
        PosteriorViews(
            data=Data(num_train=200, num_test=50),
            model=Network(hidden=(4,)),
            ensemble=Ensemble(num_members=12, num_epochs=5),
            num_inputs=50,
            grid=5,
        ),
    ),
}
