"""Laws of several sizes from the same draws: as they are, aligned, refined, and from a random start.

| family     | law                                                              | numbers for every weight |
|------------|------------------------------------------------------------------|--------------------------|
| networks   | n HMC draws                                                      | n                        |
| Gaussian   | mean and standard deviation of every weight                      | 2                        |
| low rank r | the same and r directions of largest variance                    | 2 + r                    |
| mixture k  | mean and standard deviation in each of k clusters of the draws   | 2 k                      |

A fit sees training examples, points between two of them with noise, and HMC's predictions there, no labels.
Of its candidates the one counts that is nearest to HMC on training examples that no fit saw, and on as many
points between two of those.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.rate_distortion import RateDistortion
from experiments.common.problem import Problem
from experiments.harness.progress import SHOWN
from symbnn import compact, evaluate, keys, posteriors, tree
from symbnn.posteriors import DiagonalGaussian, Empirical, LowRankGaussian
from symbnn.types import Samples

RAW, ALIGNED, REFINED, RANDOM = "raw", "aligned", "refined", "random start"
NETWORKS, GAUSSIAN, LOW_RANK, MIXTURE = "networks", "Gaussian", "low rank", "mixture"
LOSS = "squared"
RANDOM_STD = 0.05
"""Of an untrained network with little noise, as variational inference starts."""


class Images(NamedTuple):
    """What laws are fitted to, and what candidates are judged on, with HMC's predictions."""

    inputs: jax.Array
    probs: jax.Array
    held_inputs: jax.Array
    held_probs: jax.Array


def families(config: RateDistortion) -> list[tuple[str, int]]:
    """Every family of laws and its sizes, smallest first."""
    sizes = config.sizes
    low_rank, mixtures = [(LOW_RANK, rank) for rank in sizes.ranks], [(MIXTURE, k) for k in sizes.components]
    return [(GAUSSIAN, 1), *low_rank, *mixtures]


def images(problem: Problem, samples: Samples) -> Images:
    """Training images to judge candidates on, all others to fit to, mixed-up ones beside both."""
    settings, every = problem.config.fits, jnp.asarray(problem.data.train.inputs)
    if settings.num_validation >= len(every):
        raise ValueError(
            f"--fits.num-validation must be below {len(every)}, the number of training examples; got "
            f"{settings.num_validation}"
        )
    order = jax.random.permutation(keys.named(problem.key, "validation"), len(every))
    held, rest = every[order[: settings.num_validation]], every[order[settings.num_validation :]]
    # The images count as much as all points between them: else test images, which are like them, suffer.
    between = _between(problem, "fit", rest, settings.mixed * len(rest))
    inputs = jnp.concatenate([*[rest] * settings.mixed, between])
    held = jnp.concatenate([held, _between(problem, "judge", held, len(held))])
    return Images(inputs, _all(problem, samples, inputs), held, _all(problem, samples, held))


def spaced(problem: Problem, samples: Samples) -> Samples:
    """As many draws of all chains as laws are made of, evenly spaced."""
    count, most = tree.num_samples(samples), problem.config.num_fitted
    return samples if count <= most else tree.take(samples, np.arange(most) * count // most)


def plain(problem: Problem, samples: Samples) -> dict[str, Any]:
    """Laws of every size of the samples as they are given; the key of a law names its family and size."""
    made: dict[str, Callable[[int], Any]] = {
        GAUSSIAN: lambda _: compact.gaussian(samples),
        LOW_RANK: lambda rank: compact.low_rank(samples, rank, diagonal=True),
        MIXTURE: lambda number: compact.mixture(
            samples, compact.k_means(keys.named(problem.key, "clusters"), samples, number)
        ),
    }
    return {label(family, size): made[family](size) for family, size in families(problem.config)}


def kept(problem: Problem, samples: Samples, number: int) -> list[Samples]:
    """So many of the draws, chosen at random, several times."""
    count = tree.num_samples(samples)
    drawn = jax.random.split(keys.named(problem.key, f"subset {number}"), problem.config.sizes.num_subsets)
    return [tree.take(samples, jax.random.permutation(key, count)[:number]) for key in drawn]


def untrained(problem: Problem, number: int) -> Samples:
    """Fresh networks."""
    return jax.vmap(problem.model.init)(keys.indexed(keys.named(problem.key, "random start"), 0, number))


def random_start(problem: Problem, family: str, size: int) -> Any:
    """A law of the same numbers around untrained networks."""
    networks = untrained(problem, size if family == MIXTURE else 1)
    laws = [
        DiagonalGaussian(network, jax.tree.map(lambda leaf: jnp.full_like(leaf, RANDOM_STD), network))
        for network in (tree.take(networks, index) for index in range(tree.num_samples(networks)))
    ]
    if family == MIXTURE:
        return posteriors.mixture(laws)
    if family == GAUSSIAN:
        return laws[0]
    # As much variance in the directions as beside them.
    directions = jax.vmap(lambda key: tree.draw_like(key, laws[0].mean))(
        keys.indexed(keys.named(problem.key, "directions"), 0, size)
    )
    factors = jax.tree.map(lambda leaf: RANDOM_STD / np.sqrt(size) * leaf, directions)
    return LowRankGaussian(laws[0].mean, factors, laws[0].std)


def refined(problem: Problem, given: Images, start: Any, rates: tuple[float, ...]) -> dict[str, Any]:
    """The best candidate of a law, with its recipe and its distance on the held-out examples."""
    shrinks = (1.0,) if isinstance(start, Empirical) else problem.config.fits.shrinks
    fits = [_fit(problem, given, start, shrink, rate) for shrink, rate in itertools.product(shrinks, rates)]
    return min(fits, key=lambda fit: fit["validation"])


def distance(problem: Problem, law: Any, inputs: jax.Array, probs: jax.Array) -> Iterator[float]:
    """Total variation to HMC's predictions, for every set of draws; networks are taken as they are."""
    if isinstance(law, Empirical):
        yield float(evaluate.total_variation(_all(problem, law.samples, inputs), probs))
        return
    config = problem.config
    for key in jax.random.split(keys.named(problem.key, "judged"), config.num_draw_seeds):
        drawn = evaluate.predict(problem.model.apply, law, inputs, key=key, num_samples=config.num_draws)
        yield float(evaluate.total_variation(drawn, probs))


def label(family: str, size: int) -> str:
    """How a law is called."""
    return family if family == GAUSSIAN else f"{family} {size}"


def _fit(problem: Problem, given: Images, start: Any, shrink: float, rate: float) -> dict[str, Any]:
    settings = problem.config.fits
    number = getattr(start, "num_components", 1)
    fit = compact.refine(
        start,
        problem.model,
        given.inputs,
        given.probs,
        keys.named(problem.key, "refinement"),
        epochs=settings.num_epochs,
        batch_size=min(settings.batch_size, len(given.inputs)),
        learning_rate=rate,
        num_draws=1 if isinstance(start, Empirical) else max(2, settings.num_draws // number),
        loss=LOSS,
        shrink=shrink,
        progress=SHOWN,
    )
    held = distance(problem, fit.posterior, given.held_inputs, given.held_probs)
    return {
        "law": fit.posterior,
        "validation": np.mean(list(held)),
        "shrink": shrink,
        "rate": rate,
        "std_ratio": np.asarray(fit.diagnostics["std_ratio"]),
    }


def _between(problem: Problem, name: str, rows: jax.Array, number: int) -> jax.Array:
    """Points between two of the rows, with noise."""
    key, noise = keys.named(problem.key, f"mixed up to {name}"), problem.config.fits.noise
    mixed = compact.mixed_up(key, rows, number)
    return mixed + noise * rows.std() * jax.random.normal(keys.named(key, "noise"), mixed.shape, mixed.dtype)


def _all(problem: Problem, samples: Samples, inputs: jax.Array) -> jax.Array:
    return evaluate.predict(problem.model.apply, samples, inputs)
