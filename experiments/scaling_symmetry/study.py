"""Scaling symmetry: how far training with weight decay stays above the least mass, and why.

All rescalings of a ReLU network compute the same function, and one of them has the least squared norm
(mass). Weight decay pulls towards it, but only at the rate 2μ of `law`, so a network is trained long
before it is balanced. With batch normalisation there is no least mass at all: weights in front of the
normalisation shrink for nothing. Laurent, Aldea, Franchi (2024), with the sweep over optimisers and weight
decays that its reviewers asked for.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.scaling_symmetry import ScalingSymmetry
from experiments.common import convergence, methods, optimizers
from experiments.common.problem import Problem, load
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.scaling_symmetry import figures, law
from symbnn import density, keys, symmetry, tree
from symbnn.types import Params, Samples

PLAIN, NORMALISED = "ReLU network", "with batch normalisation"
PAPER = (
    "The paper's finding for small convolutional networks on MNIST: every network lies above its minimum, "
    "with an excess of 1 to 57 %, most often about 30 %."
)

REMEDY = (
    "train longer (--networks.num-epochs), with another rate (--networks.learning-rate), or ask for less "
    "(--networks.least-accuracy)"
)
# A spread needs two.
LEAST_NETWORKS = 2
# Enough to see that outputs stay as they are along an orbit.
MOST_INPUTS = 1_000


def run(config: ScalingSymmetry, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of masses."""
    with open_run("scaling_symmetry", config, rundir) as opened:
        problem = load(config, config.network, hidden=config.hidden)
        problem.require_least_mass()
        networks = opened.stage("networks", lambda: _train(opened, config, problem))
        is_converged = np.asarray(networks["converged"])
        convergence.require(is_converged, LEAST_NETWORKS, config.networks, REMEDY)
        kept = tree.take({name: networks[name] for name in ("starts", "ends")}, np.flatnonzero(is_converged))
        masses = opened.stage("masses", lambda: _masses(problem, kept))
        decays = opened.stage("law", lambda: _law(config, problem))
        orbits = opened.stage("orbits", lambda: _orbits(problem, kept["ends"]))
        return _present(opened, config, problem, is_converged, masses, decays, orbits)


def _train(run: Run, config: ScalingSymmetry, problem: Problem) -> dict[str, Samples]:
    """All networks before and after training, and whether they converged; the prior is the weight decay,
    σ² = 1 / (μ N). A stopped run goes on from its last epochs."""
    settings, train = config.networks, problem.data.train
    scale = 1.0 / np.sqrt(settings.weight_decay * len(train.targets))
    starts = jax.jit(jax.vmap(problem.model.init))(
        keys.indexed(keys.named(problem.key, "starts"), 0, settings.num_networks)
    )
    fit = methods.ensemble(
        keys.named(problem.key, "training"),
        density.target(problem.model, train, prior=density.gaussian_prior(float(scale))),
        settings,
        num_members=settings.num_networks,
        optimizer=settings.optimizer,
        momentum=settings.momentum,
        initial=starts,
        members_per_block=settings.members_per_block,
        checkpoint=run.training("networks"),
        **methods.stepped(settings),
    )
    ends = fit.posterior.samples
    return {"starts": starts, "ends": ends, "converged": convergence.converged(problem, ends, settings)}


def _masses(problem: Problem, networks: dict[str, Samples]) -> dict[str, jax.Array]:
    """Mass, its minimum over rescalings, how well that was found, test accuracy, and imbalance left."""
    spec = problem.model.spec

    def least(params: Params) -> dict[str, jax.Array]:
        found = symmetry.balance(spec, params)
        return {
            "mass": found.mass_before,
            "minimum": found.mass_after,
            "residual": found.residual,
            "dead": jnp.sum(jnp.stack(list(found.dead_units.values()))),
        }

    accuracy = convergence.accuracies(problem.model.apply, networks["ends"], problem.inputs, problem.labels)
    before, after = (law.imbalance(spec, networks[name]) for name in ("starts", "ends"))
    return {
        **jax.jit(jax.vmap(least))(networks["ends"]),
        "accuracy": accuracy,
        "left": law.share_left(before, after),
    }


def _law(config: ScalingSymmetry, problem: Problem) -> dict[str, jax.Array]:
    """Share of the imbalance left, arrays (learning rate, weight decay, network), by way of training."""
    settings = config.law
    batch = density.Batch(*(jnp.asarray(part[: settings.num_images]) for part in problem.data.train))
    key, num_images = keys.named(problem.key, "law"), len(batch.targets)
    regimes = {"full batch": num_images}
    if settings.batch_size < num_images:
        regimes["minibatches"] = settings.batch_size
    sweep = partial(law.sweep, key, problem.model, batch, settings)
    return {
        f"{optimizer}, {words}": sweep(optimizer=optimizer, batch_size=size)
        for optimizer in settings.optimizers
        for words, size in regimes.items()
    }


def _orbits(problem: Problem, ends: Samples) -> dict[str, Any]:
    """Mass along an orbit that scales all units alike, in a net with and one without a minimum."""
    inputs = problem.inputs[:MOST_INPUTS]
    apply, params, spec = law.normalised_network(
        keys.named(problem.key, "normalised"), inputs, hidden=16, num_outputs=10
    )
    scales = jnp.geomspace(1 / 16, 16, 41)
    return {
        PLAIN: law.orbit(problem.model.apply, problem.model.spec, tree.take(ends, 0), scales, inputs),
        # Its first scale is that of the weights in front of the normalisation.
        NORMALISED: law.orbit(apply, spec, params, scales, inputs),
        "scales": scales,
    }


def _present(
    run: Run,
    config: ScalingSymmetry,
    problem: Problem,
    is_converged: np.ndarray,
    masses: Any,
    decays: Any,
    orbits: Any,
) -> Table:
    masses = {name: np.asarray(value, float) for name, value in masses.items()}
    left = {name: (_predicted(config), np.asarray(values, float)) for name, values in decays.items()}
    drawn = figures.scaling_panels(
        masses["mass"],
        masses["minimum"],
        left,
        np.asarray(orbits["scales"]),
        {name: np.asarray(orbits[name]["mass"]) for name in (PLAIN, NORMALISED)},
    )
    settings = config.networks
    kind = "networks that converged" if settings.least_accuracy else "networks"
    caption = (
        "Least mass and mass, excess, decay of the imbalance by the law and as measured, mass on an orbit"
    )
    return present(
        run,
        introduction=[
            f"{settings.num_networks} networks ({problem.network}, {problem.hidden}"
            f"{tree.num_weights(problem.shapes)} weights) on "
            f"{problem.examples}: {settings.num_epochs} epochs "
            f"of {settings.optimizer} with {optimizers.rate_words(settings)}, minibatches of "
            f"{settings.batch_size} and weight decay {settings.weight_decay:g}. Mass: the squared norm of "
            "all weights and biases. Imbalance of a unit: squared incoming minus squared outgoing weights; "
            "the share left is the slope of the imbalances after training on those before.",
            *convergence.words(is_converged, settings),
        ],
        tables=[_mass_table(config, problem, masses), _law_table(left), _orbit_table(orbits)],
        figures=[("scaling", drawn, caption)],
        findings=[
            *_findings(kind, masses, _expected(config, problem), left, orbits),
            *convergence.words(is_converged, settings),
            PAPER,
        ],
    )


def _predicted(config: ScalingSymmetry) -> np.ndarray:
    """Share left by the law, (learning rate, weight decay, 1); the rates are already η/(1 − momentum)."""
    settings = config.law
    rates, decays = np.array(settings.learning_rates)[:, None], np.array(settings.weight_decays)
    return np.asarray(law.left_by_law(decays, settings.num_steps * rates))[..., None]


def _expected(config: ScalingSymmetry, problem: Problem) -> float:
    """Share of the imbalance that the law leaves in the trained networks."""
    settings = config.networks
    momentum = settings.momentum if settings.optimizer in ("momentum", "nesterov") else 0.0
    total = methods.sum_of_rates(problem.target, settings)
    return float(law.left_by_law(settings.weight_decay, total, momentum))


def _mass_table(config: ScalingSymmetry, problem: Problem, masses: dict[str, np.ndarray]) -> Table:
    over = masses["mass"] - masses["minimum"]
    values = {
        "mass after training": (masses["mass"], 2),
        "least mass over rescalings": (masses["minimum"], 2),
        "excess, % of the least mass": (100 * over / masses["minimum"], 2),
        "excess, % of the mass": (100 * over / masses["mass"], 2),
        "imbalance left, share": (masses["left"], 3),
        "imbalance left by the law, share": (np.array([_expected(config, problem)]), 3),
        "test accuracy, %": (100 * masses["accuracy"], 1),
        "dead units": (masses["dead"], 2),
        "largest |in − out| / (in + out) at the minimum, 10⁻⁹": (1e9 * masses["residual"], 3),
    }
    return Table.summary("Networks trained with weight decay", values, "mean", "least", "most")


def _law_table(left: dict[str, tuple[np.ndarray, np.ndarray]]) -> Table:
    rows = [Row.of(name, (_worst_share(*pair), _worst_exponent(*pair)), 1) for name, pair in left.items()]
    columns = ("worst error of the share left, %", "worst error of the exponent, %")
    return Table("Decay of the imbalance against exp(−2 μ Σ η / (1 − momentum))", columns, rows)


def _worst_share(predicted: np.ndarray, measured: np.ndarray) -> float:
    """In percent, as the next."""
    return 100 * float(np.max(np.abs(measured / predicted - 1)))


def _worst_exponent(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    """None where an imbalance changed its sign: no exponent does that."""
    if np.any(measured <= 0):
        return None
    return 100 * float(np.max(np.abs(np.log(measured) / np.log(predicted) - 1)))


def _orbit_table(orbits: Any) -> Table:
    masses = [np.asarray(orbits[name]["mass"]) for name in (PLAIN, NORMALISED)]
    changes = [orbits[name]["change"] for name in (PLAIN, NORMALISED)]
    rows = (
        Row.of("scale of least mass", (orbits["scales"][each.argmin()] for each in masses), 3),
        Row.of("least mass, share of that of scale 1", (each.min() / each[20] for each in masses), 3),
        Row.of("largest change of a logit, 10⁻⁶", (1e6 * float(c) for c in changes), 2),
    )
    return Table("Mass when all hidden units are scaled alike, from 1/16 to 16", (PLAIN, NORMALISED), rows)


def _findings(kind: str, masses: Any, expected: float, left: Any, orbits: Any) -> list[str]:
    above = int(np.sum(masses["mass"] > masses["minimum"]))
    excess = 100 * (masses["mass"] / masses["minimum"] - 1)
    return [
        f"{above} of {len(excess)} {kind} lie strictly above their minimum, by {excess.min():.1f} to "
        f"{excess.max():.1f} % of it (median {np.median(excess):.1f} %); their test accuracy is "
        f"{100 * np.mean(masses['accuracy']):.1f} % on average.",
        f"In these networks themselves {np.mean(masses['left']):.3f} of the imbalance is left on average; "
        f"the law gives {expected:.3f}.",
        *law_findings(left),
        orbit_finding(np.asarray(orbits["scales"]), np.asarray(orbits[NORMALISED]["mass"])),
    ]


def law_findings(left: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """How well the law holds on full batches, for every optimiser that was tried."""
    said = []
    for name, pair in left.items():
        if "full" not in name:
            continue
        exponent = _worst_exponent(*pair)
        rest = (
            "and some imbalances changed their sign, which no exponent gives"
            if exponent is None
            else f"and its exponent by at most {exponent:.1f} %"
        )
        adam = " Adam's steps are not along the gradient, so the law does not apply." * name.startswith(
            "adam"
        )
        said.append(
            f"With {name.replace(', full batch', '')} on full batches, the share of the imbalance left "
            f"differs from the law by at most {_worst_share(*pair):.1f} %, {rest}.{adam}"
        )
    return said


def orbit_finding(scales: np.ndarray, masses: np.ndarray) -> str:
    """Whether the mass has a minimum among the scales that were tried."""
    least = scales[masses.argmin()]
    start = f"With batch normalisation the mass is least at scale {least:.3f}"
    if least > scales[0]:
        return f"{start}; scales from {scales[0]:.3f} were tried."
    return (
        f"{start}, the smallest that was tried: it falls as far as it is followed. Such a network has no "
        "least mass, and `symmetry.balance` refuses it."
    )
