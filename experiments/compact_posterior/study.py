"""Table 1 of the compact posterior: HMC, ensemble and VI as samples and as Gaussians, raw and aligned.

A Gaussian fitted to raw posterior samples (q_d) predicts nothing, because the samples mix permuted copies of
the same networks. Aligned to one of them first (q_r), the same fit is a meaningful, compact posterior. Other
tables go beyond the paper (`compact_beyond`) and compare the posteriors in weight space (`compact_weights`).
"""

from pathlib import Path
from typing import Any

import numpy as np

from configs.compact_posterior import CompactPosterior
from experiments.common import methods, weight_ranking
from experiments.common.methods import Problem
from experiments.compact_posterior import beyond as compact_beyond
from experiments.compact_posterior import columns as compact_columns
from experiments.compact_posterior import convergence as compact_convergence
from experiments.compact_posterior import figures
from experiments.compact_posterior import refined as compact_refined
from experiments.compact_posterior import weights as compact_weights
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Cell, Row, Table
from experiments.pruning.figures import pruning_panels
from symbnn import compact, keys, symmetry, tree
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Samples

COLUMNS = ("HMC samples", "HMC q_d", "HMC q_r", "Ens. samples", "Ens. q_d", "Ens. q_r", "VI q")
PAPER = {
    "agreement with HMC": (1.0, 0.1212, 0.8249, 0.9931, 0.5239, 0.9868, 0.9885),
    "TV to HMC": (0.0, 0.8641, 0.6570, 0.0229, 0.7210, 0.0495, 0.0235),
    "accuracy of samples": (0.9843, 0.1111, 0.8234, 0.9866, 0.5225, 0.9772, 0.9811),
    compact_columns.MEAN_ACCURACY: (None, 0.2806, 0.9225, None, 0.8640, 0.9797, 0.9804),
}
"""Xiao, Liu, Bamler (2023), Table 1: MNIST, 784-512-10, 60,000 images."""
NUM_RANDOM_RANKINGS = 40


def run(config: CompactPosterior, rundir: Path | str) -> Table:
    """All stages of the study; returns the paper's table."""
    with open_run("compact_posterior", config, rundir) as opened:
        problem = Problem(config)
        hmc = opened.stage("hmc", lambda: methods.sample(problem, opened.directory / "chunks"))
        samples = hmc["samples"]
        ensemble = opened.stage("ensemble", lambda: methods.train_ensemble(problem))["samples"]
        variational = opened.stage("variational", lambda: methods.fit_variational(problem))
        aligned = opened.stage("aligned", lambda: _align(problem, samples, ensemble))
        to_mean = aligned["hmc_to_mean"]
        scores = opened.stage("scores", lambda: _score(problem, samples, ensemble, variational, aligned))
        refined = opened.stage(
            "refined",
            lambda: compact_refined.refine(problem, config.refinement, samples, compact.gaussian(to_mean)),
        )
        beyond = opened.stage("beyond", lambda: compact_beyond.score(problem, samples, to_mean, refined))
        weights = opened.stage(
            "weights", lambda: compact_weights.gaussians(problem, samples, to_mean, ensemble, variational)
        )
        convergence = opened.stage(
            "convergence", lambda: compact_convergence.convergence(problem, samples, aligned["hmc"])
        )
        pruned = opened.stage("pruned", lambda: _prune(problem, samples, aligned["hmc"]))
        table = _paper_table(problem, scores)
        present(
            opened,
            title="Compact posterior",
            introduction=_introduction(problem),
            tables=[
                table,
                compact_beyond.table(problem, beyond, to_mean, refined),
                compact_refined.candidate_table(config.refinement, refined),
                compact_weights.table(weights),
                compact_convergence.convergence_table(convergence),
                compact_convergence.sampler_table(hmc["diagnostics"]),
            ],
            figures=_figures(opened, samples, ensemble, aligned, weights, pruned),
            findings=[
                *compact_beyond.findings(beyond, refined, to_mean),
                compact_convergence.verdict(problem, convergence),
            ],
        )
        return table


def _align(problem: Problem, hmc: Samples, ensemble: Samples) -> dict[str, Any]:
    """Each set of samples aligned to its own first member, the paper's way; HMC's also to their mean."""
    result = methods.align(problem, hmc)
    return {
        "hmc": result.samples,
        "ensemble": methods.align(problem, ensemble).samples,
        "permutations": result.elements.permutations,
        "hmc_to_mean": compact_beyond.align_to_mean(problem, hmc),
    }


def _score(
    problem: Problem, hmc: Samples, ensemble: Samples, variational: Any, aligned: Any
) -> dict[str, Any]:
    """Mean and spread of every metric for every column of the paper's table."""
    target = compact_columns.reference(problem, hmc)
    laws = {
        "HMC q_d": compact.gaussian(hmc),
        "HMC q_r": compact.gaussian(aligned["hmc"]),
        "Ens. q_d": compact.gaussian(ensemble),
        "Ens. q_r": compact.gaussian(aligned["ensemble"]),
        "VI q": DiagonalGaussian(variational["mean"], variational["std"]),
    }
    scores = {name: compact_columns.law_column(problem, name, law, target) for name, law in laws.items()}
    scores["HMC samples"] = compact_columns.column(problem, target, [target])
    members = compact_columns.reference(problem, ensemble)
    scores["Ens. samples"] = compact_columns.column(problem, target, [members])
    return {name: scores[name] for name in COLUMNS}


def _prune(problem: Problem, samples: Samples, aligned: Samples) -> dict[str, Any]:
    """Accuracy of the aligned mean network when weights are removed; the study `pruning` has more."""
    posterior = compact.gaussian(aligned)
    mean = tree.stack([posterior.mean])
    return weight_ranking.accuracy_by_ranking(
        problem,
        weight_ranking.Labelled(mean, mean),
        {weight_ranking.ALIGNED: posterior.std, weight_ranking.RAW: compact.gaussian(samples).std},
        keys.named(problem.key, "random ranking"),
        NUM_RANDOM_RANKINGS,
    )


def _paper_table(problem: Problem, scores: Any) -> Table:
    rows: list[Row] = []
    for row in compact_columns.metric_rows(scores, COLUMNS):
        rows.append(row)
        if row.name in PAPER:
            rows.append(Row(f"{row.name}, paper", tuple(Cell(value) for value in PAPER[row.name]), 3))
    settings = problem.config.compact
    return Table(
        f"Agreement, total variation and accuracy; q columns: {settings.num_draws} draws, mean ± standard "
        f"deviation over {settings.num_draw_seeds} sets; the paper's numbers are of MNIST with 784-512-10",
        COLUMNS,
        tuple(rows),
    )


def _figures(
    run: Run, samples: Samples, ensemble: Samples, aligned: Any, weights: Any, pruned: Any
) -> list[tuple[Path, str]]:
    def spread(samples: Samples) -> np.ndarray:
        return compact_weights.flat(compact.gaussian(samples).std)

    raw = {"HMC": spread(samples), "ensemble": spread(ensemble)}
    after = {"HMC": spread(aligned["hmc"]), "ensemble": spread(aligned["ensemble"])}
    saved = [
        (
            run.figure("spread", figures.spread_histograms(raw, after)),
            "Standard deviation of every weight before and after alignment",
        ),
        (
            run.figure("weight_pairs", figures.pair_plots(compact_weights.panels(weights))),
            "Mean and standard deviation of every weight under pairs of posteriors, aligned",
        ),
        (
            run.figure(
                "pruning",
                pruning_panels(weight_ranking.LEVELS, {"mean of the aligned HMC samples": pruned}, columns=1),
            ),
            "Accuracy of the mean network of q_r against the share of weights kept, by ranking",
        ),
    ]
    for group, permutations in aligned["permutations"].items():
        counts = np.asarray(symmetry.number_of_transpositions(permutations))
        drawn = figures.transposition_histogram(counts, num_units=permutations.shape[-1])
        saved.append(
            (
                run.figure(f"transpositions_{group.replace('/', '_')}", drawn),
                f"Number of transpositions between each HMC sample and the reference, layer {group}",
            )
        )
    return saved


def _introduction(problem: Problem) -> list[str]:
    config = problem.config
    sizes = (problem.data.input_shape[0], *config.model.hidden, problem.data.num_classes)
    return [
        f"{config.data.name}: {len(problem.data.train.targets)} training and {len(problem.labels)} test "
        f"images; network {'-'.join(map(str, sizes))}, {config.model.activation}. "
        f"HMC: {config.inference.num_chains} chains of {config.inference.num_samples} draws. "
        f"Ensemble: {config.ensemble.num_members} networks.",
        "q_d is the Gaussian with the mean and standard deviation of the raw samples, q_r that of the "
        f"samples aligned to the first of them ({config.compact.matching} matching).",
    ]
