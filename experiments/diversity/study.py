"""Diversity: how much independently trained networks differ, and whether samples treat units alike.

Pairs of networks are compared by the mutual information of prediction and network, on test images and out of
distribution. With identical initialisation within a layer all its units have one marginal law, so the index
of the unit with the largest weight is uniform: an ensemble obeys, a chain that never swaps units does not.
How units swap ranks through training is followed by Kendall's τ between successive orders by largest weight.
A chain, and orders through training, are parts that a config may do without. Laurent, Aldea, Franchi (2024).
"""

from functools import partial
from pathlib import Path
from typing import Any

from configs.diversity import Diversity
from experiments.common import published
from experiments.common.problem import Problem, load
from experiments.diversity import exchange, figures, networks, pairs, tables, words
from experiments.diversity.results import CHAIN, ENSEMBLE, Orders, Results
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table


def run(config: Diversity, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of pairs."""
    _check(config)
    with open_run("diversity", config, rundir) as opened:
        problem = load(
            config,
            config.network,
            hidden=config.hidden,
            width=config.width,
            computed_by="products",
            scale=published.SCALE if config.published else None,
        )
        _check_problem(problem)
        outside = pairs.outside_images(problem)
        if config.published:
            samples = published.read_all(problem.model, config.data.directory, config.published)
            found: dict[str, Any] = {"samples": samples}
        else:
            found = opened.stage("networks", partial(networks.train, problem, opened))
        sets = {ENSEMBLE: found["samples"]}
        if config.chain.num_samples:
            sets[CHAIN] = opened.stage("hmc", partial(networks.sample, problem))
        known = opened.stage("information", partial(pairs.compare, problem, found["samples"], outside))
        spec = problem.model.spec
        results = Results(
            tested={name: exchange.test(spec, samples) for name, samples in sets.items()},
            accuracies=known["accuracies"],
            information=known["information"],
            orders=Orders.of(config.training, found["taus"]) if "taus" in found else None,
        )
        return _present(opened, problem, results)


def _check(config: Diversity) -> None:
    training = config.training
    published.check(
        config.published,
        config,
        network=("--network", config.network),
        number=("--num-networks", config.num_networks),
    )
    if not config.published and (
        training.num_epochs % training.epochs_between or training.num_epochs == training.epochs_between
    ):
        raise ValueError(
            f"--training.epochs-between must divide --training.num-epochs {training.num_epochs} into two or "
            f"more parts, got {training.epochs_between}"
        )
    if config.num_paired > config.num_networks:
        raise ValueError(
            f"--num-paired must be at most --num-networks {config.num_networks}, got {config.num_paired}"
        )
    if 0 < config.chain.num_samples < exchange.LEAST_SAMPLES:
        raise ValueError(
            f"--chain.num-samples must be at least {exchange.LEAST_SAMPLES}, or 0 to leave the chain out, "
            f"got {config.chain.num_samples}"
        )


def _check_problem(problem: Problem) -> None:
    """`ValueError` unless some layer has units, and the chain, if any, can move all leaves."""
    if not exchange.layers(problem.model.spec):
        raise ValueError(f"no layer of {problem.network} has exchangeable units to follow")
    if problem.config.chain.num_samples and problem.has_batch_statistics:
        raise ValueError(
            f"a chain moves all leaves, but running statistics of {problem.network} must stay; leave it out "
            "(--chain.num-samples 0) or choose another network"
        )


def _present(run: Run, problem: Problem, results: Results) -> Table:
    return present(
        run,
        introduction=[words.introduction(problem, results)],
        tables=tables.all_tables(results),
        figures=[("diversity", figures.diversity_panels(results), words.caption(results))],
        findings=[*words.findings(results), words.PAPER],
    )
