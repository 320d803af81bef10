"""Ensemble and VI columns of the compact posterior at full size: their accuracies beside the published ones.

HMC at the paper's size needs an accelerator, training does not. Agreement and total variation, which compare
with HMC, are left to `compact_posterior`.
"""

from functools import partial
from pathlib import Path
from typing import Any

from configs.compact_trained import CompactTrained
from experiments.common import columns, methods
from experiments.common.problem import Problem, perceptron
from experiments.harness.present import present
from experiments.harness.rundir import open_run
from experiments.harness.tables import Table
from symbnn import compact, plot
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Samples

COLUMNS = ("Ens. samples", "Ens. q_d", "Ens. q_r", "VI q")
PAPER = {
    "accuracy of samples": (0.9866, 0.5225, 0.9772, 0.9811),
    columns.MEAN_ACCURACY: (None, 0.8640, 0.9797, 0.9804),
}
"""Xiao, Liu, Bamler (2023), Table 1."""


def run(config: CompactTrained, rundir: Path | str) -> Table:
    """All stages of the study; returns the table."""
    with open_run("compact_trained", config, rundir) as opened:
        problem = perceptron(config, prior_scale=config.inference.prior_scale)
        ensemble = opened.stage("ensemble", lambda: methods.train_ensemble(problem, opened)).posterior.samples
        variational = opened.stage(
            "variational",
            lambda: methods.fit_variational(problem, opened, reparametrisation=config.reparametrisation),
        ).posterior
        # The paper's way: to the first network, by activations.
        align = partial(problem.align, ensemble, reference=0, method=config.compact.matching)
        aligned = opened.stage("to_first", partial(align, num_inputs=config.num_alignment_inputs))
        to_first = aligned.samples
        scores = opened.stage("scores", lambda: _score(problem, ensemble, to_first, variational))
        return present(
            opened,
            title="Ensemble and VI at full size",
            introduction=[
                f"{problem.data.name}: {problem.target.num_data} training examples, "
                f"{len(problem.labels)} test examples; network {problem.sizes}. "
                f"Ensemble: {config.ensemble.num_members} MAP networks, {config.ensemble.num_epochs} epochs; "
                f"VI: {config.variational.num_epochs} epochs, {config.reparametrisation} noise; "
                f"{config.compact.num_draws} draws of every Gaussian, {config.compact.num_draw_seeds} sets."
            ],
            tables=[_table(scores)],
            figures=[
                (
                    "spread",
                    plot.spread(ensemble, to_first, title="ensemble"),
                    "Standard deviation of every weight over the ensemble, before and after alignment",
                )
            ],
            findings=[_finding(scores)],
        )


def _score(
    problem: Problem, ensemble: Samples, to_first: Samples, variational: DiagonalGaussian
) -> dict[str, Any]:
    """Against the labels; the ensemble's own prediction stands where HMC's would."""
    target = columns.reference(problem, ensemble)
    laws = {
        "Ens. q_d": compact.gaussian(ensemble),
        "Ens. q_r": compact.gaussian(to_first),
        "VI q": variational,
    }
    scores = {name: columns.law_column(problem, name, law, target) for name, law in laws.items()}
    return {"Ens. samples": columns.column(problem, target, [target]), **scores}


def _table(scores: Any) -> Table:
    rows = columns.metric_rows(scores, COLUMNS, decimals=4)
    return Table(
        "Test accuracy and calibration; the paper's numbers are of MNIST with 784-512-10",
        COLUMNS,
        columns.with_paper([row for row in rows if "HMC" not in row.name], PAPER),
    )


def _finding(scores: Any) -> str:
    ensemble, variational = (100 * float(scores[name]["mean"][2]) for name in ("Ens. samples", "VI q"))
    mean = 100 * float(scores["Ens. q_r"]["mean_network"])
    return (
        f"Accuracy: ensemble {ensemble:.2f} % (the paper on MNIST: 98.66), VI {variational:.2f} % (98.11), "
        f"mean of the aligned ensemble {mean:.2f} % (97.97)."
    )
