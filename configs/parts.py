"""The parts that configs are made of. Defaults are the settings of the digits study."""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded


@dataclass(frozen=True)
class Data:
    """The data set."""

    name: str = "digits"
    """digits (bundled), mnist, fashion_mnist, kmnist, notmnist, cifar10, cifar100, svhn, ..."""
    directory: str | None = None
    """Folder with the official files; else SYMBNN_DATA_DIR, else tensorflow-datasets."""
    num_train: int | None = bounded(None, 2, 10_000_000)
    """Training examples, drawn by seed; all by default."""
    num_test: int | None = bounded(None, 2, 10_000_000)
    """Test examples, drawn by seed; all by default."""
    image_side: int | None = bounded(None, 1, 10_000)
    """Images are averaged down to this many pixels a side; left as they are by default."""


@dataclass(frozen=True)
class Network:
    """The network: a perceptron with biases."""

    hidden: tuple[int, ...] = bounded((32,), 1, 1_000_000)
    """Units of each hidden layer."""
    activation: Literal["relu", "leaky_relu", "tanh", "gelu"] = "relu"
    """Activation of the hidden units."""


@dataclass(frozen=True)
class Prior:
    """The prior, where nothing is sampled."""

    prior_scale: float = bounded(1.0, 1e-6, 1e6)
    """Standard deviation of the Gaussian prior on every weight and bias."""


@dataclass(frozen=True)
class Sampler:
    """Hamiltonian Monte Carlo, the reference."""

    num_chains: int = bounded(4, 1, 4096)
    """Chains, spread over the devices."""
    num_burnin: int = bounded(100, 0, 1_000_000)
    """Transitions thrown away at the start of every chain."""
    num_samples: int = bounded(400, 4, 10_000_000)
    """Draws kept of every chain."""
    step_size: float | None = bounded(0.01, 1e-8, 10.0)
    """Leapfrog step; None adapts it during the burn-in."""
    num_steps: int = bounded(100, 1, 100_000)
    """Leapfrog steps per transition."""
    start: Literal["prior", "initialisation"] = "prior"
    """Where chains start: draws from the prior, or fresh networks as for training (the paper's way)."""
    prior_scale: float = bounded(1.0, 1e-6, 1e6)
    """Standard deviation of the Gaussian prior on every weight and bias."""


@dataclass(frozen=True)
class Ensemble:
    """Deep ensemble: MAP networks from independent starts."""

    num_members: int = bounded(20, 2, 100_000)
    """Networks."""
    num_epochs: int = bounded(50, 1, 100_000)
    """Passes over the training data."""
    batch_size: int = bounded(100, 1, 1_000_000)
    """Examples per step."""
    learning_rate: float = bounded(1e-3, 1e-10, 100.0)
    """Of Adam."""


@dataclass(frozen=True)
class Variational:
    """Mean-field variational inference."""

    num_epochs: int = bounded(50, 1, 100_000)
    """Passes over the training data."""
    batch_size: int = bounded(100, 1, 1_000_000)
    """Examples per step."""
    learning_rate: float = bounded(1e-3, 1e-10, 100.0)
    """Of Adam."""
    initial_std: float = bounded(0.05, 1e-10, 100.0)
    """Standard deviation of every weight at the start."""


@dataclass(frozen=True)
class Compact:
    """Alignment, and how the compact posteriors are judged."""

    matching: Literal["activations", "weights"] = "activations"
    """What units are matched by; `activations` is the paper's recipe."""
    num_draws: int = bounded(200, 1, 1_000_000)
    """Networks drawn from each Gaussian."""
    num_draw_seeds: int = bounded(5, 1, 10_000)
    """Sets of draws that the numbers are averaged over."""
    num_components: int = bounded(4, 1, 10_000)
    """Gaussians of the mixture."""


@dataclass(frozen=True)
class Refinement:
    """Fit of the aligned Gaussian to HMC's predictions; its recipe is chosen on held-out training images."""

    num_epochs: int = bounded(100, 1, 10_000_000)
    """Passes over the training images and as many mixed-up ones."""
    batch_size: int = bounded(256, 1, 1_000_000)
    """Inputs per step of Adam."""
    num_draws: int = bounded(16, 1, 10_000)
    """Draws of every pre-activation per input and step."""
    learning_rate: float = bounded(0.03, 1e-10, 100.0)
    """Of Adam at the start of its cosine schedule, in standard deviations."""
    losses: tuple[Literal["cross_entropy", "squared"], ...] = ("squared", "cross_entropy")
    """Candidates."""
    penalties: tuple[float, ...] = bounded((0.0, 3e-6), 0.0, 1e6)
    """Candidates: weight of the divergence from the aligned Gaussian."""
    num_validation: int = bounded(297, 1, 10_000_000)
    """Training images that no candidate is fitted to: they are judged on these."""
    max_divergence: float = bounded(0.8, 0.0, 1e6)
    """In nats per weight; candidates that went further from the aligned Gaussian are not chosen."""
