"""Transpositions: how far apart two networks are as permutations, before and after training.

W_1 starts as W_0 with k swaps of hidden units: the same function, other labels. Both train, each on its own
shuffle of the data. The number of transpositions (NoT) between the trained networks is that of the
permutation that matches W_1 to W_0. Figure 3 of Xiao, Liu, Bamler (2023): NoT after training, distance and
barrier grow with the initial NoT, and NoT to W_0 rises along the line from W_0 to W_1.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from configs.transpositions import Transpositions
from experiments.common import weight_space
from experiments.common.problem import Problem, perceptron
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from experiments.transpositions import figures
from symbnn import evaluate, keys, symmetry, tree
from symbnn.symmetry.spec.explain import group_title
from symbnn.types import Key, Params, Samples

METHODS = ("weights", "activations")
SILENT = ": units that are silent on every image have the same activations and cannot be told apart."
PAPER = (
    "The paper's finding: NoT after training, weight distance and loss barrier against the initial NoT; "
    "NoT to W_0 rises monotonically along the interpolation (its Figure 3 gives curves and no numbers)."
)


def run(config: Transpositions, rundir: Path | str) -> Table:
    """All stages of the study; returns the table over initial NoT."""
    if config.model.factory is None and min(config.model.hidden) < 2:
        raise ValueError(f"--model.hidden must have two units a layer to swap, got {config.model.hidden}")
    with open_run("transpositions", config, rundir) as opened:
        problem = perceptron(config)
        _check(problem)
        networks = opened.stage("networks", lambda: _train(config, problem))
        found = opened.stage("distances", lambda: _compare(config, problem, networks["trained"]))
        paths = opened.stage("paths", lambda: _follow(config, problem, networks["trained"]))
        return _present(opened, config, problem, found, paths)


def _check(problem: Problem) -> None:
    """`ValueError` unless all groups are layers of units of which some can be swapped."""
    groups = problem.model.spec.groups
    if not groups:
        raise ValueError(f"{problem.network} has no units that can be swapped, which this study is about")
    for group in groups:
        if group.size < 2 or group.over or group.is_linear:
            raise ValueError(
                "this study swaps units, by one permutation for every layer of two or more; "
                f"{problem.network} has the group {group_title(problem.model.spec, group)}"
            )


def swap_counts(spec: symmetry.SymmetrySpec, num_values: int) -> dict[str, np.ndarray]:
    """By hidden layer of n units: `num_values` numbers of transpositions, evenly spaced from 1 to n - 1."""
    return {
        group.name: np.linspace(1, group.size - 1, num_values).round().astype(np.int32)
        for group in spec.groups
    }


def swapped_copies(
    spec: symmetry.SymmetrySpec, key: Key, params: Params, counts: dict[str, np.ndarray]
) -> Samples:
    """One copy of the network for every entry of `counts`, with exactly so many swaps in every layer."""
    num = len(next(iter(counts.values())))
    unit = symmetry.identity(spec)

    def copy(key: Key, swaps: dict[str, jax.Array]) -> Params:
        permutations = {
            group.name: symmetry.random_permutation(
                keys.named(key, group.name), group.size, transpositions=swaps[group.name]
            )
            for group in spec.groups
        }
        return symmetry.act(spec, unit._replace(permutations=permutations), params)

    return jax.vmap(copy)(keys.indexed(key, 0, num), jax.tree.map(jnp.asarray, counts))


def _train(config: Transpositions, problem: Problem) -> dict[str, Any]:
    """W_0 and its copies, run by run: axes (run, 1 + values, ...)."""
    counts = swap_counts(problem.model.spec, config.num_values)

    def starts(key: Key) -> Samples:
        first = problem.model.init(keys.named(key, "start"))
        copies = swapped_copies(problem.model.spec, keys.named(key, "swaps"), first, counts)
        return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), first, copies)

    shape = (config.num_runs, 1 + config.num_values)
    initial = jax.jit(jax.vmap(starts))(keys.indexed(keys.named(problem.key, "runs"), 0, config.num_runs))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), initial)
    trained, _ = weight_space.train(problem, config.training, keys.named(problem.key, "training"), flat)
    return {"trained": jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), trained)}


def _compare(config: Transpositions, problem: Problem, networks: Samples) -> dict[str, Any]:
    """Every trained copy against its W_0: arrays (run, value), as trained and matched by each method."""
    runs = []
    for index in range(config.num_runs):
        family = tree.take(networks, index)
        first, copies = tree.take(family, 0), tree.take(family, slice(1, None))
        found: dict[str, Any] = {"as trained": _distances(config, problem, first, copies)}
        for method in METHODS:
            aligned = problem.align(copies, reference=first, method=method, num_inputs=config.num_inputs)
            distances = _distances(config, problem, first, aligned.samples)
            found[method] = {"transpositions": _count(aligned), **distances}
        runs.append(found)
    return jax.tree.map(lambda *rows: np.stack(rows), *runs)


def _distances(
    config: Transpositions, problem: Problem, first: Params, copies: Samples
) -> dict[str, np.ndarray]:
    reference = jax.tree.map(lambda one, many: jnp.broadcast_to(one, many.shape), first, copies)
    found = weight_space.barriers(problem, reference, copies, points=config.num_points)
    distance = weight_space.squared_distances(first, copies)
    return {"distance": np.asarray(distance), "barrier": np.asarray(found.loss_barrier)}


def _count(aligned: symmetry.Aligned) -> np.ndarray:
    return np.asarray(jax.jit(symmetry.number_of_transpositions)(aligned.elements))


@jax.jit
def _lines(first: Params, ends: Samples, weights: jax.Array) -> Samples:
    """Networks on the lines from `first` to each of `ends`, line by line."""
    lines = jax.vmap(lambda end: jax.vmap(lambda weight: evaluate.interpolate(first, end, weight))(weights))(
        ends
    )
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lines)


def path_values(config: Transpositions) -> np.ndarray:
    """Which of the initial numbers of transpositions are followed along the line, evenly spread."""
    chosen = np.linspace(0, config.num_values - 1, min(config.num_paths, config.num_values))
    return chosen.round().astype(int)


def _follow(config: Transpositions, problem: Problem, networks: Samples) -> dict[str, Any]:
    """NoT to W_0 along the lines from W_0 to some of the copies, arrays (run, chosen, point) by method."""
    weights = jnp.linspace(0.0, 1.0, config.num_points)
    chosen = path_values(config)
    counts: dict[str, list[np.ndarray]] = {method: [] for method in METHODS}
    for index in range(config.num_runs):
        family = tree.take(networks, index)
        first = tree.take(family, 0)
        lines = _lines(first, tree.take(family, 1 + chosen), weights)
        for method in METHODS:
            aligned = problem.align(lines, reference=first, method=method, num_inputs=config.num_inputs)
            counts[method].append(_count(aligned).reshape(len(chosen), config.num_points))
    return {method: np.stack(rows) for method, rows in counts.items()}


def _present(run: Run, config: Transpositions, problem: Problem, found: Any, paths: Any) -> Table:
    spec = problem.model.spec
    initial = np.sum(list(swap_counts(spec, config.num_values).values()), axis=0)
    chosen = initial[path_values(config)]
    weights = np.linspace(0.0, 1.0, config.num_points)
    lines = {
        method: {int(count): paths[method][:, row] for row, count in enumerate(chosen)} for method in METHODS
    }
    drawn = figures.transposition_panels(initial, found, weights, lines)
    return present(
        run,
        introduction=[
            weight_space.describe(problem, config.training),
            "NoT is the number of transpositions of a permutation: the fewest swaps of two units that make "
            f"it. {config.num_runs} networks W_0 and {config.num_values} copies W_1 of each, whose "
            f"{sum(group.size for group in spec.groups)} hidden units were swapped to a given NoT, are "
            "trained in one program; then every W_1 is matched to its W_0. Mean ± standard deviation over "
            f"the {config.num_runs} runs.",
        ],
        tables=[
            _main_table(initial, found),
            _correlation_table(initial, found),
            *(_path_table(weights, method, lines[method]) for method in METHODS),
        ],
        figures=[("transpositions", drawn, "Initial NoT against what training makes of it")],
        findings=[
            *_training_findings(initial, found),
            *(_path_finding(method, paths[method]) for method in METHODS),
            PAPER,
        ],
    )


def _main_table(initial: np.ndarray, found: Any) -> Table:
    rows = [
        Row.over(f"{words}, {state}", found[name][quantity].T, decimals)
        for quantity, words, decimals in (
            ("transpositions", "NoT after training", 1),
            ("distance", "squared distance", 2),
            ("barrier", "loss barrier in nats", 3),
        )
        for name, state in (("as trained", "not aligned"), *((method, f"by {method}") for method in METHODS))
        if quantity in found[name]
    ]
    return Table("By initial NoT", [f"{count}" for count in initial], rows)


def _correlation_table(initial: np.ndarray, found: Any) -> Table:
    columns = {f"NoT after training, by {method}": found[method]["transpositions"] for method in METHODS}
    columns["squared distance, not aligned"] = found["as trained"]["distance"]
    columns["loss barrier, not aligned"] = found["as trained"]["barrier"]
    rows = [
        Row.over(name, (_correlations(measure, initial, each) for each in columns.values()), 3)
        for name, measure in (("Spearman ρ", stats.spearmanr), ("Kendall τ", stats.kendalltau))
    ]
    return Table("Rank correlation with the initial NoT, run by run", list(columns), rows)


def _correlations(measure: Any, initial: np.ndarray, runs: np.ndarray) -> np.ndarray:
    # Of numbers that are all alike there is no correlation.
    return np.array([measure(initial, row).statistic if np.ptp(row) else np.nan for row in runs])


def _path_table(weights: np.ndarray, method: str, lines: dict[int, np.ndarray]) -> Table:
    rows = [Row.over(f"initial NoT {count}", counts.T, 1) for count, counts in lines.items()]
    title = f"NoT to W_0 along the line to W_1, matched by {method}"
    return Table(title, [f"{weight:.2g}" for weight in weights], rows)


def _training_findings(initial: np.ndarray, found: Any) -> list[str]:
    words = []
    for method in METHODS:
        correlation = _correlations(stats.spearmanr, initial, found[method]["transpositions"])
        below = found[method]["barrier"] < found["as trained"]["barrier"]
        rest = found["as trained"]["barrier"][~below]
        words.append(
            f"Matched by {method}, NoT after training and initial NoT have Spearman ρ "
            f"{correlation.mean():.3f} on average and {correlation.min():.3f} in the worst run; the loss "
            f"barrier is below the unaligned one in {below.sum()} of {below.size} pairs"
            + (f" (in the others the unaligned one is at most {rest.max():.1g} nats)." if rest.size else ".")
        )
    return words


def _path_finding(method: str, counts: np.ndarray) -> str:
    """How monotone NoT is along the line."""
    single, mean = np.diff(counts, axis=-1), np.diff(counts.mean(0), axis=-1)
    return (
        f"Matched by {method}, NoT along the line falls in {(single < 0).sum()} of {single.size} steps of "
        f"single lines, by at most {max(0, -single.min())}; averaged over runs in {(mean < 0).sum()} of "
        f"{mean.size}, by at most {max(0.0, -mean.min()):.1f}. W_0 matched to itself has NoT "
        f"{counts[..., 0].mean():.1f}" + (SILENT if method == "activations" and counts[..., 0].any() else ".")
    )
