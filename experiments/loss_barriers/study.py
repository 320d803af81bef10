"""Loss barriers: two networks from different seeds, the line between them, with and without alignment.

Along w_l = (1 - l) w_0 + l w_1 the loss of independently trained networks rises to a barrier. Most of it is a
matter of labels: after the units of w_1 are matched to those of w_0, which changes none of its predictions,
the barrier is far lower. Figure 2 of Xiao, Liu, Bamler (2023).
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs.loss_barriers import LossBarriers
from experiments.common import weight_space
from experiments.common.problem import Problem, perceptron
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.loss_barriers import figures
from symbnn import keys, tree
from symbnn.types import Samples

UNALIGNED = "not aligned"
ALIGNED = {"activations": "aligned by activations", "weights": "aligned by weights"}
FIELDS = ("loss", "error", "loss_barrier", "error_barrier")
PAPER = (
    "The paper's finding: the interpolations of two trained networks have a high loss, and a low one after "
    "alignment (its Figure 2 gives curves and no numbers)."
)


def run(config: LossBarriers, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of barriers."""
    _check(config)
    with open_run("loss_barriers", config, rundir) as opened:
        problem = perceptron(config)
        networks = opened.stage("networks", lambda: _train(config, problem))
        judged = opened.stage("barriers", lambda: _judge(config, problem, networks))
        return _present(opened, config, problem, judged)


def _check(config: LossBarriers) -> None:
    epochs, last = config.epochs, config.training.num_epochs
    if list(epochs) != sorted(set(epochs)) or epochs[-1] > last:
        raise ValueError(f"--epochs must rise and end by --training.num-epochs {last}, got {epochs}")


def _train(config: LossBarriers, problem: Problem) -> Samples:
    """Networks of all pairs, pair by pair, after every epoch asked for: axes (network, epoch, ...)."""
    member_keys = keys.indexed(keys.named(problem.key, "starts"), 0, 2 * config.num_pairs)
    starts = jax.jit(jax.vmap(problem.model.init))(member_keys)
    key = keys.named(problem.key, "training")
    return weight_space.train(problem, config.training, key, starts, epochs=config.epochs)[1]


def _judge(config: LossBarriers, problem: Problem, networks: Samples) -> dict[str, Any]:
    """Curves of every pair at every epoch, arrays (epoch, pair, point), by what was done to the second."""
    curves: dict[str, list[Any]] = {name: [] for name in (UNALIGNED, *ALIGNED.values())}
    for index in range(len(config.epochs)):
        first, second = (
            jax.tree.map(lambda leaf, start=start, index=index: leaf[start::2, index], networks)
            for start in (0, 1)
        )
        variants = {UNALIGNED: second} | {
            name: match_pairs(config, problem, first, second, method) for method, name in ALIGNED.items()
        }
        for name, moved in variants.items():
            curves[name].append(weight_space.barriers(problem, first, moved, points=config.num_points))
    return {
        name: {field: np.stack([np.asarray(getattr(each, field)) for each in found]) for field in FIELDS}
        for name, found in curves.items()
    }


def match_pairs(
    config: LossBarriers, problem: Problem, first: Samples, second: Samples, method: str
) -> Samples:
    """Each network of `second` relabelled to fit its partner in `first`."""
    moved = [
        problem.align(
            tree.take(second, slice(pair, pair + 1)),
            reference=tree.take(first, pair),
            method=method,
            num_inputs=config.num_inputs,
        ).samples
        for pair in range(config.num_pairs)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *moved)


def _present(run: Run, config: LossBarriers, problem: Problem, judged: Any) -> Table:
    names = (UNALIGNED, *ALIGNED.values())
    loss, error, loss_barrier, error_barrier = (
        {name: judged[name][field] for name in names} for field in FIELDS
    )
    tables = {
        "Loss barrier, nats": loss_barrier,
        "Error barrier, points": {name: 100 * values for name, values in error_barrier.items()},
        "Loss at the ends, nats": {"mean of both": loss[UNALIGNED][..., [0, -1]].mean(-1)},
    }
    drawn = figures.lines_through_training(
        np.linspace(0.0, 1.0, config.num_points), config.epochs, loss, error
    )
    caption = "Test loss and error along the line between two networks: mean and deviation over the pairs"
    return present(
        run,
        introduction=[
            weight_space.describe(problem, config.training),
            f"{config.num_pairs} pairs of networks from different seeds, trained in one program; barrier: "
            f"the most by which the loss (error) at {config.num_points} points on the line exceeds the "
            "straight line between its ends. Mean ± standard deviation over the pairs.",
        ],
        tables=[_table(config, title, values) for title, values in tables.items()],
        figures=[("barriers", drawn, caption)],
        findings=[*(_finding(name, judged) for name in ALIGNED.values()), PAPER],
    )


def _table(config: LossBarriers, title: str, values: dict[str, np.ndarray]) -> Table:
    rows = [Row.over(name, each, 3) for name, each in values.items()]
    return Table(title, [f"epoch {epoch}" for epoch in config.epochs], rows)


def _finding(name: str, judged: Any) -> str:
    """In how many cases alignment lowers the barriers; a case is one pair at one epoch."""
    parts = []
    for words, field in (("loss", "loss_barrier"), ("error", "error_barrier")):
        lower = judged[name][field] < judged[UNALIGNED][field]
        parts.append(
            f"the {words} barrier is below the unaligned one in {lower.sum()} of {lower.size} cases (at the "
            f"last epoch in {lower[-1].sum()} of {lower[-1].size})"
        )
    return f"{name.capitalize()}, {parts[0]}, {parts[1]}. A case is one pair at one epoch."
