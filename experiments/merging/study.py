"""Merging: trained networks made one without training, step by step: aligned, averaged, corrected, fitted.

The mean of networks trained apart is right by chance only. Relabelling helps (Ainsworth et al. 2022), new
statistics help more (REPAIR, Jordan et al. 2022); fitting each layer by least squares to what it computes in
the networks, without labels or gradients, helps most. Each step is judged with and without the one before.
"""

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.merging import Merging
from experiments.common import published, weight_space
from experiments.common.problem import perceptron
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.merging import figures
from symbnn import compact, data, evaluate, keys, models, tree
from symbnn.density import Batch
from symbnn.models import Model
from symbnn.types import Params, Samples

# Test inputs that one network is judged on at a time.
BLOCK = 500
STEPS = {
    "mean": (False, None),
    "aligned": (True, None),
    "aligned, new statistics": (True, "statistics"),
    "aligned, REPAIR": (True, "repair"),
    "fitted, not aligned": (False, "regression"),
    "aligned, fitted": (True, "regression"),
}
"""What is done to the networks: whether they are aligned, and how their mean is corrected."""


def run(config: Merging, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of accuracies."""
    _check(config)
    with open_run("merging", config, rundir) as opened:
        model, inputs, test, networks, words = (
            _published(config) if config.published else _trained(opened, config)
        )
        num = tree.num_samples(networks)
        judged = {"single": opened.stage("single", lambda: _judge_all(model, networks, test))}
        for members in [*combinations(range(num), 2), *([tuple(range(num))] if num > 2 else [])]:
            some = tree.take(networks, np.array(members))
            name = "merged " + "-".join(map(str, members))
            judged[name] = opened.stage(name, partial(_judge, model, some, inputs, test))
        return _present(opened, config, model, judged, words)


def _check(config: Merging) -> None:
    for name, value in (("data.npz", config.data.npz), ("model.factory", config.model.factory)):
        if config.published and value is not None:
            raise ValueError(
                f"--{name} does not go with published networks, which are ResNet-20s trained on CIFAR-10; "
                "choose the config digits"
            )
    if config.published and config.data.is_normalised:
        raise ValueError(
            "--data.is-normalised does not go with published networks, whose images are scaled as in their "
            "training; leave it out"
        )


def _trained(run: Run, config: Merging) -> tuple[Model, jax.Array, Batch, Samples, str]:
    problem = perceptron(config)

    def train() -> Samples:
        member_keys = keys.indexed(keys.named(problem.key, "starts"), 0, config.num_networks)
        starts = jax.jit(jax.vmap(problem.model.init))(member_keys)
        return weight_space.train(problem, config.training, keys.named(problem.key, "training"), starts)[0]

    inputs = jnp.asarray(problem.data.train.inputs[: config.num_inputs])
    kind = problem.sizes if problem.is_own else f"perceptrons with hidden {config.model.hidden}"
    return problem.model, inputs, problem.test, run.stage("networks", train), f"{kind} on {problem.data.name}"


def _published(config: Merging) -> tuple[Model, jax.Array, Batch, Samples, str]:
    read = data.load(
        config.data.name,
        data_dir=config.data.directory,
        num_train=config.num_inputs,
        num_test=config.data.num_test,
        seed=config.seed,
    )
    model = models.resnet20(read.input_shape, read.num_classes or 0)
    networks = tree.stack(
        [published.read(model, config.data.directory, name, "resnet20") for name in config.published]
    )
    inputs, test = (
        jnp.asarray(data.normalise(part, published.SCALE).inputs) for part in (read.train, read.test)
    )
    judged = Batch(test, jnp.asarray(read.test.targets))
    return model, inputs, judged, networks, f"published ResNet-20s on {read.name}"


def _judge(model: Model, networks: Samples, inputs: jax.Array, test: Batch) -> dict[str, float]:
    """Accuracy of what is left of the networks after each step."""
    has_statistics = any(leaf.is_statistic for leaf in model.spec.leaves)
    aligned = compact.merge(model, networks, inputs=inputs, correct=None).aligned
    return {
        name: _accuracy(
            model,
            compact.merge(
                model, aligned if is_aligned else networks, inputs=inputs, method=None, correct=correct
            ).params,
            test,
        )
        for name, (is_aligned, correct) in STEPS.items()
        if correct != "statistics" or has_statistics
    }


def _judge_all(model: Model, networks: Samples, test: Batch) -> list[float]:
    return [_accuracy(model, tree.take(networks, index), test) for index in range(tree.num_samples(networks))]


def _accuracy(model: Model, params: Params, test: Batch) -> float:
    apply = jax.jit(model.apply)
    starts = range(0, len(test.targets), BLOCK)
    outputs = [np.asarray(apply(params, test.inputs[start : start + BLOCK])) for start in starts]
    return float(evaluate.accuracy(jax.nn.softmax(np.concatenate(outputs)), test.targets))


def _present(run: Run, config: Merging, model: Model, judged: dict[str, Any], words: str) -> Table:
    pairs = [each for name, each in judged.items() if name.count("-") == 1]
    everything = [each for name, each in judged.items() if name.count("-") > 1]
    single = judged["single"]
    columns = ["pairs", *(f"all {len(single)}" for _ in everything)]
    rows = [
        Row.over(name, [[each[name] for each in some] for some in (pairs, everything) if some])
        for name in pairs[0]
    ]
    table = Table("Accuracy of the merged network", columns, rows)
    own = Table(
        "Accuracy of the networks", ["mean", "least"], [Row.of("test", [np.mean(single), min(single)])]
    )
    num_numbers = tree.num_weights(jax.eval_shape(model.init, jax.random.key(0)))
    drawn = figures.steps({name: [each[name] for each in pairs] for name in pairs[0]}, single)
    best = {name: np.mean([each[name] for each in pairs]) for name in pairs[0]}
    return present(
        run,
        introduction=[
            f"{len(single)} {words}, trained apart ({num_numbers} numbers each); "
            f"{config.num_inputs} training examples without labels to match units on, measure statistics and "
            "fit layers. Mean ± standard deviation over the pairs; the last column merges all networks.",
        ],
        tables=[table, own],
        figures=[("steps", drawn, "Test accuracy of the merged pairs after each step, and of the networks")],
        findings=[
            f"Pairs: {best['mean']:.3f} as they are, {best['aligned']:.3f} aligned, "
            f"{best['aligned, fitted']:.3f} aligned and fitted, {best['fitted, not aligned']:.3f} fitted "
            f"without alignment; the networks themselves {np.mean(single):.3f}.",
        ],
    )
