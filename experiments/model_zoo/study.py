"""Model zoo: thousands of small networks, trained in blocks, kept in shards that are checked and read lazily.

A shard is trained by a key of its own number, so one that is lost or damaged is trained again, alone, to the
same weights. `zoo/` in the run directory is the zoo, `symbnn.io.Zoo` reads it.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs.model_zoo import ModelZoo
from experiments.common import convergence, methods, optimizers
from experiments.common.problem import Problem, load
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.model_zoo import figures
from symbnn import io, keys, tree
from symbnn.types import Params, Samples

# Networks that predict at once: their outputs must fit into memory, whatever the size of a shard.
NETWORKS_TOGETHER = 256
# Inputs that one of them sees at once, for the same reason.
INPUTS_TOGETHER = 500
# The metric that says whether a network did.
CONVERGED = "converged"
REMEDY = (
    "train longer (--num-epochs), with another rate (--learning-rate), or ask for less (--least-accuracy)"
)


def run(config: ModelZoo, rundir: Path | str) -> Table:
    """Fill the zoo, verify it, and judge what is read back; returns the table of the networks."""
    with open_run("model_zoo", config, rundir) as opened:
        problem = load(config, config.network, hidden=config.hidden)
        zoo = io.Zoo(opened.directory / "zoo")
        fill(opened, config, problem, zoo)
        judged = opened.stage("reading", lambda: _judge(config, problem, zoo))
        return _present(opened, config, problem, zoo, judged)


def fill(run: Run, config: ModelZoo, problem: Problem, zoo: io.Zoo) -> list[int]:
    """Train every shard that is missing or damaged; returns their numbers."""
    zoo.open(
        {"config": dataclasses.asdict(config), "seed": config.seed},
        num_networks=config.num_networks,
        shard_size=config.shard_size,
        precision=config.precision,
    )
    known, wrong = zoo.shards(), zoo.verify()
    if wrong:
        # The networks are judged in the stage that reads them back.
        run.note_commit("reading")
    for index, words in wrong.items():
        if index in known:
            run.say(f"shard {index}: {words}; training it again")
        samples, metrics = train_shard(config, problem, index, len(zoo.ranges()[index]))
        zoo.write(index, samples, metrics)
    left = zoo.verify() if wrong else {}
    if left:
        raise ValueError(f"shards {sorted(left)} cannot be read back: {next(iter(left.values()))}")
    run.say(f"zoo: {len(zoo.ranges())} shards verified, {len(wrong)} of them trained now")
    return list(wrong)


def train_shard(
    config: ModelZoo, problem: Problem, index: int, num_networks: int
) -> tuple[Samples, dict[str, jax.Array]]:
    """The networks of shard `index` with their last training loss, test accuracy, and whether they
    converged: all are kept."""
    fit = methods.ensemble(
        keys.named(problem.key, f"shard {index}"),
        problem.target,
        config,
        num_members=num_networks,
        optimizer=config.optimizer,
        momentum=config.momentum,
        objective="mle",
        members_per_block=config.members_per_block,
        **methods.stepped(config),
    )
    samples = fit.posterior.samples
    accuracy = convergence.accuracies(problem.model.apply, samples, problem.inputs, problem.labels)
    return samples, {
        "loss": fit.diagnostics["loss"][:, -1],
        "accuracy": accuracy,
        CONVERGED: convergence.converged(problem, samples, config),
    }


def _judge(config: ModelZoo, problem: Problem, zoo: io.Zoo) -> dict[str, Any]:
    """Metrics as stored, accuracy of the networks as read back, and of those that converged together."""
    metrics = zoo.metrics()
    # Zoos of earlier versions have no flags: all their networks count.
    is_converged = metrics.get(CONVERGED, np.ones(zoo.num_networks, bool)).astype(bool)
    convergence.require(is_converged, 1, config, REMEDY)
    labels, first = np.asarray(problem.labels), 0
    total, accuracy = np.zeros((len(labels), problem.data.num_classes or 0)), []
    for samples in zoo.batches(NETWORKS_TOGETHER):
        probabilities = np.asarray(_predict(problem.model.apply, samples, problem.inputs))
        accuracy.append((probabilities.argmax(-1) == labels).mean(-1))
        total += probabilities[is_converged[first : first + len(probabilities)]].sum(0)
        first += len(probabilities)
    together = np.asarray((total.argmax(-1) == labels).mean())
    return {**metrics, CONVERGED: is_converged, "read": np.concatenate(accuracy), "together": together}


@partial(jax.jit, static_argnums=0)
def _predict(apply: Any, samples: Samples, inputs: jax.Array) -> jax.Array:
    def one(params: Params) -> jax.Array:
        outputs = jax.lax.map(lambda x: apply(params, x[None])[0], inputs, batch_size=INPUTS_TOGETHER)
        return jax.nn.softmax(outputs)

    return jax.lax.map(one, samples)


def _present(run: Run, config: ModelZoo, problem: Problem, zoo: io.Zoo, judged: Any) -> Table:
    is_converged = np.asarray(judged[CONVERGED])
    together = 100 * float(judged["together"])
    judged = {name: np.asarray(judged[name])[is_converged] for name in ("loss", "accuracy", "read")}
    num_weights = tree.num_weights(problem.shapes)
    size = sum(zoo.path(index).stat().st_size for index in zoo.shards())
    drawn = figures.zoo_panels(100 * judged["accuracy"], judged["loss"], mean_predictor=together)
    moved = np.abs(judged["read"] - judged["accuracy"])
    return present(
        run,
        introduction=[
            f"{config.num_networks} networks ({problem.network}, {problem.hidden}{num_weights} weights) on "
            f"{problem.examples}: {config.num_epochs} epochs of "
            f"{config.optimizer} with {optimizers.rate_words(config)} and minibatches of "
            f"{config.batch_size}, without weight decay. {len(zoo.shards())} shards in {config.precision}.",
            *convergence.words(is_converged, config),
        ],
        tables=[_table(judged)],
        figures=[("zoo", drawn, "Test accuracy and training loss over the networks of the zoo")],
        findings=[
            f"The zoo takes {size / config.num_networks:.0f} bytes a network, {size / 1e6:.1f} MB in all. "
            f"Storage in {config.precision} changes the accuracy of a network by "
            f"{100 * moved.mean():.3f} points on average, {100 * moved.max():.2f} at most. The mean of all "
            f"predictions is right on {together:.1f} % of {len(problem.labels)} test examples.",
            *_flags(is_converged, config),
        ],
    )


def _flags(is_converged: np.ndarray, config: ModelZoo) -> list[str]:
    """Where a reader of the zoo finds which networks to leave out."""
    lost = len(is_converged) - int(is_converged.sum())
    if not lost:
        return []
    return [
        f"The zoo holds all {len(is_converged)} networks: the {lost} that did not converge have "
        f"`{CONVERGED}` false in its metrics."
    ]


def _table(judged: dict[str, np.ndarray]) -> Table:
    values = {
        "test accuracy, %": (100 * judged["accuracy"], 1),
        "test accuracy as read back, %": (100 * judged["read"], 1),
        "training loss of the last epoch, nats": (judged["loss"], 3),
    }
    return Table.summary("Networks of the zoo", values, "mean", "median", "least", "most")
