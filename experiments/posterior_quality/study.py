"""Quality of approximate posteriors: one mode and many, against independently trained networks.

Dropout, variational inference, SWAG, Laplace, SGHMC and HMC, each around one trained network and around
several (`inference.multimode`), and a deep ensemble, all with equally many networks. Their discrepancy from a
reference of independent networks (and of HMC chains) is measured in weight space, before and after scale and
permutation symmetries are removed, beside accuracy, calibration and detection of images out of distribution.
The deep ensemble shares no network with the reference but its law: its discrepancy must be zero.
Laurent, Aldea, Franchi (2024), Table 1.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax

from configs.posterior_quality import METHODS, PosteriorQuality
from experiments.common.columns import sampler_table
from experiments.common.problem import Problem
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.posterior_quality import figures, findings, scores, sets, tables
from experiments.posterior_quality.results import CHAINS, ENSEMBLE, MANY, NAMES, NETWORKS, ONE, Results
from symbnn import tree
from symbnn.types import Samples

SETTINGS = (
    "Symmetries removed: {gauge}, then units sorted by the {key} of their incoming weights (sorted), or "
    "aligned by weights to one more network that is in no set (aligned). MMD² is the squared maximum mean "
    "discrepancy of the weights, zero for equal laws: unbiased, mean over Laplace and Gaussian kernels of 10 "
    "bandwidths each. Its p-value takes networks as independent, which those of a chain or around few modes "
    "are not: it is meant for the deep ensemble. ECE and ACE: top label, 15 bins of equal width and of equal "
    "mass. MI: mutual information of prediction and network, the part of the uncertainty on which networks "
    "disagree."
)

GAUGES = {
    "mass": "units scaled to least mass (incoming and outgoing weights of one length)",
    "norm": "incoming weights of every unit scaled to length one",
    "none": "nothing rescaled, as no unit can be",
}


def run(config: PosteriorQuality, rundir: Path | str) -> Table:
    """All stages of the study; returns the paper's table."""
    with open_run("posterior_quality", config, rundir) as opened:
        problem = sets.load_problem(config)
        trained = opened.stage("trained", lambda: sets.train(problem, opened))
        drawn = _draw_sets(opened, problem, trained["ensemble"])
        references = {NETWORKS: trained["reference"]}
        sampler = []
        if config.hmc.num_reference_chains:
            sampled = opened.stage("chains", lambda: sets.sample_reference(problem, opened))
            references[CHAINS] = sampled.posterior.samples
            drawn[CHAINS] = _one_repetition(sampled.posterior.samples)
            sampler.append(sampler_table(sampled.diagnostics))
        discrepancies = opened.stage(
            "discrepancies", partial(scores.compare, problem, drawn, references, trained["anchor"])
        )
        judged = {**drawn, NETWORKS: _one_repetition(trained["reference"])}
        found = opened.stage("scores", partial(scores.score, problem, judged))
        return _present(opened, problem, found, discrepancies, sampler)


def _draw_sets(run: Run, problem: Problem, ensemble: Samples) -> dict[str, Samples]:
    """Every method's networks by entry, with a leading axis of repetitions."""
    modes = tree.take(ensemble, slice(0, problem.config.num_modes))
    drawn = {}
    for name in problem.config.methods:
        found = run.stage(name, partial(sets.fit, problem, name, modes))
        drawn[f"{name}_{ONE}"], drawn[f"{name}_{MANY}"] = found["one"], _one_repetition(found["many"])
    return {**drawn, ENSEMBLE: _one_repetition(ensemble)}


def _one_repetition(samples: Samples) -> Samples:
    return jax.tree.map(lambda leaf: leaf[None], samples)


def _present(run: Run, problem: Problem, found: Any, discrepancies: Any, sampler: list[Table]) -> Table:
    config = problem.config
    results = Results(found, discrepancies, config.num_modes, scores.layer_names(problem), config.outside)
    return present(
        run,
        introduction=_introduction(problem),
        tables=[*tables.all_tables(results), *sampler],
        figures=[
            (
                "discrepancy",
                figures.discrepancy_panels(results),
                "MMD² before and after symmetries are removed, with 95 % intervals",
            ),
            (
                "predictions",
                figures.prediction_panels(results),
                "Accuracy and detection out of distribution against MMD²",
            ),
        ],
        findings=findings.findings(results),
    )


def _introduction(problem: Problem) -> list[str]:
    config, training = problem.config, problem.config.training
    judged = "held-out training" if config.num_validation else "test"
    left_out = [NAMES[name] for name in METHODS if name not in config.methods]
    sentences = [
        f"{problem.network} with {tree.num_weights(scores.weights(problem, problem.shapes))} weights on "
        f"{problem.target.num_data} examples of {problem.data.name}, judged on {len(problem.labels)} "
        f"{judged} examples; out of distribution: {', '.join(config.outside)}. Every set has "
        f"{config.num_samples} networks. Reference and deep ensemble: disjoint sets of networks from "
        f"independent starts, {training.num_epochs} epochs of {training.optimizer} with learning rate "
        f"{training.learning_rate:g} "
        f"falling to zero and prior N(0, {config.network.prior_scale:g}²). The modes are the first "
        f"{config.num_modes} networks of the ensemble; one-mode numbers are means over {config.num_single} "
        "of them, each with a run of its own."
    ]
    if left_out and problem.has_batch_statistics:
        sentences.append(
            f"Left out: {', '.join(left_out)}. They need a likelihood of every example, which a network with "
            "batch normalisation does not have."
        )
    elif left_out:
        sentences.append(f"Not run: {', '.join(left_out)}.")
    return [*sentences, SETTINGS.format(key=config.sort_key, gauge=GAUGES[scores.gauge(problem)])]
