"""Width: how near the Gaussian of an ensemble comes to the ensemble itself, and how high its barriers are.

q_d is the Gaussian with mean and standard deviation of every weight over the networks, q_r the same after
their units were matched: to the first network by activations, which is the paper's way, or by weights to the
mean that they fit together. Where HMC is out of reach the networks' own predictive stands in its place:
by the triangle inequality the two distances differ by at most that between the ensemble and HMC. Xiao, Liu,
Bamler (2023), Table 1.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.widths import Widths
from experiments.common import columns, methods, weight_space
from experiments.common.problem import Problem, load
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Cell, Row, Table
from experiments.widths import figures
from symbnn import compact, tree
from symbnn.types import Samples

RAW, TO_FIRST, TO_MEAN = "q_d", "q_r, to the first", "q_r, to the mean"
STATES = (RAW, TO_FIRST, TO_MEAN)
ALIGNED: dict[str, dict[str, Any]] = {
    TO_FIRST: {"reference": 0},
    TO_MEAN: {"reference": "mean", "method": "weights"},
}
DISTANCES = {"agreement with the ensemble": 0, "TV to the ensemble": 1, "accuracy of draws": 2, "NLL": 3}
PAPER_WIDTH, PAPER_TO_HMC, PAPER_ENSEMBLE_TO_HMC = 512, 0.0495, 0.0229
"""Total variation to HMC of q_r and of the networks themselves: Table 1, MNIST, 784-512-10, five networks."""


def run(config: Widths, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of distances."""
    if list(config.widths) != sorted(set(config.widths)):
        raise ValueError(f"--widths must rise, got {config.widths}")
    with open_run("widths", config, rundir) as opened:
        found = {width: _judged(opened, _problem(config, width), width) for width in config.widths}
        return _present(opened, _problem(config, config.widths[0]), found)


def _problem(config: Widths, width: int) -> Problem:
    return load(config, hidden=(width,), prior_scale=config.inference.prior_scale)


def _judged(opened: Run, problem: Problem, width: int) -> dict[str, Any]:
    """Scores of everything at one width, by state."""
    samples = opened.stage(f"ensemble_{width}", lambda: _train(opened, problem, width))
    return opened.stage(f"scores_{width}", lambda: _scores(problem, samples))


def _train(opened: Run, problem: Problem, width: int) -> Samples:
    return methods.train_ensemble(problem, opened, name=f"ensemble_{width}").posterior.samples


def _scores(problem: Problem, samples: Samples) -> dict[str, Any]:
    config = problem.config
    target = columns.reference(problem, samples)
    moved = {RAW: samples} | {
        state: problem.align(
            samples,
            **{"method": config.compact.matching, "num_inputs": config.num_alignment_inputs} | settings,
        ).samples
        for state, settings in ALIGNED.items()
    }
    return {
        "samples": columns.column(problem, target, [target]),
        **{state: _state_scores(problem, state, each, target) for state, each in moved.items()},
    }


def _state_scores(problem: Problem, state: str, samples: Samples, target: jax.Array) -> dict[str, Any]:
    """Of the Gaussian of the samples, and of the lines from the first of them to the others."""
    num = tree.num_samples(samples)
    firsts = tree.take(samples, jnp.zeros(num - 1, int))
    others = tree.take(samples, slice(1, None))
    lines = weight_space.barriers(problem, firsts, others, points=problem.config.num_points)
    scores = columns.law_column(problem, state, compact.gaussian(samples), target)
    return scores | {
        "loss_barrier": np.asarray(lines.loss_barrier),
        "error_barrier": 100 * np.asarray(lines.error_barrier),
    }


def _present(run: Run, problem: Problem, found: dict[int, dict[str, Any]]) -> Table:
    config = problem.config
    widths = config.widths
    drawn = figures.against_width(
        widths,
        {state: _curve(found, state, 1) for state in STATES},
        {state: np.array([[found[width][state]["mean_network"] for width in widths]]) for state in STATES},
        {state: np.stack([found[width][state]["loss_barrier"] for width in widths], 1) for state in STATES},
    )
    return present(
        run,
        introduction=[
            f"{problem.data.name}: {problem.target.num_data} training examples, {len(problem.labels)} test "
            f"examples. At every width {config.ensemble.num_members} MAP networks from independent starts, "
            f"{config.ensemble.num_epochs} epochs; {config.compact.num_draws} draws of every Gaussian, "
            f"{config.compact.num_draw_seeds} sets: mean ± standard deviation over the sets, of barriers "
            "over the lines from the first network to the others.",
        ],
        tables=[_law_table(config, found), _barrier_table(config, found), _network_table(config, found)],
        figures=[
            (
                "widths",
                drawn,
                "Distance of the Gaussians to the ensemble, their mean as a network, and barriers, by width",
            )
        ],
        findings=findings(found),
    )


def _curve(found: dict[int, dict[str, Any]], state: str, index: int) -> np.ndarray:
    """A score over widths, as two rows whose mean and deviation are those of the sets of draws."""
    cells = [columns.cell(found[width][state], index) for width in found]
    means, spreads = (
        np.array([getattr(cell, name) or 0.0 for cell in cells]) for name in ("value", "spread")
    )
    return np.stack([means - spreads, means + spreads])


def _columns(config: Widths) -> list[str]:
    return [f"width {width}" for width in config.widths]


def _law_table(config: Widths, found: dict[int, dict[str, Any]]) -> Table:
    rows = []
    for name, index in DISTANCES.items():
        for state in STATES:
            cells = [columns.cell(found[width][state], index) for width in config.widths]
            rows.append(Row(f"{name}: {state}", cells, 4))
    for state in STATES:
        means = (found[width][state]["mean_network"] for width in config.widths)
        rows.append(Row.of(f"{columns.MEAN_ACCURACY}: {state}", means, 4))
    return Table("Gaussians of the ensemble", _columns(config), rows)


def _barrier_table(config: Widths, found: dict[int, dict[str, Any]]) -> Table:
    rows = [
        Row(f"{words}: {state}", [Cell.over(found[width][state][field]) for width in config.widths], decimals)
        for words, field, decimals in (
            ("loss barrier, nats", "loss_barrier", 4),
            ("error barrier, points", "error_barrier", 2),
        )
        for state in STATES
    ]
    return Table("Lines from the first network to the others", _columns(config), rows)


def _network_table(config: Widths, found: dict[int, dict[str, Any]]) -> Table:
    rows = [
        Row(name, [columns.cell(found[width]["samples"], index) for width in config.widths], 4)
        for name, index in (("accuracy", 2), ("NLL", 3), ("ECE", 4))
    ]
    return Table("The ensemble", _columns(config), rows)


def findings(found: dict[int, dict[str, Any]]) -> list[str]:
    """What width does, and how far the paper's width is from the paper."""
    narrow, wide = min(found), max(found)
    variation = {(width, state): float(found[width][state]["mean"][1]) for width in found for state in STATES}
    compared = [
        f"From width {narrow} to {wide} the total variation between the ensemble and its Gaussian goes from "
        + "; ".join(
            f"{variation[narrow, state]:.4f} to {variation[wide, state]:.4f} ({state})" for state in STATES
        )
        + ".",
    ]
    said = compared if wide > narrow else []
    said.append(
        f"Barriers at width {wide}: "
        + ", ".join(f"{np.mean(found[wide][state]['loss_barrier']):.4f} nats ({state})" for state in STATES)
        + "."
    )
    if PAPER_WIDTH in found:
        least, most = (PAPER_TO_HMC + sign * PAPER_ENSEMBLE_TO_HMC for sign in (-1, 1))
        said.append(
            f"At width {PAPER_WIDTH} q_r matched to the first network is "
            f"{variation[PAPER_WIDTH, TO_FIRST]:.4f} from the ensemble. The paper's q_r is {PAPER_TO_HMC} "
            f"from HMC and its networks are {PAPER_ENSEMBLE_TO_HMC} from it, so its q_r is between "
            f"{least:.4f} and {most:.4f} from its networks."
        )
    return said
