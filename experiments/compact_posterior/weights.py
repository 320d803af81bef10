"""Comparing Bayesian networks in weight space: HMC, ensemble and VI as diagonal Gaussians in common labels.

The paper's claim is that aligned Gaussians make different posteriors comparable. All are matched to the mean
of the aligned HMC samples: networks of the ensemble one by one, VI as a Gaussian. Matching makes even
networks that learned nothing look alike to some degree, so prior draws, matched alike, stand beside them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.problem import Problem
from experiments.harness.tables import Row, Table
from symbnn import compact, evaluate, keys, symmetry, tree
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Params, Samples

METHODS = ("HMC", "ensemble", "VI", "prior draws")
PAIRS = (("HMC", "ensemble"), ("HMC", "VI"), ("ensemble", "VI"), ("HMC", "prior draws"))


def gaussians(
    problem: Problem, hmc: Samples, to_mean: Samples, ensemble: Samples, variational: DiagonalGaussian
) -> dict[str, dict[str, DiagonalGaussian]]:
    """Mean and standard deviation by method, before and after alignment to the mean of the HMC samples."""
    spec, centre = problem.model.spec, compact.gaussian(to_mean)
    prior_keys = keys.indexed(keys.named(problem.key, "prior draws"), 0, tree.num_samples(ensemble))
    prior = jax.vmap(problem.target.init)(prior_keys)
    one = jax.tree.map(lambda leaf: leaf[None], (variational.mean, variational.std))
    vi = symmetry.align_gaussians(spec, *one, reference=(centre.mean, centre.std)).samples

    def matched(samples: Samples) -> DiagonalGaussian:
        return compact.gaussian(symmetry.align(spec, samples, reference=centre.mean).samples)

    before = (compact.gaussian(hmc), compact.gaussian(ensemble), variational, compact.gaussian(prior))
    after = (centre, matched(ensemble), DiagonalGaussian(*tree.take(vi, 0)), matched(prior))
    return {
        when: dict(zip(METHODS, laws, strict=True)) for when, laws in (("before", before), ("after", after))
    }


def table(found: Any) -> Table:
    """Divergences and distances of every pair, and the correlation of their means, before and after."""
    rows = [
        Row.of(
            f"{one} (a), {other} (b)",
            (
                _finite(measure(found[when][one], found[when][other]))
                for measure in MEASURES.values()
                for when in ("before", "after")
            ),
            3,
        )
        for one, other in PAIRS
    ]
    return Table(
        "Posteriors compared in weight space, raw and aligned to the mean of the HMC samples; prior draws, "
        "which learned nothing, are the control; a dash: infinite, as one of the two knows a weight exactly",
        [f"{name}, {when}" for name in MEASURES for when in ("raw", "aligned")],
        rows,
    )


def finding(found: Any) -> str:
    """How alike the means are after alignment, and how much of that alignment makes by itself."""
    after = found["after"]
    alike = {other: correlation(after[one].mean, after[other].mean) for one, other in PAIRS if one == "HMC"}
    control = alike.pop("prior draws")
    told = ", ".join(f"{other} {value:.3f}" for other, value in alike.items())
    below = [other for other, value in alike.items() if value <= control]
    return (
        f"Aligned means correlate with HMC's: {told}; prior draws, which learned nothing, {control:.3f}"
        + (
            f", no less than {' and '.join(below)}, so such a correlation is made by alignment"
            if below
            else ""
        )
        + "."
    )


def panels(found: Any) -> dict[tuple[str, str], Mapping[str, tuple[np.ndarray, np.ndarray]]]:
    """For the pair plots: means and standard deviations of every pair of methods, aligned."""
    after = found["after"]
    return {
        (one, other): {
            part: (tree.flat(getattr(after[one], part)), tree.flat(getattr(after[other], part)))
            for part in ("mean", "std")
        }
        for one, other in PAIRS
    }


def correlation(one: Params, other: Params) -> float:
    """Over all weights."""
    return float(np.corrcoef(tree.flat(one), tree.flat(other))[0, 1])


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _divergence(one: DiagonalGaussian, other: DiagonalGaussian) -> float:
    return float(evaluate.kl(one, other) / jnp.float32(tree.num_weights(one.mean)))


MEASURES: dict[str, Callable[[DiagonalGaussian, DiagonalGaussian], float]] = {
    "KL(a‖b) per weight": _divergence,
    "KL(b‖a) per weight": lambda a, b: _divergence(b, a),
    "2-Wasserstein": lambda a, b: float(evaluate.wasserstein(a, b)),
    "correlation of μ": lambda a, b: correlation(a.mean, b.mean),
    "correlation of σ": lambda a, b: correlation(a.std, b.std),
}
