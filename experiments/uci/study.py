"""Regression on UCI tables: every method beside a peer, and compact posteriors of the draws.

For every table: an ensemble, the chains that start from its members, methods around one network, bde by its
own Python, and the draws of one sampler made compact. What a run has finished it does not do again, so bde
can be added to a finished run by the same command.
"""

from functools import partial
from pathlib import Path
from typing import Any

from configs.uci import Uci
from experiments.common.problem import Problem, joined
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.uci import compact, figures, findings, fits, peer, scores, tables
from experiments.uci.findings import Scores
from symbnn import tree


def run(config: Uci, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of NLL."""
    tables.check(config)
    with open_run("uci", config, rundir) as opened:
        problems = {name: tables.load(config, name) for name in config.sets}
        found = {name: _one(opened, problem, name) for name, problem in problems.items()}
        judged: Scores = {name: each["scores"] for name, each in found.items()}
        laws: Scores = {name: each["compact"] for name, each in found.items()}
        each_set = [
            table
            for name, problem in problems.items()
            for table in (
                scores.table(_title(problem, name), judged[name]),
                compact.table(problem, name, laws[name]),
            )
        ]
        return present(
            opened,
            title="Regression on UCI tables",
            introduction=_introduction(config),
            tables=[findings.nll_table(judged), findings.compact_table(laws), *each_set],
            figures=[
                (
                    "nll",
                    figures.nll(judged),
                    "NLL of every method above that of the best on the same table, in nats, from 0.001 on",
                ),
                (
                    "compact",
                    figures.compact(laws),
                    "What compact posteriors lose of the draws' NLL, in nats, from 0.001 on; the line is "
                    "at 0.02, open circles are controls",
                ),
            ],
            findings=[*findings.of_methods(judged), *findings.of_laws(laws)],
        )


def _one(run: Run, problem: Problem, name: str) -> dict[str, Any]:
    """Scores of all methods, and of the compact posteriors, on one table."""
    fitted = fits.fit_all(run, problem, name)
    judged = {
        method: run.stage(f"{name}-{method}-scores", partial(scores.score, problem, method, each))
        for method, each in fitted.items()
        if method in problem.config.methods
    }
    beside = peer.fit(run, problem, name) if name in problem.config.peer.sets else None
    if beside is not None:
        judged[scores.PEER] = run.stage(f"{name}-bde-scores", partial(scores.score_peer, problem, beside))
    draws = fitted[problem.config.compact.source]["fit"].posterior
    laws = run.stage(f"{name}-compact", partial(compact.make, problem, draws))
    judged_laws = run.stage(f"{name}-compact-scores", partial(compact.score, problem, draws, laws))
    return {"scores": judged, "compact": judged_laws}


def _title(problem: Problem, name: str) -> str:
    """Rows, network, and lengths, which depend on the rows."""
    config = problem.config
    sizes = joined((*problem.data.input_shape, *tables.layers(config, name), 2))
    lengths = ", ".join(
        f"{scores.WORDS[method]} {settings.num_chains} chains, {settings.num_burnin} + {settings.num_samples}"
        for method, settings in (("hmc", config.hmc), ("nuts", config.nuts), ("mclmc", config.mclmc))
        if method in config.methods
    )
    return (
        f"{name}: {problem.target.num_data} training and {len(problem.labels)} test rows; network {sizes}, "
        f"{tree.num_weights(problem.shapes)} weights; {config.ensemble.num_members} members trained for "
        f"{config.ensemble.num_epochs} epochs; {lengths} draws"
    )


def _introduction(config: Uci) -> list[str]:
    shorter = (
        "Nothing is shortened on large tables."
        if config.rows_at_full_length is None
        else f"Above {config.rows_at_full_length} training rows everything is shortened in proportion, as "
        "the titles say; gradients are always those of all rows."
    )
    return [
        f"Split by scikit-learn's train_test_split(test_size={config.data.test_share:g}, "
        f"random_state={config.seed}); inputs and target standardised on the training part; all numbers "
        "are in standardised units. The network gives a mean and, by a softplus as in bde, a standard "
        "deviation; "
        f"its hidden units are {config.model.activation}; the prior of every weight is "
        f"N(0, {config.model.prior_scale:g}²).",
        "NLL is that of the Gaussian with the predictive mean and standard deviation, as bde publishes it, "
        "and that of the mixture of all networks. R-hat and ESS are those of mean and log standard "
        f"deviation on {scores.NUM_INPUTS} test rows. HMC, NUTS and MCLMC start from members of the "
        "ensemble, SWAG and Laplace from one of them, VI from a fresh network; the seconds with its start "
        f"count those networks in. {shorter}",
        "Compact posteriors: numbers of a law are all that it stores, numbers of the draws are draws times "
        "weights. Refined laws are fitted to the draws' predictions on training inputs and on as many "
        "points between them; neither targets nor test rows are used.",
    ]
