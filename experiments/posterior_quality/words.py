"""What a page of the study says before its numbers: network, data, sets of networks, what is measured."""

from collections.abc import Iterator

import numpy as np

from configs.posterior_quality import METHODS
from experiments.common import convergence
from experiments.common.optimizers import rate_words
from experiments.common.problem import Problem
from experiments.posterior_quality import scores
from experiments.posterior_quality.results import NAMES
from symbnn import tree

WEIGHTS = (
    "Symmetries removed: {gauge}, then units sorted by the {key} of their incoming weights (sorted), or "
    "aligned by weights to one more network that is in no set (aligned). MMD² is the squared maximum mean "
    "discrepancy of the weights, zero for equal laws: unbiased, mean over Laplace and Gaussian kernels of 10 "
    "bandwidths each. Its p-value takes networks as independent, which those of a chain or around few modes "
    "are not: it is meant for the deep ensemble."
)
PREDICTIONS = (
    "ECE and ACE: top label, 15 bins of equal width and of equal mass; classwise ACE: for every class by "
    "itself, the mean over classes. MI: mutual information of prediction and network, the part of the "
    "uncertainty on which networks disagree."
)
GAUGES = {
    "mass": "units scaled to least mass (incoming and outgoing weights of one length)",
    "norm": "incoming weights of every unit scaled to length one",
    "none": "nothing rescaled, as no unit can be",
}


def introduction(problem: Problem, is_converged: np.ndarray) -> list[str]:
    """All sentences; `is_converged` of every network that was trained."""
    config = problem.config
    judged = "held-out training" if config.num_validation else "test"
    start = (
        f"{problem.network} with {tree.num_weights(scores.weights(problem, problem.shapes))} weights on "
        f"{problem.examples}, judged on {len(problem.labels)} "
        f"{judged} examples; out of distribution: {', '.join(config.outside)}. Every set has "
        f"{config.num_samples} networks"
    )
    sentences = [f"{start}. {_compared(problem)}" if config.is_compared else f"{start}, {_modes(problem)}"]
    sentences += _converged(problem, is_converged)
    if problem.has_batch_statistics:
        sentences += _statistics(problem)
    if left_out := [NAMES[name] for name in METHODS if name not in config.methods]:
        sentences.append(f"Not run: {', '.join(left_out)}.")
    if not config.is_compared:
        return [*sentences, *_costs(problem), PREDICTIONS]
    weights = WEIGHTS.format(key=config.sort_key, gauge=GAUGES[scores.gauge(problem)])
    return [*sentences, f"{weights} {PREDICTIONS}"]


def _compared(problem: Problem) -> str:
    config = problem.config
    return (
        "Reference and deep ensemble: disjoint sets of networks from independent starts, "
        f"{_trained(problem)}. The modes are the first "
        f"{config.num_modes} networks of the ensemble; one-mode numbers are means over {config.num_single} "
        "of them, each with a run of its own."
    )


def _trained(problem: Problem) -> str:
    training = problem.config.training
    falling = "" if training.milestones else " falling to zero"
    return (
        f"{training.num_epochs} epochs of {training.optimizer} with {rate_words(training)}{falling} "
        f"and prior N(0, {problem.config.network.prior_scale:g}²)"
    )


def _converged(problem: Problem, is_converged: np.ndarray) -> Iterator[str]:
    """How many networks were left out, and how many of the others were not needed."""
    config, training = problem.config, problem.config.training
    if config.published or not training.least_accuracy:
        return
    yield from convergence.words(is_converged, training)
    needed = 2 * config.num_samples + 1 if config.is_compared else config.num_modes
    yield f"Of the {int(is_converged.sum())} that converged, the first {needed} are used: no more are needed."


def _modes(problem: Problem) -> str:
    config = problem.config
    others = f"and the methods have prior N(0, {config.network.prior_scale:g}²)"
    origin = f"were trained by others, with augmented images, {others}"
    if not config.published:
        origin = f"are from independent starts, {_trained(problem)}"
    return (
        f"but for the deep ensemble, which is the {config.num_modes} modes themselves. These {origin}. Every "
        "method runs once around each mode: one-mode numbers are means over all modes, and the many-mode "
        "version has an equal share of the same draws around every mode. Weights are not compared: a "
        "discrepancy (MMD) needs a second, independent set of networks."
    )


def _statistics(problem: Problem) -> Iterator[str]:
    config = problem.config
    held = [name for name in config.methods if not config.is_compared or name != "swag"]
    if held:
        yield (
            "Running statistics of batch normalisation are those of the mode, in evaluation mode and held "
            f"({', '.join(NAMES[name] for name in held)})."
        )
    if len(held) < len(config.methods):
        yield f"{NAMES['swag']} measures them at its mean."


def _costs(problem: Problem) -> Iterator[str]:
    """What the methods that run were given: so little that it belongs on the page."""
    config, num_data = problem.config, problem.target.num_data
    batch_size = config.training.batch_size
    whole = num_data // batch_size
    parts = {
        "dropout": lambda: (
            f"{config.dropout.num_epochs * (config.dropout.steps_per_epoch or whole)} minibatches at rate "
            f"{config.dropout.rate:g}, learning rate {config.dropout.learning_rate:g}"
        ),
        "swag": lambda: (
            f"{config.swag.num_epochs} collections, {config.swag.steps_per_epoch or whole} minibatches "
            f"apart, learning rate {config.swag.learning_rate:g}"
        ),
        "sghmc": lambda: (
            f"{config.sghmc.num_burnin} steps of burn-in, then a draw every {config.sghmc.thinning}, step "
            f"size {config.sghmc.step_size:g}, friction {config.sghmc.friction:g}"
        ),
    }
    whole_networks = [name for name in config.methods if name in parts and name not in config.last_layer]
    if whole_networks:
        words = "; ".join(f"{NAMES[name]} {parts[name]()}" for name in whole_networks)
        yield f"All weights, around each mode, minibatches of {batch_size} images as they are: {words}."
    if config.last_layer:
        last = ", ".join(NAMES[name] for name in config.methods if name in config.last_layer)
        yield f"The last layer only, on all {num_data} training images: {last}."
