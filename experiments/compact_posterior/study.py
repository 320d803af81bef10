"""Table 1 of the compact posterior: HMC, ensemble and VI as samples and as Gaussians, raw and aligned.

A Gaussian fitted to raw posterior samples (q_d) predicts nothing, because the samples mix permuted copies of
the same networks. Aligned to one of them first (q_r), the same fit is a meaningful, compact posterior. Other
tables go beyond the paper (`beyond`) and compare the posteriors in weight space (`weights`).
"""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from configs.compact_posterior import CompactPosterior
from experiments.common import columns, methods, weight_ranking
from experiments.common.figures import pruning_panels
from experiments.common.problem import Problem, perceptron
from experiments.compact_posterior import beyond, convergence, explorer, figures, refined, weights
from experiments.harness.present import present
from experiments.harness.rundir import open_run
from experiments.harness.tables import Table
from symbnn import compact, diagnostics, keys, plot, symmetry, tree
from symbnn.inference import Fit
from symbnn.plot.style import parts_beside
from symbnn.types import Samples

COLUMNS = ("HMC samples", "HMC q_d", "HMC q_r", "Ens. samples", "Ens. q_d", "Ens. q_r", "VI q")
PAPER = {
    "agreement with HMC": (1.0, 0.1212, 0.8249, 0.9931, 0.5239, 0.9868, 0.9885),
    "TV to HMC": (0.0, 0.8641, 0.6570, 0.0229, 0.7210, 0.0495, 0.0235),
    "accuracy of samples": (0.9843, 0.1111, 0.8234, 0.9866, 0.5225, 0.9772, 0.9811),
    columns.MEAN_ACCURACY: (None, 0.2806, 0.9225, None, 0.8640, 0.9797, 0.9804),
}
"""Xiao, Liu, Bamler (2023), Table 1: MNIST, 784-512-10, 60,000 images."""
NUM_RANDOM_RANKINGS = 40


def run(config: CompactPosterior, rundir: Path | str) -> Table:
    """All stages of the study; returns the paper's table."""
    with open_run("compact_posterior", config, rundir) as opened:
        problem = perceptron(config, prior_scale=config.inference.prior_scale)
        hmc = opened.stage("hmc", lambda: methods.sample(problem, opened))
        samples = hmc.posterior.samples
        ensemble = opened.stage("ensemble", lambda: methods.train_ensemble(problem, opened)).posterior.samples
        variational = opened.stage("variational", lambda: methods.fit_variational(problem, opened))
        to_first = opened.stage("to_first", lambda: _align_to_first(problem, samples, ensemble))
        to_mean = opened.stage("to_mean", lambda: beyond.align_to_mean(problem, samples))
        scores = opened.stage("scores", lambda: _score(problem, samples, ensemble, variational, to_first))
        near = opened.stage(
            "refined", lambda: refined.refine(problem, config.refinement, samples, compact.gaussian(to_mean))
        )
        further = opened.stage("beyond", lambda: beyond.score(problem, samples, to_mean, near))
        laws = opened.stage(
            "weights", lambda: weights.gaussians(problem, samples, to_mean, ensemble, variational.posterior)
        )
        converged = opened.stage(
            "convergence", lambda: convergence.convergence(problem, samples, to_first["hmc"].samples)
        )
        pruned = opened.stage("pruned", lambda: _prune(problem, samples, to_first["hmc"].samples))
        explored = opened.stage("explorer", lambda: explorer.compute(problem, samples, to_mean))
        in_function_space, num_chains = converged["function space"], config.inference.num_chains
        verdict = diagnostics.verdict(in_function_space, num_chains=num_chains)
        return present(
            opened,
            introduction=_introduction(problem),
            tables=[
                _paper_table(problem, scores),
                beyond.table(problem, further, to_mean, near),
                refined.candidate_table(config.refinement, near),
                weights.table(laws),
                convergence.convergence_table(converged),
                columns.sampler_table(hmc.diagnostics),
            ],
            figures=_figures(samples, ensemble, to_first, laws, pruned),
            findings=[*beyond.findings(further, near, to_mean), weights.finding(laws), verdict],
            explored=explorer.explorer(problem, samples, to_mean, explored),
        )


def _align_to_first(problem: Problem, hmc: Samples, ensemble: Samples) -> dict[str, symmetry.Aligned]:
    """Each set of samples aligned to its own first member, the paper's way."""
    matching = problem.config.compact.matching
    return {
        name: problem.align(samples, reference=0, method=matching)
        for name, samples in {"hmc": hmc, "ensemble": ensemble}.items()
    }


def _score(
    problem: Problem,
    hmc: Samples,
    ensemble: Samples,
    variational: Fit,
    to_first: dict[str, symmetry.Aligned],
) -> dict[str, Any]:
    """Mean and spread of every metric for every column of the paper's table."""
    target = columns.reference(problem, hmc)
    laws = {
        "HMC q_d": compact.gaussian(hmc),
        "HMC q_r": compact.gaussian(to_first["hmc"].samples),
        "Ens. q_d": compact.gaussian(ensemble),
        "Ens. q_r": compact.gaussian(to_first["ensemble"].samples),
        "VI q": variational.posterior,
    }
    scores = {name: columns.law_column(problem, name, law, target) for name, law in laws.items()}
    scores["HMC samples"] = columns.column(problem, target, [target])
    scores["Ens. samples"] = columns.column(problem, target, [columns.reference(problem, ensemble)])
    return {name: scores[name] for name in COLUMNS}


def _prune(problem: Problem, samples: Samples, to_first: Samples) -> dict[str, Any]:
    """Accuracy of the aligned mean network when weights are removed; the study `pruning` has more."""
    posterior = compact.gaussian(to_first)
    mean = tree.stack([posterior.mean])
    return weight_ranking.accuracy_by_ranking(
        problem,
        weight_ranking.Labelled(mean, mean),
        {weight_ranking.ALIGNED: posterior.std, weight_ranking.RAW: compact.gaussian(samples).std},
        keys.named(problem.key, "random ranking"),
        NUM_RANDOM_RANKINGS,
    )


def _paper_table(problem: Problem, scores: Any) -> Table:
    settings = problem.config.compact
    return Table(
        f"Agreement, total variation and accuracy; q columns: {settings.num_draws} draws, mean ± standard "
        f"deviation over {settings.num_draw_seeds} sets; the paper's numbers are of MNIST with 784-512-10",
        COLUMNS,
        columns.with_paper(columns.metric_rows(scores, COLUMNS), PAPER),
    )


def _figures(
    samples: Samples, ensemble: Samples, to_first: dict[str, symmetry.Aligned], laws: Any, pruned: Any
) -> list[tuple[str, Figure, str]]:
    spread, (left, right) = parts_beside(2)
    plot.spread(samples, to_first["hmc"], title="HMC", figure=left)
    plot.spread(ensemble, to_first["ensemble"], title="ensemble", figure=right)
    saved = [
        ("spread", spread, "Standard deviation of every weight before and after alignment"),
        (
            "weight_pairs",
            figures.pair_plots(weights.panels(laws)),
            "Mean and standard deviation of every weight under pairs of posteriors, aligned",
        ),
        (
            "pruning",
            pruning_panels(weight_ranking.LEVELS, {"mean of the aligned HMC samples": pruned}, columns=1),
            "Accuracy of the mean network of q_r against the share of weights kept, by ranking",
        ),
    ]
    for group, permutations in to_first["hmc"].elements.permutations.items():
        drawn = plot.transpositions(permutations)
        caption = f"Number of transpositions between each HMC sample and the reference, layer {group}"
        saved.append((f"transpositions_{group.replace('/', '_')}", drawn, caption))
    return saved


def _introduction(problem: Problem) -> list[str]:
    config = problem.config
    activation = "" if problem.is_own else f", {config.model.activation}"
    return [
        f"{problem.data.name}: {problem.target.num_data} training and {len(problem.labels)} test examples; "
        f"network {problem.sizes}{activation}. "
        f"HMC: {config.inference.num_chains} chains of {config.inference.num_samples} draws. "
        f"Ensemble: {config.ensemble.num_members} networks.",
        "q_d is the Gaussian with the mean and standard deviation of the raw samples, q_r that of the "
        f"samples aligned to the first of them (matched by {config.compact.matching}). Agreement is the "
        "share of test examples on which the most probable class is the one by HMC; TV is the total "
        "variation between the predictions, from 0 (equal) to 1.",
    ]
