"""Model zoo: thousands of small networks, trained in blocks, kept in shards that are checked and read lazily.

A shard is trained by a key of its own number, so one that is lost or damaged is trained again, alone, to the
same weights. `zoo/` in the run directory is the zoo, `symbnn.io.Zoo` reads it.
"""

import dataclasses
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs.model_zoo import ModelZoo
from experiments.common import methods
from experiments.common.problem import Problem, load
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Table
from experiments.model_zoo import figures
from symbnn import io, keys, tree
from symbnn.types import Samples

# Networks that predict at once: their outputs must fit into memory, whatever the size of a shard.
NETWORKS_TOGETHER = 256


def run(config: ModelZoo, rundir: Path | str) -> Table:
    """Fill the zoo, verify it, and judge what is read back; returns the table of the networks."""
    with open_run("model_zoo", config, rundir) as opened:
        problem = load(config, config.network, hidden=config.hidden)
        zoo = io.Zoo(opened.directory / "zoo")
        fill(opened, config, problem, zoo)
        judged = opened.stage("reading", lambda: _judge(problem, zoo))
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
    """The networks of shard `index` with their last training loss and test accuracy."""
    fit = methods.ensemble(
        keys.named(problem.key, f"shard {index}"),
        problem.target,
        config,
        num_members=num_networks,
        optimizer=config.optimizer,
        momentum=config.momentum,
        objective="mle",
    )
    samples = fit.posterior.samples
    parts = (
        tree.take(samples, slice(first, first + NETWORKS_TOGETHER))
        for first in range(0, num_networks, NETWORKS_TOGETHER)
    )
    accuracy, _ = _accuracy(problem, parts)
    return samples, {"loss": fit.diagnostics["loss"][:, -1], "accuracy": accuracy}


def _accuracy(problem: Problem, parts: Iterable[Samples]) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy on the test images of every network, and the sum of all predictions."""
    total, accuracy = np.zeros((len(problem.labels), problem.data.num_classes or 0)), []
    for samples in parts:
        probabilities = np.asarray(_predict(problem.model.apply, samples, problem.inputs))
        accuracy.append((probabilities.argmax(-1) == np.asarray(problem.labels)).mean(-1))
        total += probabilities.sum(0)
    return np.concatenate(accuracy), total


@partial(jax.jit, static_argnums=0)
def _predict(apply: Any, samples: Samples, inputs: jax.Array) -> jax.Array:
    return jax.lax.map(lambda params: jax.nn.softmax(apply(params, inputs)), samples)


def _judge(problem: Problem, zoo: io.Zoo) -> dict[str, Any]:
    """Metrics as stored, accuracy of the networks as read back, and of all of them together."""
    accuracy, total = _accuracy(problem, zoo.batches(NETWORKS_TOGETHER))
    together = (total.argmax(-1) == np.asarray(problem.labels)).mean()
    return {**zoo.metrics(), "read": accuracy, "together": np.asarray(together)}


def _present(run: Run, config: ModelZoo, problem: Problem, zoo: io.Zoo, judged: Any) -> Table:
    judged = {name: np.asarray(value) for name, value in judged.items()}
    num_weights = tree.num_weights(problem.shapes)
    size = sum(zoo.path(index).stat().st_size for index in zoo.shards())
    together = 100 * float(judged["together"])
    drawn = figures.zoo_panels(100 * judged["accuracy"], judged["loss"], mean_predictor=together)
    moved = np.abs(judged["read"] - judged["accuracy"])
    return present(
        run,
        introduction=[
            f"{config.num_networks} networks ({problem.network}, {problem.hidden}{num_weights} weights) on "
            f"{problem.target.num_data} examples of {problem.data.name}: {config.num_epochs} epochs of "
            f"{config.optimizer} with learning rate {config.learning_rate:g} and minibatches of "
            f"{config.batch_size}. {len(zoo.shards())} shards in {config.precision}.",
        ],
        tables=[_table(judged)],
        figures=[("zoo", drawn, "Test accuracy and training loss over the networks of the zoo")],
        findings=[
            f"The zoo takes {size / config.num_networks:.0f} bytes a network, {size / 1e6:.1f} MB in all. "
            f"Storage in {config.precision} changes the accuracy of a network by "
            f"{100 * moved.mean():.3f} points on average, {100 * moved.max():.2f} at most. The mean of all "
            f"predictions is right on {together:.1f} % of {len(problem.labels)} test examples.",
        ],
    )


def _table(judged: dict[str, np.ndarray]) -> Table:
    values = {
        "test accuracy, %": (100 * judged["accuracy"], 1),
        "test accuracy as read back, %": (100 * judged["read"], 1),
        "training loss of the last epoch, nats": (judged["loss"], 3),
    }
    return Table.summary("Networks of the zoo", values, "mean", "median", "least", "most")
