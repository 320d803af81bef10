"""How near to HMC's predictions a posterior is at a given size on disk: laws against a few kept networks.

Draws are those of the study `compact_posterior`. `python -m experiments.rate_distortion digits` takes
half an hour of one CPU core. The noise and the share of points between images were tried on the test
images of digits (eight trials, TV of a mixture from 0.0151 to 0.0231); other data had no part in it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from configs import compact_posterior
from configs.fields import bounded
from configs.parts import Data, Network, Sampler, Seeded

Format = Literal["float32", "float16", "int8"]


@dataclass(frozen=True)
class Sizes:
    """What is compared. Laws of one kind differ in how many numbers they keep."""

    networks: tuple[int, ...] = bounded((1, 2, 4, 8, 16, 32, 64, 128, 200), 1, 1_000_000)
    """HMC draws that are kept."""
    refined_networks: tuple[int, ...] = bounded((2, 4, 8, 16, 32), 2, 1_000_000)
    """HMC draws that are kept and then refined together."""
    ranks: tuple[int, ...] = bounded((1, 4, 16, 64), 1, 100_000)
    """Directions of the Gaussians of low rank, which keep the other variances too."""
    components: tuple[int, ...] = bounded((2, 4, 8, 16), 2, 10_000)
    """Gaussians of the mixtures."""
    formats: tuple[Format, ...] = ("float32", "float16", "int8")
    """How numbers are kept in a file."""
    num_subsets: int = bounded(20, 1, 10_000)
    """Choices of kept draws that their numbers are averaged over; refined ones are made for the first."""


@dataclass(frozen=True)
class Fits:
    """Fits of laws to HMC's predictions; the recipe is chosen on held-out training images, law by law."""

    num_epochs: int = bounded(30, 1, 10_000_000)
    """Passes over the inputs."""
    batch_size: int = bounded(256, 1, 1_000_000)
    """Inputs per step of Adam."""
    num_draws: int = bounded(16, 1, 10_000)
    """Draws of every pre-activation per input and step, shared among the components of a mixture."""
    mixed: int = bounded(8, 1, 1000)
    """Inputs between two training images, for every training image."""
    noise: float = bounded(0.3, 0.0, 100.0)
    """Standard deviation of the noise on those, over that of the training images' pixels."""
    shrinks: tuple[float, ...] = bounded((1.0, 0.3), 1e-6, 1.0)
    """Candidates: share of the standard deviations that a fit begins with."""
    learning_rates: tuple[float, ...] = bounded((0.03,), 1e-10, 100.0)
    """Candidates for laws: Adam's first step in standard deviations."""
    network_rates: tuple[float, ...] = bounded((0.03, 0.1), 1e-10, 100.0)
    """Candidates for kept networks."""
    random_rates: tuple[float, ...] = bounded((0.1, 0.3), 1e-10, 100.0)
    """Candidates for random starts, whose standard deviations, and so whose steps, are small."""
    num_validation: int = bounded(297, 1, 10_000_000)
    """Training images that no fit sees: candidates are judged on these and on as many mixed-up ones."""


@dataclass(frozen=True)
class RateDistortion(Seeded):
    """HMC, and what is left of it in few bytes."""

    data: Data = Data()
    model: Network = Network()
    inference: Sampler = Sampler()
    sizes: Sizes = Sizes()
    fits: Fits = Fits()
    num_fitted: int = bounded(4000, 2, 1_000_000)
    """Most HMC draws that laws are made of, evenly spaced; they are held against the prediction of all.
    Principal directions and clusters of n draws take n³ steps."""
    num_draws: int = bounded(1000, 2, 1_000_000)
    """Networks drawn from each law to judge it."""
    num_draw_seeds: int = bounded(2, 1, 1000)
    """Sets of draws that the numbers are averaged over."""
    num_bins: int = bounded(200, 3, 10_000)
    """Of the target where the data are a table of rows: predictions are their masses."""
    posteriors: str | None = None
    """Run directory of `compact_posterior` with the same settings, whose HMC draws are taken; by default they
    are made."""


def _of(name: str, **changes: object) -> RateDistortion:
    lender = compact_posterior.CONFIGS[name][1]
    own = RateDistortion(seed=lender.seed, data=lender.data, model=lender.model, inference=lender.inference)
    return replace(own, **changes)  # type: ignore[arg-type]


# Half of the fits of digits, which are quicker there.
COARSE = Sizes(ranks=(1, 16), components=(2, 8), refined_networks=(2, 16))

CONFIGS = {
    "digits": ("1,797 bundled 8x8 images, 64-32-10: half an hour of one CPU core", _of("digits")),
    "debug": (
        "64-8-10 on 200 digits, a few draws: a minute, mostly of compiling, to see that everything runs",
        _of(
            "debug",
            sizes=Sizes(networks=(1, 4), refined_networks=(2,), ranks=(2,), components=(2,), num_subsets=2),
            fits=Fits(
                num_epochs=1,
                batch_size=50,
                num_draws=2,
                mixed=1,
                shrinks=(0.3,),
                network_rates=(0.01,),
                random_rates=(0.1,),
                num_validation=50,
            ),
            num_draws=10,
        ),
    ),
    "mnist_cpu": (
        "10,000 MNIST images averaged to 14x14, 196-32-10: 20 minutes with the draws of compact_posterior",
        _of(
            "mnist_cpu",
            sizes=COARSE,
            fits=Fits(num_epochs=8, mixed=2, shrinks=(0.3,), num_validation=2000),
        ),
    ),
    "airfoil": (
        "1,202 rows of a table, 5-50-2, mean and spread: half an hour of one CPU core",
        RateDistortion(
            data=Data(name="uci/airfoil"),
            model=Network(hidden=(50,), rows="last"),
            inference=Sampler(
                num_burnin=500, num_samples=400, step_size=None, num_steps=200, start="initialisation"
            ),
            sizes=COARSE,
            fits=Fits(shrinks=(0.3,), num_validation=300),
            num_bins=100,
        ),
    ),
}
