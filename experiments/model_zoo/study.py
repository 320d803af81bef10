"""Model zoo: thousands of small networks, trained in blocks, kept in shards that are checked and read lazily.

A shard is trained by a key of its own number, so one that is lost or damaged is trained again, alone, to the
same weights. `zoo/` in the run directory is the zoo, `symbnn.io.Zoo` reads it.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs.model_zoo import ModelZoo
from experiments.common import methods
from experiments.common.problem import Problem, joined, load
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
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
        optimizer_name=config.optimizer,
        momentum=config.momentum,
        objective="mle",
    )
    samples = fit.posterior.samples
    labels = np.asarray(problem.labels)
    accuracy = np.concatenate(
        [
            (np.asarray(_probabilities(problem, part)).argmax(-1) == labels).mean(-1)
            for part in _parts(samples, NETWORKS_TOGETHER)
        ]
    )
    return samples, {"loss": fit.diagnostics["loss"][:, -1], "accuracy": accuracy}


def _parts(samples: Samples, size: int) -> list[Samples]:
    count = tree.num_samples(samples)
    return [tree.take(samples, slice(first, first + size)) for first in range(0, count, size)]


def _probabilities(problem: Problem, samples: Samples) -> jax.Array:
    """Of the test images, (networks, images, classes)."""
    return _predict(problem.model.apply, samples, problem.inputs)


def _apply_softmax(apply: Any, samples: Samples, inputs: jax.Array) -> jax.Array:
    return jax.lax.map(lambda params: jax.nn.softmax(apply(params, inputs)), samples)


_predict = jax.jit(_apply_softmax, static_argnums=0)


def _judge(problem: Problem, zoo: io.Zoo) -> dict[str, Any]:
    """Metrics as stored, accuracy of the networks as read back, and of all of them together."""
    labels = np.asarray(problem.labels)
    total = np.zeros((len(labels), problem.data.num_classes or 0))
    accuracy = []
    for samples in zoo.batches(NETWORKS_TOGETHER):
        probabilities = np.asarray(_probabilities(problem, samples))
        accuracy.append((probabilities.argmax(-1) == labels).mean(-1))
        total += probabilities.sum(0)
    return {
        **zoo.metrics(),
        "read": np.concatenate(accuracy),
        "together": np.asarray((total.argmax(-1) == labels).mean()),
    }


def _present(run: Run, config: ModelZoo, problem: Problem, zoo: io.Zoo, judged: Any) -> Table:
    judged = {name: np.asarray(value) for name, value in judged.items()}
    num_weights = tree.num_weights(problem.shapes)
    size = sum(zoo.path(index).stat().st_size for index in zoo.shards())
    table = _table(judged)
    together = 100 * float(judged["together"])
    drawn = figures.zoo_panels(100 * judged["accuracy"], judged["loss"], mean_predictor=together)
    moved = np.abs(judged["read"] - judged["accuracy"])
    present(
        run,
        title="Model zoo",
        introduction=[
            f"{config.num_networks} networks ({config.network}, hidden "
            f"{joined(config.hidden)}, {num_weights} weights) on "
            f"{problem.target.num_data} images of {problem.data.name}: {config.num_epochs} epochs of "
            f"{config.optimizer} with learning rate {config.learning_rate:g} and minibatches of "
            f"{config.batch_size}. {len(zoo.shards())} shards in {config.precision}.",
        ],
        tables=[table],
        figures=[(run.figure("zoo", drawn), "Test accuracy and training loss over the networks of the zoo")],
        findings=[
            f"The zoo takes {size / config.num_networks:.0f} bytes a network, {size / 1e6:.1f} MB in all. "
            f"Storage in {config.precision} changes the accuracy of a network by "
            f"{100 * moved.mean():.3f} points on average, {100 * moved.max():.2f} at most. The mean of all "
            f"predictions is right on {together:.1f} % of {len(problem.labels)} test images.",
        ],
    )
    return table


def _table(judged: dict[str, np.ndarray]) -> Table:
    values = {
        "test accuracy, %": (100 * judged["accuracy"], 1),
        "test accuracy as read back, %": (100 * judged["read"], 1),
        "training loss of the last epoch, nats": (judged["loss"], 3),
    }
    rows = tuple(
        Row.of(name, (np.mean(each), np.median(each), np.min(each), np.max(each)), decimals)
        for name, (each, decimals) in values.items()
    )
    return Table("Networks of the zoo", ("mean", "median", "least", "most"), rows)
