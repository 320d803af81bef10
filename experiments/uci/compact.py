"""Compact posteriors of a sampler's draws: what is lost, at how many times fewer numbers, and the controls.

| column            | law                                                                   | numbers  |
|-------------------|-----------------------------------------------------------------------|----------|
| q_d               | diagonal Gaussian of the draws as they are: control without alignment | 2        |
| q_r               | the same of the draws balanced and relabelled to fit their mean       | 2        |
| low rank          | mean and leading directions of those                                  | 1 + rank |
| mixture           | a diagonal Gaussian for each of some chains, relabelled on its own    | 2 parts  |
| refined q_r       | q_r fitted to the predictive of the draws on training inputs          | 2        |
| refined mixture   | the mixture, fitted likewise                                          | 2 parts  |
| refined q_d       | control: the same fit from the draws as they are                      | 2        |
| raw mixture       | control: the same fit from the chains of the mixture as they are      | 2 parts  |
| random q, mixture | controls: the same fits from untrained networks                       | as above |
| thinned draws     | control: as many draws, evenly spaced, as the mixture has numbers     | 2 parts  |

Numbers are for every weight, a part is a component of the mixture; n draws are n of them. Fits see no
targets.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from experiments.harness.progress import SHOWN
from experiments.harness.tables import Row, Table
from experiments.uci import scores
from experiments.uci.tables import LIKELIHOOD
from symbnn import compact, evaluate, keys, posteriors, symmetry, tree
from symbnn.posteriors import DiagonalGaussian, Empirical, GaussianMixture
from symbnn.types import Samples

DRAWS = "draws"
REFINED, MIXTURE, THINNED = "refined q_r", "refined mixture", "thinned draws"
CONTROLS = {REFINED: ("refined q_d", "random q"), MIXTURE: ("raw mixture", "random mixture", THINNED)}
BALANCED_TOGETHER = 64
SHRINK = 0.1
"""Of the standard deviations with which fits begin: weights drawn independently from all modes overflow."""
RANDOM_STD = 0.15
"""Of every weight of a random start, shrunk as the others are. Steps count in these: so that it is no straw
man, Adam's first steps are then 0.0045 of a weight, as in the training of a network."""
ROWS: dict[str, tuple[str, int]] = {
    "nll": ("NLL, Gaussian", 3),
    "gap": ("NLL, Gaussian, above the draws'", 3),
    "mixture_nll": ("NLL, mixture", 3),
    "mixture_gap": ("NLL, mixture, above the draws'", 3),
    "rmse": ("RMSE", 4),
    "numbers": ("numbers stored", 0),
    "fewer": ("times fewer than the draws", 1),
    "std_ratio": ("standard deviations, over those of its start", 3),
}


def make(problem: Problem, draws: Empirical) -> dict[str, dict[str, Any]]:
    """Every law, and for the refined ones what is left of the spread that they started with."""
    settings, spec = problem.config.compact, problem.model.spec
    balanced = _balanced(problem, draws.samples)
    aligned = symmetry.align(spec, balanced, reference="mean").samples
    plain = {
        "q_d": compact.gaussian(draws.samples),
        "q_r": compact.gaussian(aligned),
        "low rank": compact.low_rank(aligned, settings.rank),
        "mixture": _of_chains(problem, balanced, draws.num_chains, aligned=True),
    }
    starts = {
        REFINED: plain["q_r"],
        MIXTURE: plain["mixture"],
        "refined q_d": plain["q_d"],
        "raw mixture": _of_chains(problem, draws.samples, draws.num_chains, aligned=False),
        "random q": _random(problem, 1),
        "random mixture": _random(problem, settings.num_components),
    }
    inputs = _inputs(problem)
    wanted = evaluate.predict(problem.model.apply, draws, inputs, likelihood=LIKELIHOOD)
    refined = {name: _refine(problem, start, inputs, wanted) for name, start in starts.items()}
    thinned = {THINNED: _thinned(draws.samples, 2 * settings.num_components)}
    known, controls = (
        {name: {"law": law, "std_ratio": np.nan} for name, law in laws.items()} for laws in (plain, thinned)
    )
    return known | refined | controls


def score(problem: Problem, draws: Empirical, laws: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By law, the draws first: how it predicts, and how many numbers it is."""
    targets, most = np.asarray(problem.labels), tree.num_weights(draws.samples)
    found = {DRAWS: scores.judge(scores.members(problem, DRAWS, draws), targets) | {"numbers": float(most)}}
    for name, each in laws.items():
        predicted = scores.members(problem, name, each["law"])
        numbers = {"numbers": float(tree.num_weights(each["law"])), "std_ratio": float(each["std_ratio"])}
        found[name] = scores.judge(predicted, targets) | numbers
    for each in found.values():
        each["fewer"] = most / each["numbers"]
        for gap, nll in (("gap", "nll"), ("mixture_gap", "mixture_nll")):
            each[gap] = each[nll] - found[DRAWS][nll]
    return found


def table(problem: Problem, name: str, found: Mapping[str, Mapping[str, float]]) -> Table:
    """A column per law."""
    settings = problem.config.compact
    rows = [
        Row.of(words, (scores.known(column.get(key)) for column in found.values()), decimals)
        for key, (words, decimals) in ROWS.items()
    ]
    title = (
        f"{name}: compact posteriors of the draws of {scores.WORDS[settings.source]}; laws are judged by "
        f"{problem.config.num_draws} networks; q_d and the last five columns are the controls"
    )
    return Table(title, list(found), rows)


def _balanced(problem: Problem, samples: Samples) -> Samples:
    """Every network at its least norm, where units can be rescaled."""
    spec = problem.model.spec
    if not any(group.num_scales for group in spec.groups):
        return samples
    return jax.lax.map(
        lambda params: symmetry.balance(spec, params).params, samples, batch_size=BALANCED_TOGETHER
    )


def _of_chains(problem: Problem, samples: Samples, num_chains: int, *, aligned: bool) -> GaussianMixture:
    """Diagonal Gaussians of the first chains, whose draws are relabelled to fit their mean if `aligned`."""
    size = tree.num_samples(samples) // num_chains
    chains = [
        tree.take(samples, slice(chain * size, (chain + 1) * size))
        for chain in range(problem.config.compact.num_components)
    ]
    if aligned:
        chains = [symmetry.align(problem.model.spec, chain, reference="mean").samples for chain in chains]
    return posteriors.mixture([compact.gaussian(chain) for chain in chains])


def _random(problem: Problem, number: int) -> Any:
    """Untrained networks with a small spread: one Gaussian, or an equal mixture."""
    networks = [
        problem.model.init(key) for key in keys.indexed(keys.named(problem.key, "random start"), 0, number)
    ]
    laws = [
        DiagonalGaussian(network, jax.tree.map(lambda leaf: jnp.full_like(leaf, RANDOM_STD), network))
        for network in networks
    ]
    return laws[0] if number == 1 else posteriors.mixture(laws)


def _thinned(samples: Samples, number: int) -> Empirical:
    """So many of the networks, in the middle of stretches of equal length."""
    places = (np.arange(number) + 0.5) * tree.num_samples(samples) / number
    return Empirical(tree.take(samples, places.astype(int)))


def _inputs(problem: Problem) -> jax.Array:
    """Training inputs and as many between two of them."""
    rows = jnp.asarray(problem.data.train.inputs)
    return jnp.concatenate([rows, compact.mixed_up(keys.named(problem.key, "mixed up"), rows, len(rows))])


def _refine(problem: Problem, start: Any, inputs: jax.Array, wanted: evaluate.Mixture) -> dict[str, Any]:
    settings = problem.config.compact
    fit = compact.refine(
        start,
        problem.model,
        inputs,
        wanted,
        keys.named(problem.key, "refinement"),
        likelihood=LIKELIHOOD,
        epochs=settings.num_epochs,
        batch_size=min(settings.batch_size, len(inputs)),
        learning_rate=settings.learning_rate,
        num_draws=max(2, settings.num_draws // getattr(start, "num_components", 1)),
        loss=settings.loss,
        shrink=SHRINK,
        progress=SHOWN,
    )
    return {"law": fit.posterior, "std_ratio": fit.diagnostics["std_ratio"]}
