"""The parts that configs of weight sharing are made of, stage by stage."""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded, brought
from configs.parts import Factory

Stage = Literal["pretrain", "stochastic", "gmm", "refine", "train", "evaluate"]
STAGES: tuple[Stage, ...] = ("pretrain", "stochastic", "gmm", "refine", "train", "evaluate")
Optimizer = Literal["adam", "sgd", "momentum", "nesterov"]
Schedule = Literal["constant", "cosine", "one_cycle"]
Baseline = Literal["int8", "k-means", "ensemble"]


@dataclass(frozen=True)
class SharedNetwork(Factory):
    """The network."""

    name: Literal[
        "mlp", "lenet", "resnet20", "resnet20_frn", "resnet18", "resnet50", "wrn28_10", "vit", "vit_b16"
    ] = "mlp"
    """One of `symbnn.models`."""
    hidden: tuple[int, ...] = bounded((64,), 1, 1_000_000)
    """Units of each hidden layer; for mlp."""
    width: float = bounded(1.0, 0.01, 100.0)
    """Multiplies the number of channels; for the others."""
    statistics: Literal["running", "frozen", "recomputed"] = "running"
    """Of batch normalisation: averaged over the steps of the last stage; those of Stage 0, also in training;
    or measured for every drawn network on training images."""
    statistics_images: int = bounded(2000, 2, 1_000_000)
    """Training images that statistics are recomputed on."""


@dataclass(frozen=True)
class Pretraining:
    """Stage 0: the deterministic network."""

    weights: str | None = brought("file")
    """File of weights to import instead of training: safetensors of ours or of PyTorch, or a state dict."""
    published: tuple[str, ...] = ()
    """Files of published PyTorch weights in the folder `pretrained` beside the data, instead of training: the
    first seed starts from the first of them, the next from the next."""
    epochs: int = bounded(100, 1, 100_000)
    """Passes over the training data."""
    batch_size: int = bounded(64, 1, 1_000_000)
    """Examples per step, here and in the other stages."""
    learning_rate: float = bounded(2e-3, 1e-10, 100.0)
    """At the start of the schedule."""
    optimizer: Optimizer = "adam"
    """Of this stage; the others use Adam."""
    schedule: Schedule = "cosine"
    """Of the learning rate, in every stage."""
    prior_std: float = bounded(1.0, 1e-4, 1e4)
    """Of the Gaussian prior on all weights: weight decay 1 / (prior_std² N)."""
    shift: int = bounded(0, 0, 32)
    """Images are shifted by up to so many pixels in training, in every stage."""
    flip: bool = False
    """Images are mirrored at random in training, in every stage."""
    padding: Literal["reflect"] | None = None
    """What moves in when an image is shifted: its mirrored edge; by default zeros."""
    crop: float | None = bounded(None, 0.01, 1.0)
    """Images are random parts of at least this share of the area, scaled to full size; by default whole."""
    jitter: tuple[float, float, float, float] | None = bounded(None, 0.0, 1.0)
    """Brightness, contrast, saturation and hue of images change by up to so much; by default not at all."""


@dataclass(frozen=True)
class StochasticTraining:
    """Stage 1: a mean and a standard deviation for every kernel weight."""

    epochs: int = bounded(40, 1, 100_000)
    """Passes over the training data."""
    learning_rate: float = bounded(1e-4, 1e-10, 100.0)
    """Of Adam, for the means."""
    scale_speed: float = bounded(100.0, 1e-3, 1e5)
    """Times that for the standard deviations."""
    kl_weight: float = bounded(0.1, 0.0, 1e3)
    """Of the divergence to N(0, prior_std²); 0: cross-entropy alone."""
    prior_std: float = bounded(0.1, 1e-4, 1e4)
    """Of that prior."""
    initial_std: float = bounded(0.03, 1e-6, 10.0)
    """Standard deviation of every weight at the start."""
    scale_map: Literal["softplus", "log_delta_exp"] = "softplus"
    """From trained number to standard deviation."""


@dataclass(frozen=True)
class Clustering:
    """Stage 1b: outliers, and a mixture of the other weights."""

    num_components: int | None = bounded(None, 1, 1_000_000)
    """Gaussians before merging; by default one for every 150 weights, 16 to 6,000."""
    magnitude: float = bounded(0.2, 0.0, float("inf"))
    """Weights whose mean is larger are outliers."""
    gradient_share: float = bounded(0.01, 0.0, 1.0)
    """Share of weights that are outliers by their gradient."""
    gradient_batches: int = bounded(16, 1, 100_000)
    """Batches that the gradient is averaged over."""
    smallest_cluster: int = bounded(20, 1, 1_000_000)
    """Members of smaller clusters are outliers."""
    num_sweeps: int = bounded(10, 1, 10_000)
    """EM sweeps over the weights."""
    minibatch: int | None = bounded(None, 100, 100_000_000)
    """Weights per step of mini-batch EM; by default all."""


@dataclass(frozen=True)
class Refining:
    """Stage 2: merging, and ellipse weights."""

    merging: bool = True
    """Merge components that are nearly the same."""
    order: Literal["merge first", "ellipses first"] = "merge first"
    """Ellipse weights are those outside the merged components or, as in the paper, the fitted ones."""
    formula: Literal["moment", "paper", "code", "barycenter"] = "moment"
    """Of the merged Gaussian."""
    distance: float | None = bounded(None, 0.0, float("inf"))
    """Largest W² of a merged pair; by default 4 times the median to the nearest (the paper's is 1.5e-7)."""
    gradient_quantile: float = bounded(0.99, 0.0, 1.0)
    """Components with a larger gradient than this quantile stay as they are."""
    variance: float = bounded(1e-3, 0.0, float("inf"))
    """Components whose members' means vary more stay as they are."""
    fewest: int = bounded(1, 1, 1_000_000)
    """Components that remain at least."""
    ellipses: bool = True
    """Weights outside their 95 % ellipse blend several components."""
    num_nearest: int = bounded(5, 1, 1000)
    """Centres that an ellipse weight looks at."""
    num_kept: int = bounded(2, 1, 1000)
    """Of these, components that it blends."""


@dataclass(frozen=True)
class SharedTraining:
    """Stage 3: components and outliers trained on the evidence bound."""

    epochs: int = bounded(40, 1, 100_000)
    """Passes over the training data."""
    learning_rate: float = bounded(1e-3, 1e-10, 100.0)
    """Of Adam, for means."""
    scale_speed: float = bounded(30.0, 1e-3, 1e5)
    """Times that for standard deviations and covariances."""
    kl_weight: float = bounded(0.1, 0.0, 1e3)
    """Of the divergences."""
    multiplicity: Literal["paper", "per_component", "per_weight"] = "paper"
    """How often the divergence of a component counts."""
    prior: Literal["normal", "pretrained", "anchored"] = "normal"
    """What the prior of a component is centred on."""
    prior_std: float = bounded(0.1, 1e-4, 1e4)
    """Of that prior."""
    divergence: Literal["marginal", "plane"] = "marginal"
    """Between laws of a weight, or between Gaussians of the plane (prior anchored)."""
    sampling: Literal["hierarchical", "first_coord"] = "hierarchical"
    """Whether a draw uses the standard deviation of a component or only its mean."""
    noise: Literal["component", "sign", "layer", "weight"] = "component"
    """What draws its own noise."""
    blending: Literal["samples", "centers", "mixture"] = "samples"
    """How an ellipse weight uses its components."""
    train_fixed: bool = False
    """Train biases and normalisation parameters too."""
    merge_every: int | None = bounded(None, 1, 100_000)
    """Merge again after every so many epochs (the released code: 1); by default only before the training."""


@dataclass(frozen=True)
class Judging:
    """How the result is judged."""

    num_draws: int = bounded(30, 1, 100_000)
    """Networks that predictions are averaged over."""
    num_seeds: int = bounded(3, 1, 1000)
    """Whole runs, of which the table gives mean and spread."""
    holdout: int = bounded(0, 0, 10_000_000)
    """Training examples that take the place of the test set, to choose settings by."""
    holdout_crop: float | None = bounded(None, 0.01, 1.0)
    """Held-out images are random parts of at least this share of the area: a published network has seen all
    training images, and knows them by heart as they are."""
    mean_field: bool = True
    """Also train mean-field VI from the same network."""
    variants: tuple[str, ...] = ()
    """Changes of settings to compare, one seed each; see `experiments.weight_sharing.variants`."""
    counted: tuple[str, ...] = ()
    """Changes of settings of which only the numbers of outliers, ellipses and Gaussians are given."""
    compared_seeds: int | None = bounded(None, 1, 1000)
    """Seeds of which everything is judged, of the others only the first network and the last, on data of
    their own kind; by default all."""
    between: bool = True
    """Also judge what the stages between first and last give."""
    outside: tuple[str, ...] = ()
    """Data sets of out-of-distribution images; smaller and grey ones are fitted."""
    outside_images: int | None = bounded(None, 2, 10_000_000)
    """So many of each; all by default."""
    baselines: tuple[Baseline, ...] = ()
    """Also judge: weights rounded to 8 bits, plain k-means of the weights, the mean of all published
    networks."""
    reference: str | None = None
    """File of predictive probabilities of the test images, (images, classes), beside the data: agreement and
    total variation are to it."""


@dataclass(frozen=True)
class Published:
    """What the paper reports for this network and data; None where it does not."""

    outliers: int | None = None
    ellipses: int | None = None
    gaussians: int | None = None
    accuracy: float | None = None
    nll: float | None = None
    ece: float | None = None
