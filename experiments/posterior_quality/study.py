"""Quality of approximate posteriors: one mode and many, against independently trained networks.

Dropout, variational inference, SWAG, Laplace, SGHMC and HMC, each around one trained network and around
several (`inference.multimode`), and a deep ensemble, all with equally many networks. Their discrepancy from a
reference of independent networks (and of HMC chains) is measured in weight space, before and after scale and
permutation symmetries are removed, beside accuracy, calibration and detection of images out of distribution.
The deep ensemble shares no network with the reference but its law: its discrepancy must be zero. Of a few
large networks that others trained only predictions are judged (`modes`).
Laurent, Aldea, Franchi (2024), Table 1.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from configs.posterior_quality import PosteriorQuality
from experiments.common.columns import sampler_table
from experiments.common.problem import Problem
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.posterior_quality import figures, findings, modes, scores, sets, tables, words
from experiments.posterior_quality.results import CHAINS, ENSEMBLE, MANY, NETWORKS, ONE, Results
from symbnn import tree
from symbnn.types import Samples


def run(config: PosteriorQuality, rundir: Path | str) -> Table:
    """All stages of the study; returns the paper's table."""
    with open_run("posterior_quality", config, rundir) as opened:
        problem = sets.load_problem(config)
        if not config.is_compared:
            found, is_converged = modes.judge(problem, opened)
            return _present(opened, problem, is_converged, found, {}, [])
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
        return _present(opened, problem, trained["converged"], found, discrepancies, sampler)


def _draw_sets(run: Run, problem: Problem, ensemble: Samples) -> dict[str, Samples]:
    """Every method's networks by entry, with a leading axis of repetitions."""
    chosen = tree.take(ensemble, slice(0, problem.config.num_modes))
    drawn = {}
    for name in problem.config.methods:
        found = run.stage(name, partial(sets.fit, problem, name, chosen))
        drawn[f"{name}_{ONE}"], drawn[f"{name}_{MANY}"] = found["one"], _one_repetition(found["many"])
    return {**drawn, ENSEMBLE: _one_repetition(ensemble)}


def _one_repetition(samples: Samples) -> Samples:
    return jax.tree.map(lambda leaf: leaf[None], samples)


def _present(
    run: Run, problem: Problem, is_converged: Any, found: Any, discrepancies: Any, sampler: list[Table]
) -> Table:
    config = problem.config
    results = Results(
        found,
        discrepancies,
        config.num_modes,
        scores.layer_names(problem),
        config.outside,
        config.last_layer,
    )
    return present(
        run,
        introduction=words.introduction(problem, np.asarray(is_converged)),
        tables=[*tables.all_tables(results), *sampler],
        figures=list(_figures(results)),
        findings=findings.findings(results),
    )


def _figures(results: Results) -> Iterator[tuple[str, Figure, str]]:
    if not results.discrepancies:
        caption = "Predictions of every method around one mode and around all, with 95 % intervals"
        yield "versions", figures.version_panels(results), caption
        return
    caption = "MMD² before and after symmetries are removed, with 95 % intervals"
    yield "discrepancy", figures.discrepancy_panels(results), caption
    caption = "Accuracy and detection out of distribution against MMD²"
    yield "predictions", figures.prediction_panels(results), caption
