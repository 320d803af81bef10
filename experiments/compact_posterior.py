"""Table 1 of the compact posterior: HMC, ensemble and VI as samples and as Gaussians, raw and aligned.

A Gaussian fitted to raw posterior samples (q_d) predicts nothing, because the samples mix permuted copies of
the same networks. Aligned to one of them first (q_r), the same fit is a meaningful, compact posterior.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.compact_posterior import CompactPosterior
from experiments import cli, report, stages
from experiments.figures import compact as figures
from experiments.rundir import Run, open_run
from experiments.stages import Problem
from experiments.tables import Cell, Row, Table
from symbnn import compact, diagnostics, evaluate, keys, symmetry, tree
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Params, Samples

COLUMNS = ("HMC samples", "HMC q_d", "HMC q_r", "Ens. samples", "Ens. q_d", "Ens. q_r", "VI q", "HMC floor")
METRICS = ("agreement with HMC", "TV to HMC", "accuracy of samples", "NLL", "ECE")
MEAN_ACCURACY = "accuracy of the mean network"
KEPT = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
NUM_FLOOR_SUBSETS = 20


def run(config: CompactPosterior, rundir: Path | str) -> Table:
    """All stages of the study; returns the table."""
    with open_run("compact_posterior", config, rundir) as opened:
        problem = Problem(config)
        hmc = opened.stage("hmc", lambda: stages.sample(problem, opened.directory / "chunks"))
        ensemble = opened.stage("ensemble", lambda: stages.train_ensemble(problem))
        variational = opened.stage("variational", lambda: stages.fit_variational(problem))
        aligned = opened.stage("aligned", lambda: _align(problem, hmc["samples"], ensemble["samples"]))
        scores = opened.stage("scores", lambda: _score(problem, hmc, ensemble, variational, aligned))
        convergence = opened.stage("convergence", lambda: _convergence(problem, hmc["samples"], aligned))
        pruned = opened.stage("pruned", lambda: _prune(problem, hmc["samples"], aligned["hmc"]))
        return _present(opened, problem, hmc, ensemble, aligned, scores, convergence, pruned)


def _align(problem: Problem, hmc: Samples, ensemble: Samples) -> dict[str, Any]:
    """Each set of samples aligned to its own first member."""
    result = stages.align(problem, hmc)
    return {
        "hmc": result.samples,
        "ensemble": stages.align(problem, ensemble).samples,
        "permutations": result.elements.permutations,
    }


def _score(problem: Problem, hmc: Any, ensemble: Any, variational: Any, aligned: Any) -> dict[str, Any]:
    """Mean and spread of every metric for every column, as arrays by column name."""
    reference = evaluate.predict(problem.model.apply, hmc["samples"], problem.inputs)
    chosen = jax.random.split(keys.named(problem.key, "floor"), NUM_FLOOR_SUBSETS)
    columns: dict[str, tuple[list[jax.Array], Params | None]] = {
        "HMC samples": ([reference], None),
        "Ens. samples": ([evaluate.predict(problem.model.apply, ensemble["samples"], problem.inputs)], None),
        "HMC floor": ([_subset_prediction(problem, hmc["samples"], key) for key in chosen], None),
    }
    for name, posterior in {
        "HMC q_d": compact.gaussian(hmc["samples"]),
        "HMC q_r": compact.gaussian(aligned["hmc"]),
        "Ens. q_d": compact.gaussian(ensemble["samples"]),
        "Ens. q_r": compact.gaussian(aligned["ensemble"]),
        "VI q": DiagonalGaussian(variational["mean"], variational["std"]),
    }.items():
        columns[name] = (_draw_predictions(problem, name, posterior), posterior.mean)
    return {name: _metrics(problem, reference, *columns[name]) for name in COLUMNS}


def _draw_predictions(problem: Problem, name: str, posterior: DiagonalGaussian) -> list[jax.Array]:
    settings = problem.config.compact
    draw_keys = jax.random.split(keys.named(problem.key, f"draws {name}"), settings.num_draw_seeds)
    return [
        evaluate.predict(
            problem.model.apply, posterior, problem.inputs, key=key, num_samples=settings.num_draws
        )
        for key in draw_keys
    ]


def _subset_prediction(problem: Problem, samples: Samples, key: jax.Array) -> jax.Array:
    """What as many true posterior draws as the Gaussians get would score."""
    count = tree.num_samples(samples)
    index = jax.random.permutation(key, count)[: min(count, problem.config.compact.num_draws)]
    return evaluate.predict(problem.model.apply, tree.take(samples, index), problem.inputs)


def _metrics(
    problem: Problem, reference: jax.Array, predictions: list[jax.Array], mean: Params | None
) -> dict[str, Any]:
    labels = problem.labels
    values = np.array(
        [
            [
                evaluate.agreement(probs, reference),
                evaluate.total_variation(probs, reference),
                evaluate.accuracy(probs, labels),
                evaluate.nll(probs, labels),
                evaluate.ece(probs, labels),
            ]
            for probs in predictions
        ]
    )
    scores: dict[str, Any] = {"mean": values.mean(0)}
    if len(predictions) > 1:
        scores["spread"] = values.std(0, ddof=1)
    if mean is not None:
        scores["mean_network"] = np.asarray(_accuracy(problem, mean))
    return scores


def _accuracy(problem: Problem, params: Params) -> float:
    return float(
        evaluate.accuracy(jax.nn.softmax(problem.model.apply(params, problem.inputs)), problem.labels)
    )


def _convergence(problem: Problem, samples: Samples, aligned: Any) -> dict[str, Any]:
    chains = problem.config.inference.num_chains
    summaries = {
        "function space": diagnostics.function_space(
            problem.model.apply, samples, problem.inputs[:100], num_chains=chains
        ),
        "weights, raw": diagnostics.weight_space(samples, num_chains=chains),
        "weights, aligned": diagnostics.weight_space(aligned["hmc"], num_chains=chains),
        "weights, random labels": diagnostics.relabelling_control(
            problem.model.spec, samples, keys.named(problem.key, "control"), num_chains=chains
        ),
    }
    return {
        name: {k: np.asarray(v) for k, v in summary._asdict().items()} for name, summary in summaries.items()
    }


def _prune(problem: Problem, raw: Samples, aligned: Samples) -> dict[str, Any]:
    """Accuracy of the mean of the aligned samples, pruned by several rankings."""
    posterior, raw_posterior = compact.gaussian(aligned), compact.gaussian(raw)
    random_keys = keys.named(problem.key, "pruning")
    rankings = {
        "lowest aligned σ": posterior.std,
        "lowest raw σ": raw_posterior.std,
        "largest |μ|": jax.tree.map(lambda leaf: -jnp.abs(leaf), posterior.mean),
        "random": tree.map_named(
            lambda name, leaf: jax.random.uniform(keys.named(random_keys, name), leaf.shape), posterior.mean
        ),
    }
    return {
        name: np.array([_accuracy(problem, compact.prune(posterior.mean, score, kept)) for kept in KEPT])
        for name, score in rankings.items()
    }


def _present(
    run: Run,
    problem: Problem,
    hmc: Any,
    ensemble: Any,
    aligned: Any,
    scores: Any,
    convergence: Any,
    pruned: Any,
) -> Table:
    table = _main_table(problem, scores)
    tables = (table, _convergence_table(convergence), _sampler_table(hmc["diagnostics"]))
    chains = problem.config.inference.num_chains
    function = diagnostics.Summary(
        **{name: value.item() for name, value in convergence["function space"].items()}
    )
    verdict = diagnostics.verdict(function, num_chains=chains)
    saved = _figures(run, hmc, ensemble, aligned, pruned)
    run.record_metrics([record for each in tables for record in each.records()])
    run.write("table.md", "\n".join(each.markdown() for each in tables) + f"\n{verdict}\n")
    page = report.page("Compact posterior", _introduction(problem), verdict, tables, saved, run.description)
    run.write("report.html", page)
    for each in tables:
        each.print()
    run.say(verdict)
    run.say(f"table    {run.directory / 'table.md'}")
    run.say(f"figures  {run.directory / 'figures'}")
    run.say(f"report   {run.directory / 'report.html'} (open it in a browser)")
    return table


def _main_table(problem: Problem, scores: Any) -> Table:
    rows = [
        Row(metric, tuple(_cell(scores[column], index) for column in COLUMNS), decimals=3)
        for index, metric in enumerate(METRICS)
    ]
    means = tuple(
        Cell(float(scores[column]["mean_network"])) if "mean_network" in scores[column] else Cell(None)
        for column in COLUMNS
    )
    rows.insert(3, Row(MEAN_ACCURACY, means, decimals=3))
    settings = problem.config.compact
    return Table(
        f"Agreement, total variation and accuracy; q columns: {settings.num_draws} draws, mean ± standard "
        f"deviation over {settings.num_draw_seeds} sets; floor: {settings.num_draws} HMC draws against all",
        COLUMNS,
        tuple(rows),
    )


def _cell(scores: Any, index: int) -> Cell:
    spread = float(scores["spread"][index]) if "spread" in scores else None
    return Cell(float(scores["mean"][index]), spread)


def _convergence_table(convergence: Any) -> Table:
    names = {
        "median_rhat": "rank R-hat, median",
        "rhat_95": "rank R-hat, 95 %",
        "max_rhat": "rank R-hat, maximum",
        "share_above": "share above 1.01",
        "median_split_rhat": "split R-hat, median",
        "median_bulk_ess": "bulk ESS, median",
        "median_tail_ess": "tail ESS, median",
        "low_ess": "smaller ESS, worst 5 %",
    }
    rows = tuple(
        Row(
            words,
            tuple(Cell(float(convergence[space][name])) for space in convergence),
            0 if "ESS" in words else 3,
        )
        for name, words in names.items()
    )
    return Table(
        "Convergence of the chains; random labels look perfect by construction and certify nothing",
        tuple(convergence),
        rows,
    )


def _sampler_table(found: Any) -> Table:
    """What the sampler counted, chain by chain."""
    rows = {
        "acceptance": ("acceptance", 3),
        "divergences": ("divergent transitions", 0),
        "energy_error": ("energy error, root mean square", 3),
        "num_gradients": ("gradients", 0),
        "step_size": ("step size", 5),
    }
    return Table(
        "The sampler",
        tuple(f"chain {index}" for index in np.asarray(found["chains"])),
        tuple(
            Row(words, tuple(Cell(float(value)) for value in np.asarray(found[name])), decimals)
            for name, (words, decimals) in rows.items()
        ),
    )


def _figures(run: Run, hmc: Any, ensemble: Any, aligned: Any, pruned: Any) -> list[tuple[Path, str]]:
    def spread(samples: Samples) -> np.ndarray:
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(compact.gaussian(samples).std)])

    raw = {"HMC": spread(hmc["samples"]), "ensemble": spread(ensemble["samples"])}
    after = {"HMC": spread(aligned["hmc"]), "ensemble": spread(aligned["ensemble"])}
    saved = [
        (
            run.figure("spread", figures.spread_histograms(raw, after)),
            "Standard deviation of every weight before and after alignment",
        ),
        (
            run.figure(
                "pruning", figures.pruning_curves(KEPT, pruned, title="Mean of the aligned HMC samples")
            ),
            "Accuracy of the aligned mean network against the share of weights kept",
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


if __name__ == "__main__":
    cli.main("compact_posterior")
