"""Diversity: how much independently trained networks differ, and whether samples treat units alike.

Pairs of networks are compared by the mutual information of prediction and network, on test images and out of
distribution. With identical initialisation within a layer all its units have one marginal law, so the index
of the unit with the largest weight is uniform: an ensemble obeys, a chain that never swaps units does not.
How units swap ranks through training is followed by Kendall's τ between successive orders by largest weight.
Laurent, Aldea, Franchi (2024).
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.diversity import Diversity
from experiments.common import methods
from experiments.common.problem import Problem, joined, load
from experiments.diversity import figures
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Cell, Row, Table
from symbnn import diagnostics, evaluate, keys, symmetry, tree
from symbnn.symmetry.gauges import incoming
from symbnn.types import Samples

ENSEMBLE, CHAIN = "ensemble", "one HMC chain"
PAPER = (
    "The paper (ResNet-18, CIFAR-100 against SVHN): 0.107 nats a pair in distribution, 0.22 out of it, no "
    "functional collapse; an ensemble's units are exchangeable, those of HMC chains are not; orders of units "
    "change in phases of high learning rate and freeze afterwards."
)
LEVEL = 0.05
"""Of the test of exchangeability."""


def run(config: Diversity, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of pairs."""
    _check(config)
    with open_run("diversity", config, rundir) as opened:
        problem = load(config, hidden=config.hidden)
        _check_problem(problem)
        trained = opened.stage("ensemble", lambda: _train(config, problem))
        chain = opened.stage("hmc", lambda: _sample(config, problem))
        pairs = opened.stage("pairs", lambda: _pairs(config, problem, trained["samples"]))
        return _present(opened, config, problem, trained, chain, pairs)


def _check(config: Diversity) -> None:
    training = config.training
    if training.num_epochs % training.epochs_between or training.num_epochs == training.epochs_between:
        raise ValueError(
            f"--training.epochs-between must divide --training.num-epochs {training.num_epochs} into two or "
            f"more parts, got {training.epochs_between}"
        )
    if config.num_paired > config.num_networks:
        raise ValueError(
            f"--num-paired must be at most --num-networks {config.num_networks}, got {config.num_paired}"
        )


def _check_problem(problem: Problem) -> None:
    """`ValueError` unless the first group is a layer of units, and inputs have negatives."""
    groups = problem.model.spec.groups
    if not groups or groups[0].size < 2 or groups[0].over or groups[0].is_linear:
        raise ValueError(f"the first layer of {problem.network} has no exchangeable units to follow")
    inputs = problem.data.test.inputs
    if problem.config.data.npz is None:
        return
    if inputs.min() < 0 or inputs.max() > 1:
        raise ValueError(
            f"out of distribution are negatives of the inputs, 1 - x, which need x in [0, 1]; those of "
            f"{problem.data.name} go from {inputs.min():g} to {inputs.max():g}: rescale them"
        )


def _train(config: Diversity, problem: Problem) -> dict[str, Any]:
    """The ensemble, and the orders of the units of the first layer through its training."""
    training = config.training
    epochs = tuple(range(training.epochs_between, training.num_epochs + 1, training.epochs_between))
    fit = methods.ensemble(
        keys.named(problem.key, "ensemble"),
        problem.target,
        training,
        num_members=config.num_networks,
        optimizer="momentum",
        momentum=training.momentum,
        schedule="step",
        milestones=training.milestones,
        objective="mle",
        snapshots=epochs,
    )
    spec = problem.model.spec

    def order(params: Any) -> jax.Array:
        return jnp.argsort(-jnp.max(incoming(spec, spec.groups[0], params), axis=-1))

    orders = jax.jit(jax.vmap(jax.vmap(order)))(fit.diagnostics["snapshots"])
    return {"samples": fit.posterior.samples, "tau": symmetry.kendall_tau(orders[:, 1:], orders[:, :-1])}


def _sample(config: Diversity, problem: Problem) -> Samples:
    """Draws of one chain."""
    key, chain = keys.named(problem.key, "hmc"), config.chain
    fit = methods.hmc(key, problem.target, chain, num_chains=1, num_samples=chain.num_samples)
    return fit.posterior.samples


def _pairs(config: Diversity, problem: Problem, samples: Samples) -> dict[str, jax.Array]:
    """Mutual information of all pairs on test images and on their negatives, which are no digits."""
    inputs = problem.inputs
    chosen = tree.take(samples, slice(0, config.num_paired))
    first, second = np.triu_indices(config.num_paired, 1)
    found = {}
    for name, images in {"inside": inputs, "outside": 1.0 - inputs}.items():
        outputs = jax.lax.map(lambda params, images=images: problem.model.apply(params, images), chosen)
        found[name] = _pairwise(jax.nn.softmax(outputs), jnp.asarray(first), jnp.asarray(second))
    return found


@jax.jit
def _pairwise(probabilities: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    def one(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        both = jnp.stack([probabilities[pair[0]], probabilities[pair[1]]])
        return jnp.mean(evaluate.mutual_information_score(both))

    with evaluate.unchecked():
        return jax.lax.map(one, (first, second))


def _present(run: Run, config: Diversity, problem: Problem, trained: Any, chain: Any, pairs: Any) -> Table:
    spec = problem.model.spec
    tests = {
        name: diagnostics.exchangeability(spec, samples, group=spec.groups[0].name)
        for name, samples in {ENSEMBLE: trained["samples"], CHAIN: chain}.items()
    }
    inside, outside = (np.asarray(pairs[name]) for name in ("inside", "outside"))
    taus, training = np.asarray(trained["tau"]), config.training
    epochs = np.arange(2, taus.shape[1] + 2) * training.epochs_between
    drawn = figures.diversity_panels(
        inside,
        outside,
        {name: test.counts / test.counts.sum() for name, test in tests.items()},
        epochs,
        taus,
        training.milestones,
    )
    words = problem.sizes if problem.is_own else f"with {joined(config.hidden)} hidden units"
    caption = "Pairs of networks, units with the largest weight, orders of units through training"
    return present(
        run,
        introduction=[
            f"{config.num_networks} networks {words} on "
            f"{problem.target.num_data} examples of {problem.data.name}, {training.num_epochs} epochs "
            f"of momentum from learning rate {training.learning_rate:g}; all pairs of {config.num_paired}. "
            f"One HMC chain of {config.chain.num_samples} draws. Out of distribution: negatives of the test "
            "examples.",
        ],
        tables=[_pair_table(inside, outside), _exchange_table(tests), _order_table(epochs, taus)],
        figures=[("diversity", drawn, caption)],
        findings=[*findings(tests, inside, outside), PAPER],
    )


def _pair_table(inside: np.ndarray, outside: np.ndarray) -> Table:
    values = {"test images": (inside, 4), "out of distribution": (outside, 4)}
    return Table.summary("Mutual information of pairs of networks, nats", values, "mean", "least", "most")


def _exchange_table(tests: dict[str, Any]) -> Table:
    rows = (
        Row.of("chi-square", (test.statistic for test in tests.values()), 1),
        Row.of("p-value", (test.p_value for test in tests.values()), 4),
        Row.of("samples", (test.counts.sum() for test in tests.values()), 0),
    )
    return Table("Exchangeability of the units of the first hidden layer", tuple(tests), rows)


def _order_table(epochs: np.ndarray, taus: np.ndarray) -> Table:
    cells = tuple(Cell(float(column.mean()), float(column.std())) for column in taus.T)
    return Table(
        "Kendall's τ between successive orders of units",
        tuple(f"epoch {epoch}" for epoch in epochs),
        (Row("mean ± deviation over the networks", cells, 2),),
    )


def findings(tests: dict[str, Any], inside: np.ndarray, outside: np.ndarray) -> list[str]:
    """What the tests and the pairs say."""
    words = ", ".join(
        f"{name}: p = {test.p_value:.2g}, {'passes' if test.p_value > LEVEL else 'fails'}"
        for name, test in tests.items()
    )
    correlation, least = np.corrcoef(inside, outside)[0, 1], inside.min() / inside.mean()
    collapse = "no two networks are one function" if least > 0.1 else "some pairs are close to one function"
    said = [
        f"Test of exchangeable units: {words}.",
        f"Pairs differ by {inside.mean():.3f} nats on test examples and by {outside.mean():.3f} out of "
        f"distribution (correlation {correlation:.2f}). The most alike pair has {100 * least:.0f} % of the "
        f"mean: {collapse}.",
    ]
    if tests[CHAIN].p_value <= LEVEL:
        said.append(
            "The test takes samples as independent, which draws of a chain are not. That the chain fails "
            "shows that it did not visit all labels of its units equally often: it rarely swaps them, or is "
            "too short."
        )
    return said
