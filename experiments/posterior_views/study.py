"""A posterior in pictures: independently trained networks before and after symmetry removal.

Three states of the same networks, which compute the same functions: as trained; rescaled to their minimum
mass; and then relabelled to fit their mean. Each is seen in three ways: projected on its two principal
directions, through two single weights, and as the loss on the plane through three networks.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.posterior_views import PosteriorViews
from experiments.common import columns, methods
from experiments.common.problem import Problem, perceptron
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.posterior_views import figures
from symbnn import symmetry, tree
from symbnn.plot.choice import Weight
from symbnn.types import Params, Samples

TRAINED, BALANCED, ALIGNED = "as trained", "scales removed", "scales and labels removed"
STATES = (TRAINED, BALANCED, ALIGNED)
REACH = (-0.25, 1.25)
"""Of the plane's coordinates: the three networks are at (0, 0), (1, 0) and (0, 1)."""


def run(config: PosteriorViews, rundir: Path | str) -> Table:
    """All stages of the study; returns the table."""
    with open_run("posterior_views", config, rundir) as opened:
        problem = perceptron(config, prior_scale=config.inference.prior_scale)
        problem.require_least_mass()
        networks = opened.stage("ensemble", lambda: methods.train_ensemble(problem, opened)).posterior.samples
        states = opened.stage("states", lambda: _states(problem, networks))
        surfaces = opened.stage(
            "surfaces", lambda: {name: _surface(problem, config, states[name]) for name in STATES}
        )
        return _present(opened, problem, config, states, surfaces)


def _states(problem: Problem, networks: Samples) -> dict[str, Samples]:
    spec = problem.model.spec
    balanced = jax.vmap(lambda params: symmetry.balance(spec, params).params)(networks)
    to_mean = symmetry.align(spec, balanced, reference="mean").samples
    return {TRAINED: networks, BALANCED: balanced, ALIGNED: to_mean}


def _surface(problem: Problem, config: PosteriorViews, networks: Samples) -> jax.Array:
    """Mean negative log-likelihood on a grid of the plane, `(grid, grid)`: rows are the second coordinate."""
    inputs, targets = (jnp.asarray(part[: config.num_inputs]) for part in problem.data.train)
    return plane_losses(
        problem.model.apply,
        problem.target.likelihood.log_prob,
        tree.take(networks, slice(0, 3)),
        jnp.linspace(*REACH, config.grid),
        inputs,
        targets,
    )


@partial(jax.jit, static_argnums=(0, 1))
def plane_losses(
    apply: Any, log_prob: Any, corners: Samples, ticks: jax.Array, inputs: jax.Array, targets: jax.Array
) -> jax.Array:
    """Losses at `(tick, tick)` of the plane through three stacked networks."""

    def loss(place: jax.Array) -> jax.Array:
        shares = jnp.array([1 - place[0] - place[1], place[0], place[1]])
        params = jax.tree.map(lambda leaf: jnp.tensordot(shares, leaf, axes=1), corners)
        return -jnp.mean(log_prob(apply(params, inputs), targets))

    first, second = jnp.meshgrid(ticks, ticks)
    places = jnp.stack([first.ravel(), second.ravel()], axis=-1)
    return jax.lax.map(loss, places).reshape(first.shape)


def principal(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Coordinates of every network in the two directions of greatest variance, and their share of it."""
    centred = weights.astype(np.float64) - weights.mean(axis=0)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :2] * lengths[:2], float(np.sum(lengths[:2] ** 2) / np.sum(lengths**2))


def clearest_pair(weights: np.ndarray) -> tuple[int, int]:
    """The two weights that are farthest from zero in units of their standard deviation."""
    spread = weights.std(axis=0)
    clarity = np.abs(weights.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    second, first = np.argsort(clarity, kind="stable")[-2:]
    return int(first), int(second)


def _present(run: Run, problem: Problem, config: PosteriorViews, states: Any, surfaces: Any) -> Table:
    weights = {name: np.asarray(tree.matrix(states[name])) for name in STATES}
    projected = {name: principal(weights[name]) for name in STATES}
    pair = clearest_pair(weights[ALIGNED])
    table = _table(problem, states, weights, projected)
    names = _weight_names(tree.take(states[TRAINED], 0))
    ticks = np.linspace(*REACH, config.grid)
    places = {
        f"{name}\n{100 * share:.0f} % of the variance": found for name, (found, share) in projected.items()
    }
    pairs = {name: weights[name][:, pair] for name in STATES}
    return present(
        run,
        title="A posterior in pictures",
        introduction=[
            f"{problem.data.name}: {config.ensemble.num_members} networks {problem.sizes}, "
            f"trained independently for {config.ensemble.num_epochs} epochs; every state computes the same "
            "functions."
        ],
        tables=[table],
        figures=[
            (
                "projections",
                figures.clouds(places, ("first direction", "second direction")),
                "Networks in the two principal directions of each state",
            ),
            (
                "pairs",
                figures.clouds(pairs, [names[index] for index in pair]),
                "Two weights of every network, the clearest ones after alignment",
            ),
            (
                "surfaces",
                figures.surfaces(ticks, {name: surfaces[name] for name in STATES}),
                "Training loss on the plane through the same three networks",
            ),
        ],
        findings=[_finding(table)],
    )


def _weight_names(params: Params) -> list[str]:
    return [
        str(Weight(name, index))
        for name, leaf in tree.named_leaves(params).items()
        for index in np.ndindex(leaf.shape)
    ]


def _table(problem: Problem, states: Any, weights: Any, projected: Any) -> Table:
    accuracy = partial(columns.accuracy, problem)
    means = [jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), states[name]) for name in STATES]
    of_three = [jax.tree.map(lambda leaf: jnp.mean(leaf[:3], axis=0), states[name]) for name in STATES]
    rows = (
        Row.of("variance of all weights", (weights[name].var(axis=0).sum() for name in STATES), 2),
        Row.of("share of two principal directions", (projected[name][1] for name in STATES), 3),
        Row.of("accuracy of the mean of three networks", map(accuracy, of_three), 3),
        Row.of("accuracy of the mean of all networks", map(accuracy, means), 3),
    )
    return Table("What symmetry removal leaves of the spread", STATES, rows)


def _finding(table: Table) -> str:
    variance, _, _, mean = (row.cells for row in table.rows)
    left = float(variance[2].value or 0) / float(variance[0].value or 1)
    return (
        f"Without scales and labels {100 * left:.0f} % of the variance of the weights is left. One network "
        f"with the mean weights of all is right on {mean[0].value:.3f} of the test examples as trained, and "
        f"on {mean[2].value:.3f} without scales and labels."
    )
