"""Rotations: language models trained apart, matched by more and more symmetries; the line between them.

A transformer has more symmetries than labels of units. The queries and keys of a head may be multiplied by a
matrix and its inverse, and so may values and outputs; and where norms have no gains of their own the residual
stream may be rotated. Two networks trained apart differ in all of these. Each is removed in turn, and the
loss is measured along the line between the networks. Copies of one network, moved by random symmetries, are
the control: their mean must be that network.

Zhang et al., Beyond the permutation symmetry of transformers (arXiv 2502.00264); Theus et al., Generalized
linear mode connectivity for transformers (arXiv 2506.22712).
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.rotations import Rotations
from experiments.common import methods
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.rotations import figures
from symbnn import data, density, evaluate, keys, models, symmetry, tree
from symbnn.symmetry.gauges import Folding, find_folding, fold
from symbnn.types import Key, Params, Samples

RAW, LABELS, HEADS, STREAM = "as trained", "labels and signs", "and matrices of heads", "and stream rotated"
FIELDS = ("loss", "error", "loss_barrier", "error_barrier")


class Problem(NamedTuple):
    """A text, a network for it, and the key of everything random."""

    key: Key
    data: data.Dataset
    model: models.Model
    folding: Folding
    """How the gains of its norms become one, and the symmetries that it has then."""
    judged: density.Batch


def run(config: Rotations, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of losses."""
    with open_run("rotations", config, rundir) as opened:
        problem = load(config)
        networks = opened.stage("networks", lambda: _train(config, problem, opened))
        lines = opened.stage("lines", lambda: _judge_lines(config, problem, networks))
        control = opened.stage("control", lambda: _judge_copies(config, problem, tree.take(networks, 0)))
        return _present(opened, config, problem, lines, control)


def load(config: Rotations) -> Problem:
    """The problem of a config."""
    settings, network = config.data, config.model
    text = data.load(
        settings.name,
        data_dir=settings.directory,
        length=settings.length,
        num_train=settings.num_train,
        num_test=settings.num_test,
        seed=config.seed,
    )
    model = models.gpt(
        text.input_shape,
        text.num_classes or 0,
        dimension=network.dimension,
        depth=network.depth,
        num_heads=network.num_heads,
        mlp_units=network.mlp_units,
    )
    key = jax.random.key(config.seed)
    judged = density.Batch(*(jnp.asarray(part[: config.num_judged]) for part in text.test))
    folding = find_folding(model.apply, jax.eval_shape(model.init, key), judged.inputs[:2])
    return Problem(key, text, model, folding, judged)


def _train(config: Rotations, problem: Problem, run: Run) -> Samples:
    """Networks of all pairs, pair by pair."""
    return methods.ensemble(
        keys.named(problem.key, "networks"),
        density.target(problem.model, problem.data.train),
        config.training,
        num_members=2 * config.num_pairs,
        optimizer="adam",
        schedule="cosine",
        objective="mle",
        members_per_block=config.members_per_block,
        checkpoint=run.training("networks"),
    ).posterior.samples


def aligned(problem: Problem, variant: str, samples: Samples, reference: Params) -> tuple[Samples, Params]:
    """Networks matched to a reference by the symmetries of a variant, and the reference in the same gauge."""
    if variant == RAW:
        return samples, reference
    spec = {LABELS: problem.model.spec.permutations_only(), HEADS: problem.model.spec}.get(variant)
    if spec is None:
        spec, folded = problem.folding.folded, partial(fold, problem.folding)
        samples, reference = jax.vmap(folded)(samples), folded(reference)
    return symmetry.align(spec, samples, reference=reference).samples, reference


def _judge_lines(config: Rotations, problem: Problem, networks: Samples) -> dict[str, Any]:
    """By variant, curves of every pair along its line: arrays (pair, point)."""
    judge = partial(evaluate.barrier, problem.model.apply, batch=problem.judged, points=config.num_points)
    found: dict[str, Any] = {}
    for variant in (RAW, LABELS, HEADS, STREAM):
        curves = []
        for pair in range(config.num_pairs):
            second, first = aligned(
                problem,
                variant,
                tree.take(networks, slice(2 * pair + 1, 2 * pair + 2)),
                tree.take(networks, 2 * pair),
            )
            curves.append(judge(first, tree.take(second, 0)))
        found[variant] = {
            field: np.stack([np.asarray(getattr(each, field)) for each in curves]) for field in FIELDS
        }
    return found


def _judge_copies(config: Rotations, problem: Problem, params: Params) -> dict[str, Any]:
    """By variant and by what moved the copies of one network: the loss of their mean minus that of it."""
    loss = _loss(problem)
    found: dict[str, Any] = {variant: {} for variant in (RAW, LABELS, HEADS, STREAM)}
    for number, (kind, move) in enumerate(MOVES.items()):
        drawn = jax.random.split(
            jax.random.fold_in(keys.named(problem.key, "copies"), number), config.num_copies
        )
        copies = jax.vmap(partial(move, problem, params))(drawn)
        for variant in found:
            moved, reference = aligned(problem, variant, copies, tree.take(copies, 0))
            mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), moved)
            found[variant][kind] = float(loss(mean) - loss(reference))
    return found


def _loss(problem: Problem) -> Callable[[Params], jax.Array]:
    def loss(params: Params) -> jax.Array:
        return evaluate.barrier(problem.model.apply, params, params, problem.judged, points=2).loss[0]

    return loss


def _mixed(problem: Problem, params: Params, key: Key) -> Params:
    """The network with heads and units relabelled and every head mixed by invertible matrices."""
    spec = problem.model.spec
    return symmetry.act(spec, symmetry.random_element(spec, key, log_scale=0.0), params)


def _rotated(problem: Problem, params: Params, key: Key) -> Params:
    """The same with orthogonal matrices."""
    spec = problem.model.spec
    element = symmetry.random_element(spec, key, log_scale=0.0)
    matrices = {name: jnp.linalg.qr(value)[0] for name, value in element.matrices.items()}
    return symmetry.act(spec, element._replace(matrices=matrices), params)


def _turned(problem: Problem, params: Params, key: Key) -> Params:
    """The folded network with its stream rotated too."""
    spec = problem.folding.folded
    element = symmetry.random_element(spec, key, log_scale=0.0)
    return symmetry.act(spec, element, fold(problem.folding, params))


MOVES: dict[str, Callable[[Problem, Params, Key], Params]] = {
    "heads rotated": _rotated,
    "heads mixed": _mixed,
    "heads mixed, stream rotated": _turned,
}
"""(problem, network, key) -> the same function with other weights."""


def _present(run: Run, config: Rotations, problem: Problem, lines: Any, control: Any) -> Table:
    middle = config.num_points // 2
    ends = lines[RAW]["loss"][:, [0, -1]]
    at_middle = {name: each["loss"][:, middle] for name, each in lines.items()}
    columns = ["loss at the middle", "loss barrier", "error at the middle"]
    judged = Table(
        "The line between two networks, nats per character",
        columns,
        [
            Row.over(name, [at_middle[name], each["loss_barrier"], each["error"][:, middle]], 3)
            for name, each in lines.items()
        ],
    )
    own = Table("The networks, nats per character", ["loss"], [Row.over("test", [ends.ravel()], 3)])
    copies = Table(
        f"Loss of the mean of {config.num_copies} copies of one network, minus its own",
        list(MOVES),
        # Losses of two nats are sums in float32, good to 1e-6.
        [Row.of(name, (round(value, 5) for value in each.values()), 5) for name, each in control.items()],
    )
    drawn = figures.lines(
        np.linspace(0.0, 1.0, config.num_points), {name: each["loss"] for name, each in lines.items()}
    )
    caption = "Test loss along the line between two networks: mean and deviation over the pairs"
    return present(
        run,
        introduction=[_introduction(config, problem)],
        tables=[judged, own, copies],
        figures=[("lines", drawn, caption)],
        findings=[_finding(at_middle)],
    )


def _introduction(config: Rotations, problem: Problem) -> str:
    network, training, text = config.model, config.training, problem.data
    num_weights = tree.num_weights(jax.eval_shape(problem.model.init, problem.key))
    return (
        f"{text.name}: {len(text.train.targets)} training sequences of {config.data.length} characters, "
        f"{text.num_classes} symbols; losses are measured on {len(problem.judged.targets)} test sequences. "
        f"GPT of width {network.dimension}, {network.depth} blocks, {network.num_heads} heads, "
        f"{network.mlp_units} hidden units, RMSNorm, no biases ({num_weights} weights); "
        f"{training.num_epochs} epochs of Adam with minibatches of {training.batch_size} and learning rate "
        f"{training.learning_rate:g}, falling to zero as a cosine. {config.num_pairs} pairs of networks from "
        "different seeds, the second of which is moved by more and more symmetries, which change none of its "
        "predictions: permutations and signs of units and heads; then also invertible matrices, for every "
        "head one of queries and keys and one of values; then, with the gains of all norms folded into the "
        "weights behind them, rotations of the residual stream too. Mean ± standard deviation over the pairs."
    )


def _finding(at_middle: dict[str, np.ndarray]) -> str:
    """In how many pairs each further symmetry lowers the loss at the middle."""
    names = list(at_middle)
    steps = [
        f"{name}: {at_middle[name].mean():.2f}, below the row before in "
        f"{(at_middle[name] < at_middle[before]).sum()} of {len(at_middle[name])} pairs"
        for before, name in pairwise(names)
    ]
    return f"Loss at the middle {at_middle[RAW].mean():.2f} {RAW}; " + "; ".join(steps) + "."
