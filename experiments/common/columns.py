"""Columns of tables that several studies have.

Of compact posteriors: a law's predictions against a reference and the labels; of a sampler: what it counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.common.problem import Problem
from experiments.harness.tables import Cell, Row, Table
from symbnn import evaluate, keys, tree
from symbnn.types import Params, Samples

METRICS = ("agreement with HMC", "TV to HMC", "accuracy of samples", "NLL", "ECE")
MEAN_ACCURACY = "accuracy of the mean network"
NUM_FLOOR_SUBSETS = 20
SAMPLER_ROWS = {
    "acceptance": ("acceptance", 3),
    "divergences": ("divergent transitions", 0),
    "energy_error": ("energy error, root mean square", 3),
    "num_gradients": ("gradients", 0),
    "step_size": ("step size", 5),
}


def reference(problem: Problem, samples: Samples, inputs: Any = None) -> jax.Array:
    """The predictive of all HMC samples, on the test inputs unless others are given."""
    return evaluate.predict(problem.model.apply, samples, problem.inputs if inputs is None else inputs)


def predictions(problem: Problem, name: str, posterior: Any, inputs: Any) -> list[jax.Array]:
    """Predictives of a law one can sample from, one for each set of draws; `name` decides the draws."""
    settings = problem.config.compact
    draw_keys = jax.random.split(keys.named(problem.key, f"draws {name}"), settings.num_draw_seeds)
    return [
        evaluate.predict(problem.model.apply, posterior, inputs, key=key, num_samples=settings.num_draws)
        for key in draw_keys
    ]


def law_column(problem: Problem, name: str, posterior: Any, target: jax.Array) -> dict[str, Any]:
    """Scores of a law on the test inputs, and of its mean as a network if it has one."""
    drawn = predictions(problem, name, posterior, problem.inputs)
    return column(problem, target, drawn, getattr(posterior, "mean", None))


def distances(drawn: Sequence[jax.Array], target: jax.Array) -> dict[str, Any]:
    """Agreement with `target` and total variation to it."""
    return _summary([_distances(probs, target) for probs in drawn])


def column(
    problem: Problem, target: jax.Array, drawn: Sequence[jax.Array], mean: Params | None = None
) -> dict[str, Any]:
    """Mean and spread of every metric over several predictions on the test inputs."""
    judges = (evaluate.accuracy, evaluate.nll, evaluate.ece)
    scores = _summary(
        [[*_distances(probs, target), *(judge(probs, problem.labels) for judge in judges)] for probs in drawn]
    )
    if mean is not None:
        scores["mean_network"] = np.asarray(accuracy(problem, mean))
    return scores


def accuracy(problem: Problem, params: Params) -> float:
    """Of one network on the test inputs."""
    return float(
        evaluate.accuracy(jax.nn.softmax(problem.model.apply(params, problem.inputs)), problem.labels)
    )


def subset_floor(problem: Problem, samples: Samples, target: jax.Array) -> dict[str, Any]:
    """What as many true posterior draws as the laws get would score."""
    count = tree.num_samples(samples)
    size = min(count, problem.config.compact.num_draws)
    chosen = [
        jax.random.permutation(key, count)[:size]
        for key in jax.random.split(keys.named(problem.key, "floor"), NUM_FLOOR_SUBSETS)
    ]
    return column(problem, target, [reference(problem, tree.take(samples, rows)) for rows in chosen])


def chain_floor(problem: Problem, samples: Samples) -> dict[str, Any]:
    """Distances between the predictives of single chains, over all pairs; empty for one chain."""
    chains = problem.config.inference.num_chains
    draws = tree.num_samples(samples) // chains
    each = [
        reference(problem, tree.take(samples, slice(chain * draws, (chain + 1) * draws)))
        for chain in range(chains)
    ]
    pairs = [_distances(one, other) for index, one in enumerate(each) for other in each[:index]]
    return _summary(pairs) if pairs else {"mean": np.full(2, np.nan)}


def metric_rows(scores: Mapping[str, Any], columns: Sequence[str], *, decimals: int = 3) -> list[Row]:
    """One row per metric; a dash where a column has no such number."""
    rows = [
        Row(metric, tuple(cell(scores[name], index) for name in columns), decimals)
        for index, metric in enumerate(METRICS)
    ]
    means = (scores[name].get("mean_network") for name in columns)
    rows.insert(3, Row.of(MEAN_ACCURACY, means, decimals))
    return rows


def with_paper(rows: Iterable[Row], paper: Mapping[str, Sequence[float | None]]) -> tuple[Row, ...]:
    """The rows, each followed by that of the paper where it has one."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if row.name in paper:
            found.append(Row.of(f"{row.name}, paper", paper[row.name], row.decimals))
    return tuple(found)


def sampler_table(found: Any) -> Table:
    """The diagnostics of HMC, chain by chain."""
    rows = [Row.of(words, found[name], decimals) for name, (words, decimals) in SAMPLER_ROWS.items()]
    return Table("The sampler", [f"chain {index}" for index in np.asarray(found["chains"])], rows)


def cell(scores: Any, index: int) -> Cell:
    """One metric of one column."""
    if index >= len(scores["mean"]) or not np.isfinite(scores["mean"][index]):
        return Cell(None)
    spread = float(scores["spread"][index]) if "spread" in scores else None
    return Cell(float(scores["mean"][index]), spread)


def _distances(probs: jax.Array, target: jax.Array) -> list[Any]:
    return [evaluate.agreement(probs, target), evaluate.total_variation(probs, target)]


def _summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    values = np.array(rows, np.float64)
    spread = {"spread": values.std(0, ddof=1)} if len(values) > 1 else {}
    return {"mean": values.mean(0), **spread}
