"""Pruning: which weights can be set to zero, ranked by standard deviations of posteriors and otherwise.

Three kinds of networks (the mean of the aligned HMC samples, HMC samples, ensemble members) keep a share of
their weights; the rest are set to zero. Posteriors rank by their standard deviations σ, lowest kept first: of
HMC and the ensemble after alignment, of VI relabelled to fit, and of the raw HMC samples, whose σ mixes
units. Magnitude |w|, signal-to-noise |w|/σ and chance stand beside them. Figure 5 (right) of Xiao, Liu,
Bamler (2023).
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.pruning import Pruning
from experiments import cli, stages
from experiments.figures import pruning as figures
from experiments.present import present
from experiments.rundir import Run, open_run
from experiments.stages import Problem
from experiments.tables import Cell, Row, Table
from symbnn import compact, keys, symmetry, tree
from symbnn.types import Key, Params, Samples

LEVELS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
# The levels that the comparison of rankings is about: at 100 % all are equal, below 10 % none is of use.
COMPARED = (LEVELS >= 0.1) & (LEVELS <= 0.9)
ALIGNED, RAW, MAGNITUDE = "HMC σ, aligned", "HMC σ, raw", "magnitude"
RANKINGS = (ALIGNED, RAW, "ensemble σ, aligned", "VI σ", MAGNITUDE, "signal-to-noise", "random")
NETWORKS = ("mean network μ_r", "HMC sample", "ensemble member")
FIRST, MEAN = "the first sample", "the mean"
PAPER = (
    "The paper's finding: the standard deviations of the aligned posterior rank weights for pruning (its "
    "Figure 5 gives curves and no numbers; magnitude, signal-to-noise and chance are added here)."
)


def run(config: Pruning, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of the mean network."""
    with open_run("pruning", config, rundir) as opened:
        problem = Problem(config)
        hmc = opened.stage("hmc", lambda: stages.sample(problem, opened.directory / "chunks"))
        ensemble = opened.stage("ensemble", lambda: stages.train_ensemble(problem))
        variational = opened.stage("variational", lambda: stages.fit_variational(problem))
        aligned = opened.stage(
            "aligned", lambda: _align(problem, hmc["samples"], ensemble["samples"], variational)
        )
        curves = opened.stage(
            "curves",
            lambda: {
                labels: _prune(config, problem, hmc["samples"], ensemble["samples"], aligned[labels])
                for labels in (FIRST, MEAN)
            },
        )
        return _present(opened, problem, curves)


def _align(problem: Problem, hmc: Samples, ensemble: Samples, variational: Any) -> dict[str, Any]:
    """Everything in common labels: the paper's, and those of the mean found together with the alignment."""
    matching = problem.config.compact.matching
    return {
        FIRST: _relabel(problem, hmc, ensemble, variational, reference=0, method=matching),
        MEAN: _relabel(problem, hmc, ensemble, variational, reference="mean", method="weights"),
    }


def _relabel(
    problem: Problem, hmc: Samples, ensemble: Samples, variational: Any, *, reference: int | str, method: str
) -> dict[str, Any]:
    """HMC samples matched to the reference, ensemble and VI to what the HMC samples were matched to."""

    def match(samples: Samples, reference: Any) -> symmetry.Aligned:
        return symmetry.align(
            problem.model.spec,
            samples,
            reference=reference,
            method=method,
            apply=problem.model.apply,
            inputs=jnp.asarray(problem.data.train.inputs),
            similarity="inner_product",
        )

    found = match(hmc, reference)
    others = tree.concatenate([ensemble, tree.stack([variational["mean"]])])
    matched = match(others, found.reference)
    moved = symmetry.act(problem.model.spec, tree.take(matched.elements, -1), variational["std"])
    return {
        "hmc": found.samples,
        "ensemble": tree.take(matched.samples, slice(0, -1)),
        # A unit that is turned round keeps its spread.
        "variational_std": jax.tree.map(jnp.abs, moved),
    }


class Labelled(NamedTuple):
    """Networks of one kind in the common labels, and in the labels they came with."""

    aligned: Samples
    raw: Samples


def _prune(
    config: Pruning, problem: Problem, hmc: Samples, ensemble: Samples, aligned: Any
) -> dict[str, Any]:
    """Accuracy by kind of network and ranking, arrays (network, level)."""
    posterior = compact.gaussian(aligned["hmc"])
    count = tree.num_samples(hmc)
    chosen = np.linspace(0, count - 1, min(config.num_networks, count)).round().astype(int)
    mean = tree.stack([posterior.mean])
    # On the host: elementwise work is not worth a compilation for every shape.
    kinds: tuple[Labelled, ...] = jax.device_get(
        (
            # The mean of aligned samples has no other labels than theirs.
            Labelled(mean, mean),
            Labelled(tree.take(aligned["hmc"], chosen), tree.take(hmc, chosen)),
            Labelled(aligned["ensemble"], ensemble),
        )
    )
    stds = {
        ALIGNED: posterior.std,
        RAW: compact.gaussian(hmc).std,
        "ensemble σ, aligned": compact.gaussian(aligned["ensemble"]).std,
        "VI σ": aligned["variational_std"],
    }
    key = keys.named(problem.key, "random ranking")
    return {
        name: _rank_and_prune(problem, kind, stds, keys.named(key, name), config.num_networks)
        for name, kind in zip(NETWORKS, kinds, strict=True)
    }


def _rank_and_prune(
    problem: Problem, kind: Labelled, stds: dict[str, Params], key: Key, num_random: int
) -> dict[str, Any]:
    """Accuracy of one kind of networks under every ranking."""
    count = tree.num_samples(kind.aligned)

    def accuracy(networks: Samples, scores: Params) -> np.ndarray:
        found = accuracy_curves(problem.model.apply, networks, scores, LEVELS, problem.inputs, problem.labels)
        return np.asarray(found)

    curves = {}
    for name, std in stds.items():
        networks = kind.raw if name == RAW else kind.aligned
        curves[name] = accuracy(networks, jax.tree.map(lambda leaf: np.stack([leaf] * count), std))
    curves[MAGNITUDE] = accuracy(kind.aligned, jax.tree.map(lambda leaf: -np.abs(leaf), kind.aligned))
    noise = jax.tree.map(lambda leaf, std: -np.abs(leaf) / np.asarray(std), kind.aligned, stds[ALIGNED])
    curves["signal-to-noise"] = accuracy(kind.aligned, noise)
    # A single network needs many random rankings for a mean worth the name; many networks bring their own.
    repeated = tree.take(kind.aligned, np.arange(max(count, num_random)) % count)
    chance = tree.map_named(
        lambda name, leaf: jax.random.uniform(keys.named(key, name), leaf.shape), repeated
    )
    curves["random"] = accuracy(repeated, chance)
    return curves


def accuracy_curves(
    apply: Any,
    networks: Samples,
    scores: Samples,
    levels: np.ndarray,
    inputs: jax.Array,
    labels: jax.Array,
) -> jax.Array:
    """Accuracy (network, level) where each share in `levels` of the weights of lowest score is kept.

    The same networks as `compact.prune` gives level by level, with one sort for all levels.
    """
    size = tree.num_weights(tree.take(networks, 0))
    counts = jnp.array([round(float(level) * size) for level in levels])
    return _accuracy_curves(apply, networks, scores, counts, inputs, labels)


@partial(jax.jit, static_argnums=0)
def _accuracy_curves(
    apply: Any, networks: Samples, scores: Samples, counts: jax.Array, inputs: jax.Array, labels: jax.Array
) -> jax.Array:
    def curve(pair: tuple[Params, Params]) -> jax.Array:
        network, ranks = pair[0], _ranks(pair[1])

        def accuracy(count: jax.Array) -> jax.Array:
            kept = jax.tree.map(lambda leaf, rank: jnp.where(rank < count, leaf, 0.0), network, ranks)
            return jnp.mean(jnp.argmax(apply(kept, inputs), axis=-1) == labels)

        return jax.lax.map(accuracy, counts)

    return jax.lax.map(curve, (networks, scores))


def _ranks(scores: Params) -> Params:
    """Place of every weight in the order of all scores, lowest first."""
    leaves, treedef = jax.tree.flatten(scores)
    order = jnp.argsort(jnp.concatenate([leaf.ravel() for leaf in leaves]))
    ranks = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
    parts = jnp.split(ranks, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, shaped)


def _present(run: Run, problem: Problem, curves: Any) -> Table:
    tables = [_table(labels, name, curves[labels][name]) for labels in (FIRST, MEAN) for name in NETWORKS]
    drawn = figures.pruning_panels(
        LEVELS,
        {
            f"{name}, aligned to {labels}": {ranking: curves[labels][name][ranking] for ranking in RANKINGS}
            for labels in (FIRST, MEAN)
            for name in NETWORKS
        },
        columns=len(NETWORKS),
    )
    config = problem.config
    sizes = (*problem.data.input_shape, *config.model.hidden, problem.data.num_classes)
    one, many = curves[FIRST][NETWORKS[0]]["random"], curves[FIRST][NETWORKS[1]][ALIGNED]
    present(
        run,
        title="Pruning",
        introduction=[
            f"{config.data.name}: {len(problem.data.train.targets)} training and {len(problem.labels)} test "
            f"images; network {'-'.join(map(str, sizes))}. "
            f"HMC: {config.inference.num_chains} chains of {config.inference.num_samples} draws; ensemble: "
            f"{config.ensemble.num_members} networks. Labels: {FIRST}, matched by {config.compact.matching} "
            f"(the paper's recipe), or {MEAN} of the HMC samples, found with the alignment by weights.",
            f"Test accuracy of what is left, weights ranked over all layers; a mean over {len(many)} HMC "
            f"samples, all ensemble members, and, for the mean network, {len(one)} random rankings. Raw σ "
            "ranks HMC samples and members in the labels they came with.",
        ],
        tables=tables,
        figures=[(run.figure("pruning", drawn), "Accuracy against the share of weights kept")],
        findings=[
            *(_finding(labels, name, curves[labels][name]) for labels in (FIRST, MEAN) for name in NETWORKS),
            PAPER,
        ],
    )
    return tables[0]


def _table(labels: str, name: str, curves: dict[str, np.ndarray]) -> Table:
    rows = tuple(
        Row(ranking, tuple(Cell(float(value)) for value in curves[ranking].mean(0)), 3)
        for ranking in RANKINGS
    )
    title = f"Accuracy by share of weights kept: {name}, aligned to {labels}"
    return Table(title, tuple(f"{100 * kept:g} %" for kept in LEVELS), rows)


def _finding(labels: str, name: str, curves: dict[str, np.ndarray]) -> str:
    """Where aligned σ is above raw σ, where above chance, and where magnitude is above aligned σ."""
    mean = {ranking: curves[ranking].mean(0)[COMPARED] for ranking in RANKINGS}
    above_raw, above_chance = ((mean[ALIGNED] > mean[other]).sum() for other in (RAW, "random"))
    stronger = (mean[MAGNITUDE] > mean[ALIGNED]).sum()
    return (
        f"{name[0].upper()}{name[1:]}, aligned to {labels}: of the {COMPARED.sum()} levels from 90 to 10 %, "
        f"aligned σ is above raw σ at {above_raw} and above chance at {above_chance}; magnitude is the "
        f"stronger baseline, above aligned σ, at {stronger}."
    )


if __name__ == "__main__":
    cli.main("pruning")
