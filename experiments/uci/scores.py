"""What a predictive is worth on the test rows, and whether the chains that it comes from have converged.

NLL is that of the Gaussian with the predictive mean and standard deviation, as bde publishes it, and that of
the whole mixture of networks; both in nats and, as RMSE and CRPS, in units of the standardised target.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.uci import CHAINS
from experiments.common.problem import Problem
from experiments.harness.tables import Row, Table
from experiments.uci.tables import LIKELIHOOD
from symbnn import diagnostics, evaluate, keys
from symbnn.diagnostics.spaces import summarise
from symbnn.evaluate import Mixture
from symbnn.posteriors import Empirical

LEVELS = (0.5, 0.9, 0.95)
MOST_FOR_CRPS = 200
"""Networks, evenly spaced, of the CRPS: it compares all pairs of them."""
NUM_INPUTS = 100
"""Test rows on which chains are compared."""
PEER = "bde"
LINEARISED = "laplace"
ROWS: dict[str, tuple[str, int]] = {
    "rmse": ("RMSE", 4),
    "nll": ("NLL, Gaussian", 3),
    "mixture_nll": ("NLL, mixture", 3),
    "crps": ("CRPS", 4),
    "coverage_50": ("coverage of 50 % intervals", 3),
    "coverage_90": ("coverage of 90 % intervals", 3),
    "coverage_95": ("coverage of 95 % intervals", 3),
    "median_rhat": ("rank R-hat, median", 3),
    "rhat_95": ("rank R-hat, 95 %", 3),
    "median_ess": ("bulk ESS, median", 0),
    "low_ess": ("smaller ESS, worst 5 %", 0),
    "num_draws": ("networks judged", 0),
    "processor": ("processor seconds", 1),
    "with_start": ("processor seconds, with its start", 1),
    "wall": ("wall seconds", 1),
}
WORDS = {
    "ensemble": "ensemble",
    "hmc": "HMC",
    "nuts": "NUTS",
    "mclmc": "MCLMC",
    "variational": "VI",
    "swag": "SWAG",
    LINEARISED: "Laplace, linearised",
    PEER: PEER,
}


def score(problem: Problem, method: str, found: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of one column of the table."""
    posterior = found["fit"].posterior
    scores = judge(members(problem, method, posterior), np.asarray(problem.labels))
    if method in CHAINS:
        scores |= convergence(
            diagnostics.function_space(
                problem.model.apply, posterior, problem.inputs[:NUM_INPUTS], quantity=_mean_and_log_std
            )
        )
    return scores | {name: found[name] for name in ("processor", "with_start", "wall")}


def _mean_and_log_std(outputs: jax.Array) -> jax.Array:
    assert LIKELIHOOD.spread is not None
    return jnp.concatenate([LIKELIHOOD.predictive(outputs), jnp.log(LIKELIHOOD.spread(outputs))], axis=-1)


def score_peer(problem: Problem, found: Mapping[str, Any]) -> dict[str, float]:
    """The same of bde's draws, `(chains, draws, rows)`."""
    means, stds = (jnp.asarray(found[name]) for name in ("means", "stds"))
    flat = [part.reshape(-1, part.shape[-1], 1) for part in (means, stds)]
    seen = jnp.concatenate([means[..., :NUM_INPUTS], jnp.log(stds[..., :NUM_INPUTS])], axis=-1)
    return (
        judge(Mixture(*flat, *flat), np.asarray(problem.labels))
        | (convergence(summarise(seen)) if means.shape[1] >= 4 else {})
        | {name: float(found[name]) for name in ("processor", "with_start", "wall")}
    )


def members(problem: Problem, name: str, posterior: Any) -> Mixture:
    """What every network predicts, `(networks, rows, 1)`; of a law that has none kept, of draws from it.

    Laplace's curvature is that of the linearised network, whose one Gaussian for every row stands here.
    """
    if name == LINEARISED:
        predicted = evaluate.predict_linearised(
            problem.model.apply, posterior, problem.inputs, likelihood=LIKELIHOOD
        )
        return jax.tree.map(lambda leaf: leaf[None], predicted)
    drawn: dict[str, Any] = {}
    if not isinstance(posterior, Empirical):
        drawn = {"key": keys.named(problem.key, f"draws {name}"), "num_samples": problem.config.num_draws}
    return evaluate.predict(
        problem.model.apply, posterior, problem.inputs, likelihood=LIKELIHOOD, members=True, **drawn
    )


def judge(prediction: Mixture, targets: np.ndarray) -> dict[str, float]:
    """Errors of the networks together; NaN where one of them predicts no finite number."""
    means, stds = prediction.mean, prediction.std
    scores = {"num_draws": float(len(means))}
    if not bool(jnp.all(jnp.isfinite(means) & jnp.isfinite(stds) & (stds > 0))):
        return scores | dict.fromkeys(
            ("rmse", "nll", "mixture_nll", "crps", *(f"coverage_{_percent(level)}" for level in LEVELS)),
            math.nan,
        )
    centre = means.mean(0)
    width = jnp.sqrt(jnp.square(stds).mean(0) + means.var(0))
    some = np.unique(np.linspace(0, len(means) - 1, min(len(means), MOST_FOR_CRPS)).astype(int))
    covered = evaluate.coverage(prediction, targets, levels=LEVELS)
    return scores | {
        "rmse": float(evaluate.rmse(centre, targets)),
        "nll": float(evaluate.mixture_nll(centre[None], width[None], targets)),
        "mixture_nll": float(evaluate.mixture_nll(means, stds, targets)),
        "crps": float(evaluate.mixture_crps(means[some], stds[some], targets)),
        **{f"coverage_{_percent(level)}": float(share) for level, share in zip(LEVELS, covered, strict=True)},
    }


def convergence(found: diagnostics.Summary) -> dict[str, float]:
    """In function space, of mean and log standard deviation on some test rows."""
    return {
        "median_rhat": found.median_rhat,
        "rhat_95": found.rhat_95,
        "median_ess": found.median_bulk_ess,
        "low_ess": found.low_ess,
    }


def table(title: str, scores: Mapping[str, Mapping[str, float]]) -> Table:
    """A column per method; a dash where it has no such number."""
    rows = [
        Row.of(words, (known(column.get(name)) for column in scores.values()), decimals)
        for name, (words, decimals) in ROWS.items()
    ]
    return Table(title, [WORDS[method] for method in scores], rows)


def known(value: float | None) -> float | None:
    """The number, or None if it is missing or NaN."""
    return None if value is None or math.isnan(value) else value


def _percent(level: float) -> int:
    return round(100 * level)
