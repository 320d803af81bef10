"""The parts that configs are made of, one dataclass each. Defaults are the settings of the digits study."""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded, brought

Optimizer = Literal["sgd", "momentum", "nesterov", "adam"]
# Weights of CIFAR-10 ResNet-20s by four authors, in the folder `pretrained` beside the data.
PUBLISHED_RESNET20 = tuple(
    f"cifar10_resnet20_{name}.safetensors" for name in ("akamaster", "bognev", "lutnn", "zheng-jiakun")
)
# What describes a network in one study or the other.
NETWORK_SETTINGS = (
    *(f"model.{name}" for name in ("name", "hidden", "activation", "width")),
    *("network", "hidden", "width", *(f"network.{name}" for name in ("name", "hidden", "width"))),
)


@dataclass(frozen=True)
class Seeded:
    """What every config has."""

    seed: int = bounded(0, 0, 2**31 - 1)
    """The one seed that everything random derives from."""


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
    is_normalised: bool = False
    """Whether inputs are minus the mean of the training inputs and divided by their standard deviation, one
    of each for every channel; those out of distribution by the same two."""
    npz: str | None = brought("file", "data.name", "data.directory")
    """Your own arrays instead: a file with `inputs`, integer `targets` from 0 to K - 1 and, if there are any,
    `test_inputs` and `test_targets`; without these a fifth (or num_test) is held out by seed."""


@dataclass(frozen=True)
class Factory:
    """A network that the user wrote."""

    factory: str | None = brought("code", *NETWORK_SETTINGS)
    """Your own network instead: `module:function`, a function of (input_shape, num_outputs), and of `key` if
    it has one, in a file of the current folder; it returns a `symbnn.models.Model` or a network of Flax,
    Equinox or Haiku."""


@dataclass(frozen=True)
class Network(Factory):
    """The network: a perceptron with biases."""

    hidden: tuple[int, ...] = bounded((32,), 1, 1_000_000)
    """Units of each hidden layer."""
    activation: Literal["relu", "leaky_relu", "tanh", "gelu"] = "relu"
    """Activation of the hidden units."""
    rows: Literal["auto", "first", "last"] = "auto"
    """Which axis of hidden values holds the examples: the same network, sampled faster on CPUs with "last"
    where it is narrow and has many examples; so that is "auto"."""


@dataclass(frozen=True)
class Prior:
    """The prior of all weights."""

    prior_scale: float = bounded(1.0, 1e-6, 1e6)
    """Standard deviation of the Gaussian prior on every weight and bias."""


@dataclass(frozen=True)
class Trajectories:
    """Transitions of Hamiltonian Monte Carlo."""

    num_burnin: int = bounded(100, 0, 1_000_000)
    """Transitions thrown away at the start of every chain."""
    step_size: float | None = bounded(0.01, 1e-8, 10.0)
    """Of the integrator; None adapts it during the burn-in."""
    num_steps: int = bounded(100, 1, 100_000)
    """Steps per transition."""
    integrator: Literal["leapfrog", "mclachlan"] = "leapfrog"
    """A step of McLachlan's has two gradients, and may be more than twice as long."""
    target_acceptance: float | None = bounded(None, 0.01, 0.99)
    """What a step size that adapts aims at; 0.8 by default."""


@dataclass(frozen=True)
class Sampler(Prior, Trajectories):
    """Hamiltonian Monte Carlo, the reference."""

    num_chains: int = bounded(4, 1, 4096)
    """Chains, spread over the devices."""
    num_samples: int = bounded(400, 4, 10_000_000)
    """Draws kept of every chain."""
    start: Literal["prior", "initialisation"] = "prior"
    """Where chains start: draws from the prior, or fresh networks as for training (the paper's way)."""


@dataclass(frozen=True)
class Descent:
    """Training by minibatches."""

    num_epochs: int = bounded(50, 1, 100_000)
    """Passes over the training data."""
    batch_size: int = bounded(100, 1, 1_000_000)
    """Examples per step."""
    learning_rate: float = bounded(1e-3, 1e-10, 100.0)
    """At the start of training."""


@dataclass(frozen=True)
class HeavyBall(Descent):
    """Training by small minibatches, with momentum where the optimiser has it."""

    batch_size: int = bounded(64, 1, 1_000_000)
    """Examples per step."""
    momentum: float = bounded(0.9, 0.0, 0.9999)
    """Of `momentum` and `nesterov`."""


@dataclass(frozen=True)
class Milestones:
    """Steps of the learning rate."""

    milestones: tuple[int, ...] = ()
    """Rising epochs after which the rate is multiplied by `rate_factor`; none by default."""
    rate_factor: float = bounded(0.5, 1e-6, 1.0)
    """At every milestone."""


@dataclass(frozen=True)
class Convergence:
    """What a trained network must reach to be one of the study."""

    least_accuracy: float = bounded(0.0, 0.0, 1.0)
    """Networks that are right on a smaller share of (up to 10,000) training examples did not converge and are
    counted, not judged; 0 keeps all."""


@dataclass(frozen=True)
class Ensemble(Descent):
    """Deep ensemble: MAP networks from independent starts, trained by Adam."""

    num_members: int = bounded(20, 2, 100_000)
    """Networks."""


@dataclass(frozen=True)
class Variational(Descent):
    """Mean-field variational inference by Adam."""

    initial_std: float = bounded(0.05, 1e-10, 100.0)
    """Standard deviation of every weight at the start."""


@dataclass(frozen=True)
class Laplace:
    """Gaussian with the curvature at a mode."""

    structure: Literal["diagonal", "kronecker", "low_rank", "full"] = "full"
    """What is kept of the Gauss-Newton matrix."""
    leaves: Literal["all", "last_layer"] = "last_layer"
    """Weights that have a spread. Networks drawn with `all` predict badly: linearise them."""
    rank: int = bounded(20, 1, 10_000)
    """Eigenpairs of `low_rank`."""
    tune: tuple[Literal["prior", "prior_by_leaf", "noise"], ...] = ()
    """What the marginal likelihood sets after training: the scale of the prior, one for every leaf, the noise
    of a regression."""


@dataclass(frozen=True)
class Blocks(Descent):
    """Training of many networks, in blocks where memory does not hold them all."""

    optimizer: Optimizer = "momentum"
    """How gradients become steps."""
    members_per_block: int | None = bounded(None, 1, 1_000_000)
    """Networks trained at once; all by default."""


@dataclass(frozen=True)
class Training(HeavyBall, Blocks):
    """Maximum likelihood without a prior, every network with its own shuffle of the data."""


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
class Posteriors(Seeded):
    """Three posteriors of one network: HMC, an ensemble and VI."""

    data: Data = Data()
    model: Network = Network()
    inference: Sampler = Sampler()
    ensemble: Ensemble = Ensemble()
    variational: Variational = Variational()
    compact: Compact = Compact()


@dataclass(frozen=True)
class Lines(Seeded):
    """Trained networks, matched to one another and judged along the line between them."""

    data: Data = Data()
    model: Network = Network(hidden=(512,))
    training: Training = Training()
    num_points: int = bounded(11, 3, 10_001)
    """Points on the line, ends included."""
    num_inputs: int | None = bounded(None, 1, 10_000_000)
    """Training images that activations are compared on; all by default."""


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


@dataclass(frozen=True)
class Chains:
    """Chains of a sampler, each started from a member of the ensemble."""

    num_chains: int = bounded(4, 1, 4096)
    """At most as many as the ensemble has members."""
    num_samples: int = bounded(100, 4, 10_000_000)
    """Draws kept of every chain."""
    num_burnin: int = bounded(100, 2, 10_000_000)
    """Transitions before the first draw, in which step sizes adapt."""


@dataclass(frozen=True)
class Hamiltonian(Chains):
    """Hamiltonian Monte Carlo; a trajectory is a quarter period of the prior, if so many steps reach it."""

    max_num_steps: int = bounded(300, 1, 1_000_000)
    """Most leapfrog steps of a trajectory."""


@dataclass(frozen=True)
class NoUTurn(Chains):
    """The No-U-Turn Sampler, with a mass for every weight."""

    max_doublings: int = bounded(7, 1, 20)
    """A trajectory has at most 2 to this many steps."""


@dataclass(frozen=True)
class Microcanonical(Chains):
    """Microcanonical Langevin Monte Carlo without adjustment, as bde runs it (MILE, Sommer et al. 2025)."""

    num_chains: int = bounded(10, 1, 4096)
    """At most as many as the ensemble has members."""
    num_burnin: int = bounded(20_000, 2, 10_000_000)
    """Steps before the first draw; bde takes 50,000."""
    thinning: int = bounded(10, 1, 100_000)
    """Steps per draw."""
    energy_variance: tuple[float, float] = bounded((0.5, 0.01), 1e-12, 1e12)
    """Of the energy error per weight, wanted at the start and at the end of the burn-in; bde has 0.5 and 0.1,
    with which draws are biased to a lower density."""
