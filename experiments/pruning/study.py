"""Pruning: which weights can be set to zero, ranked by standard deviations of posteriors and otherwise.

Three kinds of networks (the mean of the aligned HMC samples, HMC samples, ensemble members) keep a share of
their weights; the rest are set to zero. Posteriors rank by their standard deviations σ, lowest kept first: of
HMC and the ensemble after alignment, of VI relabelled to fit, and of the raw HMC samples, whose σ mixes
units. Magnitude |w|, signal-to-noise |w|/σ and chance stand beside them. Figure 5 (right) of Xiao, Liu,
Bamler (2023).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.pruning import Pruning
from experiments.common import methods, weight_ranking
from experiments.common.figures import pruning_panels
from experiments.common.problem import Problem, perceptron
from experiments.common.weight_ranking import ALIGNED, LEVELS, MAGNITUDE, RANDOM, RAW, SIGNAL_TO_NOISE
from experiments.harness.present import present
from experiments.harness.rundir import Run, open_run
from experiments.harness.tables import Row, Table
from symbnn import compact, keys, symmetry, tree
from symbnn.inference import Fit
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Samples

# The levels that the comparison of rankings is about: at 100 % all are equal, below 10 % none is of use.
COMPARED = (LEVELS >= 0.1) & (LEVELS <= 0.9)
RANKINGS = (ALIGNED, RAW, "ensemble σ, aligned", "VI σ", MAGNITUDE, SIGNAL_TO_NOISE, RANDOM)
NETWORKS = ("mean network μ_r", "HMC sample", "ensemble member")
FIRST, MEAN = "the first sample", "the mean"
PAPER = (
    "The paper's finding: the standard deviations of the aligned posterior rank weights for pruning (its "
    "Figure 5 gives curves and no numbers; magnitude, signal-to-noise and chance are added here)."
)


def run(config: Pruning, rundir: Path | str) -> Table:
    """All stages of the study; returns the table of the mean network."""
    with open_run("pruning", config, rundir) as opened:
        problem = perceptron(config, prior_scale=config.inference.prior_scale)

        def posterior(name: str, make: Callable[[], Fit]) -> Any:
            if config.posteriors is not None:
                return opened.borrow(name, config.posteriors, "compact_posterior", config).posterior
            return opened.stage(name, make).posterior

        hmc = posterior("hmc", lambda: methods.sample(problem, opened)).samples
        ensemble = posterior("ensemble", lambda: methods.train_ensemble(problem, opened)).samples
        variational = posterior("variational", lambda: methods.fit_variational(problem, opened))
        # The paper's labels, and those of the mean, which is found together with the alignment.
        relabel = partial(_relabel, problem, hmc, ensemble, variational)
        matching = config.compact.matching
        to_first = opened.stage("to_first", lambda: relabel(reference=0, method=matching))
        to_mean = opened.stage("to_mean", lambda: relabel(reference="mean", method="weights"))
        curves = opened.stage(
            "curves",
            lambda: {
                labels: _prune(config, problem, hmc, ensemble, relabelled)
                for labels, relabelled in ((FIRST, to_first), (MEAN, to_mean))
            },
        )
        return _present(opened, problem, curves)


def _relabel(
    problem: Problem,
    hmc: Samples,
    ensemble: Samples,
    variational: DiagonalGaussian,
    *,
    reference: int | str,
    method: str,
) -> dict[str, Any]:
    """HMC samples matched to the reference, ensemble and VI to what the HMC samples were matched to."""
    found = problem.align(hmc, reference=reference, method=method)
    others = tree.concatenate([ensemble, tree.stack([variational.mean])])
    matched = problem.align(others, reference=found.reference, method=method)
    moved = symmetry.act(problem.model.spec, tree.take(matched.elements, -1), variational.std)
    return {
        "hmc": found.samples,
        "ensemble": tree.take(matched.samples, slice(0, -1)),
        # A unit that is turned round keeps its spread.
        "variational_std": jax.tree.map(jnp.abs, moved),
    }


def _prune(
    config: Pruning, problem: Problem, hmc: Samples, ensemble: Samples, relabelled: dict[str, Any]
) -> dict[str, Any]:
    """Accuracy by kind of network and ranking, arrays (network, level)."""
    posterior = compact.gaussian(relabelled["hmc"])
    count = tree.num_samples(hmc)
    chosen = np.linspace(0, count - 1, min(config.num_networks, count)).round().astype(int)
    mean = tree.stack([posterior.mean])
    # On the host: elementwise work is not worth a compilation for every shape.
    kinds: tuple[weight_ranking.Labelled, ...] = jax.device_get(
        (
            # The mean of aligned samples has no other labels than theirs.
            weight_ranking.Labelled(mean, mean),
            weight_ranking.Labelled(tree.take(relabelled["hmc"], chosen), tree.take(hmc, chosen)),
            weight_ranking.Labelled(relabelled["ensemble"], ensemble),
        )
    )
    stds = {
        ALIGNED: posterior.std,
        RAW: compact.gaussian(hmc).std,
        "ensemble σ, aligned": compact.gaussian(relabelled["ensemble"]).std,
        "VI σ": relabelled["variational_std"],
    }
    key = keys.named(problem.key, "random ranking")
    return {
        name: weight_ranking.accuracy_by_ranking(
            problem, kind, stds, keys.named(key, name), config.num_networks
        )
        for name, kind in zip(NETWORKS, kinds, strict=True)
    }


def _present(run: Run, problem: Problem, curves: Any) -> Table:
    # By kind of network and labels, rankings in their order.
    named = {
        f"{name}, aligned to {labels}": {ranking: curves[labels][name][ranking] for ranking in RANKINGS}
        for labels in (FIRST, MEAN)
        for name in NETWORKS
    }
    drawn = pruning_panels(LEVELS, named, columns=len(NETWORKS))
    config = problem.config
    one, many = curves[FIRST][NETWORKS[0]][RANDOM], curves[FIRST][NETWORKS[1]][ALIGNED]
    return present(
        run,
        introduction=[
            f"{problem.data.name}: {problem.target.num_data} training and {len(problem.labels)} test "
            f"examples; network {problem.sizes}. "
            f"HMC: {config.inference.num_chains} chains of {config.inference.num_samples} draws; ensemble: "
            f"{config.ensemble.num_members} networks. Labels: {FIRST}, matched by {config.compact.matching} "
            f"(the paper's recipe), or {MEAN} of the HMC samples, found with the alignment by weights.",
            "Weights are ranked over all layers, by σ (the standard deviation of a weight under a posterior, "
            "lowest kept first), magnitude, signal-to-noise (magnitude over σ) or chance. Numbers are the "
            f"test accuracy of what is left, a mean over {len(many)} HMC samples, over all ensemble members, "
            f"and, for the mean network, over {len(one)} random rankings. Raw σ ranks HMC samples and "
            "members in the labels they came with.",
        ],
        tables=[_table(name, each) for name, each in named.items()],
        figures=[("pruning", drawn, "Accuracy against the share of weights kept")],
        findings=[*(_finding(name, each) for name, each in named.items()), PAPER],
    )


def _table(name: str, curves: dict[str, np.ndarray]) -> Table:
    rows = [Row.of(ranking, curves[ranking].mean(0), 3) for ranking in RANKINGS]
    return Table(f"Accuracy by share of weights kept: {name}", [f"{100 * kept:g} %" for kept in LEVELS], rows)


def _finding(name: str, curves: dict[str, np.ndarray]) -> str:
    """Where aligned σ is above raw σ, where above chance, and where magnitude is above aligned σ."""
    mean = {ranking: curves[ranking].mean(0)[COMPARED] for ranking in RANKINGS}
    above_raw, above_chance = ((mean[ALIGNED] > mean[other]).sum() for other in (RAW, "random"))
    stronger = (mean[MAGNITUDE] > mean[ALIGNED]).sum()
    return (
        f"{name[0].upper()}{name[1:]}: of the {COMPARED.sum()} levels from 90 to 10 %, "
        f"ranking by aligned σ keeps more accuracy than raw σ at {above_raw} and more than chance at "
        f"{above_chance}; ranking by magnitude keeps more than aligned σ at {stronger}."
    )
