"""Regression on eleven UCI tables: errors, convergence and seconds of every method, and compact posteriors.

The split is scikit-learn's `train_test_split(test_size=0.2, random_state=seed)`, inputs and targets are
standardised on the training part, and the network gives a mean and a standard deviation, as in the benchmark
of bde (scikit-learn-contrib; microcanonical Langevin ensembles). airfoil and bikesharing have its network,
16-16-16-16; the other sets one hidden layer of 50 units, the usual one for these tables since
Hernández-Lobato and Adams (2015). Nothing is sampled from minibatches: above `rows_at_full_length` training
rows chains, trajectories and trainings are shortened instead.

A table of `all` takes three to eight minutes of a core, more than half of it for compact posteriors.
`airfoil` and `bikesharing` run MCLMC only, longer and with draws from the last two fifths of its steps, to
stand beside bde, which becomes a column of their tables where SYMBNN_PEER_PYTHON names a Python that has it
(`python -m venv peer`, then `peer/bin/pip install sklearn-contrib-bde`: it needs an older BlackJAX than this
project). It runs with its published settings, six minutes of one core for airfoil and hours for bikesharing.
It publishes RMSE 0.1215 and NLL -0.9126 for airfoil, 0.2261 and -0.7315 for bikesharing.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from configs.fields import bounded
from configs.parts import (
    Descent,
    Ensemble,
    Hamiltonian,
    Laplace,
    Microcanonical,
    NoUTurn,
    Prior,
    Seeded,
    Variational,
)
from configs.posterior_quality import Swag

SetName = Literal[
    "yacht",
    "bostonHousing",
    "energy",
    "concrete",
    "airfoil",
    "wine-quality-red",
    "kin8nm",
    "power-plant",
    "naval-propulsion-plant",
    "bikesharing",
    "protein-tertiary-structure",
    "diabetes",
]
UCI: tuple[SetName, ...] = get_args(SetName)[:-1]
"""By rows; diabetes, which scikit-learn bundles, is none of them."""
SMALL = UCI[:6]
"""Those of at most 1,600 rows."""
MethodName = Literal["ensemble", "hmc", "nuts", "mclmc", "variational", "swag", "laplace"]
METHODS: tuple[MethodName, ...] = ("ensemble", "hmc", "nuts", "mclmc", "variational", "swag", "laplace")
CHAINS: tuple[Literal["hmc", "nuts", "mclmc"], ...] = ("hmc", "nuts", "mclmc")


@dataclass(frozen=True)
class Rows:
    """The tables."""

    directory: str | None = None
    """Folder that holds `uci/`; else SYMBNN_DATA_DIR."""
    test_share: float = bounded(0.2, 0.01, 0.9)
    """Of the rows: the test part."""
    num_train: int | None = bounded(None, 20, 10_000_000)
    """Training rows; all by default."""
    num_test: int | None = bounded(None, 10, 10_000_000)
    """Test rows; all by default."""


@dataclass(frozen=True)
class Perceptron(Prior):
    """The network, and the Gaussian prior that all methods share."""

    hidden: tuple[int, ...] | None = bounded(None, 1, 10_000)
    """Units of each hidden layer; by default 16 16 16 16 for airfoil and bikesharing, 50 for the others."""
    activation: Literal["relu", "leaky_relu", "tanh", "gelu"] = "relu"
    """Of the hidden units."""


@dataclass(frozen=True)
class Refined(Descent):
    """Compact posteriors of the draws of `source`, refined to predict as the draws do."""

    source: Literal["hmc", "nuts", "mclmc"] = "mclmc"
    """Whose draws are made compact."""
    rank: int = bounded(16, 1, 10_000)
    """Directions of the low-rank law."""
    num_components: int = bounded(9, 1, 10_000)
    """Gaussians of the mixture, each of one chain: the most that are 50 times fewer numbers than ten chains
    of 100 draws."""
    num_epochs: int = bounded(200, 1, 100_000)
    """Passes over the training inputs and as many mixed-up ones."""
    batch_size: int = bounded(256, 1, 1_000_000)
    """Inputs per step of Adam."""
    learning_rate: float = bounded(0.03, 1e-10, 100.0)
    """Of Adam at the start of its cosine schedule, in standard deviations."""
    loss: Literal["cross_entropy", "moments"] = "moments"
    """Between the predictives: of whole mixtures, or of their means and variances only."""
    num_draws: int = bounded(16, 2, 10_000)
    """Draws of every pre-activation per input and step, shared by the components, two each at least."""


@dataclass(frozen=True)
class Peer:
    """bde, with the settings of its published benchmark."""

    sets: tuple[SetName, ...] = ()
    """Tables that it runs on, if SYMBNN_PEER_PYTHON names a Python that has it."""
    num_members: int = bounded(10, 1, 1000)
    """Networks, each the start of a chain."""
    num_epochs: int = bounded(1000, 1, 1_000_000)
    """Most steps of the training of the networks, which stops early by a held-out part."""
    num_warmup: int = bounded(50_000, 0, 10_000_000)
    """Steps of every chain in which it adapts: eight tenths for the step size, a tenth for the momentum's
    length by the spread of the weights, a tenth for it by their autocorrelation."""
    num_samples: int = bounded(1000, 1, 10_000_000)
    """Steps of every chain after it."""
    thinning: int = bounded(10, 1, 100_000)
    """Steps per draw: 100 draws a chain."""


@dataclass(frozen=True)
class Uci(Seeded):
    """Tables, the network, and everything that is run on them."""

    sets: tuple[SetName, ...] = UCI
    """Tables; diabetes is bundled, the others are read from files."""
    methods: tuple[MethodName, ...] = METHODS
    """Columns; the ensemble is always trained, as the others start from it."""
    data: Rows = Rows()
    model: Perceptron = Perceptron()
    rows_at_full_length: int | None = bounded(1500, 1, 1_000_000_000)
    """With more training rows, everything is shortened in proportion: epochs and steps by the ratio,
    transitions of HMC and NUTS and the steps of one by its root. None shortens nothing."""
    num_draws: int = bounded(1000, 10, 1_000_000)
    """Networks that Gaussians are judged by."""
    ensemble: Ensemble = Ensemble(num_members=10, num_epochs=300, batch_size=64, learning_rate=1e-2)
    hmc: Hamiltonian = Hamiltonian()
    nuts: NoUTurn = NoUTurn()
    mclmc: Microcanonical = Microcanonical(thinning=100)
    variational: Variational = Variational(num_epochs=500, batch_size=64, learning_rate=3e-3)
    swag: Swag = Swag(learning_rate=1e-5)
    laplace: Laplace = Laplace(structure="full", leaves="all", tune=("prior",))
    compact: Refined = Refined()
    peer: Peer = Peer()


REFUSES = {
    "data.npz": "it compares with published numbers on these tables",
    "model.factory": "its network is that of the published numbers; --model.hidden changes its layers",
}
BESIDE = Uci(methods=("ensemble", "mclmc"))


CONFIGS: dict[str, tuple[str, Uci]] = {
    "all": (
        "all eleven tables, shorter where there are many rows: more than an hour of one CPU core",
        Uci(),
    ),
    "small": (
        "the six tables of at most 1,600 rows, nothing shortened: half an hour of one CPU core",
        Uci(sets=SMALL),
    ),
    **{name: (f"{name} alone, as in all: minutes on two CPU cores", Uci(sets=(name,))) for name in UCI},
    "airfoil": (
        "1,503 rows, 16-16-16-16, MCLMC beside bde: ten minutes, with bde sixteen, of one CPU core",
        replace(
            BESIDE,
            sets=("airfoil",),
            mclmc=Microcanonical(num_burnin=60_000, thinning=400),
            peer=Peer(sets=("airfoil",)),
        ),
    ),
    "bikesharing": (
        "17,379 rows, 16-16-16-16, MCLMC beside bde: 25 minutes, with bde hours, of one CPU core",
        replace(
            BESIDE,
            sets=("bikesharing",),
            mclmc=Microcanonical(num_burnin=12_000, thinning=80),
            compact=Refined(num_epochs=30),
            peer=Peer(sets=("bikesharing",), num_epochs=1200),
            rows_at_full_length=None,
        ),
    ),
    "debug": (
        "120 rows of diabetes, 10-4-2, a few draws: a minute, mostly of compiling, to see that all runs",
        Uci(
            sets=("diabetes",),
            data=Rows(num_train=120, num_test=50),
            model=Perceptron(hidden=(4,)),
            num_draws=20,
            ensemble=Ensemble(num_members=3, num_epochs=10, batch_size=32, learning_rate=1e-2),
            hmc=Hamiltonian(num_chains=2, num_samples=6, num_burnin=6, max_num_steps=10),
            nuts=NoUTurn(num_chains=2, num_samples=6, num_burnin=6, max_doublings=3),
            mclmc=Microcanonical(num_chains=3, num_samples=6, num_burnin=30, thinning=2),
            variational=Variational(num_epochs=10, batch_size=32, learning_rate=1e-2),
            swag=Swag(rank=2, num_epochs=3, learning_rate=1e-3),
            compact=Refined(rank=2, num_components=2, num_epochs=2, batch_size=50, num_draws=2),
        ),
    ),
}
