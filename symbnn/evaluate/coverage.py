"""Regression judged from a predictive: coverage of its intervals, and all metrics in one call.

    prediction = predict(model.apply, samples, inputs, likelihood=density.gaussian(0.1), members=True)
    coverage(prediction, targets, levels=(0.5, 0.9))        # (0.5, 0.9) if the prediction is calibrated
    regression_summary(prediction, targets)                 # RMSE, NLL, CRPS, calibration and coverage

With `members=True` every number is of the exact mixture of the networks' Gaussians. Without it `predict`
keeps the mean and the standard deviation only, and the numbers are of the Gaussian that has them. The same
for classes is `Metrics`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn.evaluate.checks import finite, finite_targets
from symbnn.evaluate.mixture import Mixture
from symbnn.evaluate.regression import (
    Members,
    Targets,
    covered,
    mixture_cdf,
    mixture_crps,
    mixture_nll,
    quantile_calibration,
    rmse,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)


class RegressionSummary(NamedTuple):
    """What a predictive is worth on some targets; errors are in units of the targets."""

    rmse: jax.Array
    nll: jax.Array
    """In nats for one input, all its outputs together."""
    crps: jax.Array
    """Mean over inputs and outputs, as coverage and calibration are."""
    calibration: jax.Array
    """Mean gap between the coverage of central intervals and their level, from 5 % to 95 %."""
    levels: tuple[float, ...]
    coverage: jax.Array
    """Share of the targets in the central interval of each level."""


def coverage(prediction: Any, targets: Any, *, levels: Any = LEVELS) -> Float[Array, " levels"]:
    """Share of the targets that lie in the central predictive interval of each level.

    Several outputs of an input count as targets of their own.

    Args:
        prediction: What `predict` returns for real-valued targets, or draws of the targets
            `(draws, *targets.shape)`. The k-th smallest draw counts as the quantile k/(draws + 1), so that
            the intervals of few draws hold a further draw as often as those of many.
        targets: `(inputs, outputs)`, as they are in the data.
        levels: Of the intervals, between 0 and 1.
    """
    level = _checked_levels(levels)
    if isinstance(prediction, Mixture):
        return covered(mixture_cdf(*_members(prediction, targets), targets), jnp.asarray(level))
    _check_draws(prediction, targets, level)
    return _coverage_of_draws(prediction, targets, levels=tuple(level.tolist()))


def regression_summary(
    prediction: Any, targets: Any, *, levels: Any = LEVELS, scale: Any = 1.0
) -> RegressionSummary:
    """RMSE, NLL, CRPS, calibration error and coverage of a predictive.

    Args:
        prediction: What `predict` returns for real-valued targets, with or without `members=True`.
        targets: `(inputs, outputs)`, as they are in the data.
        levels: Of the intervals whose coverage is given, between 0 and 1.
        scale: Standard deviation that the targets were divided by, one number or one for each output, as in
            `data.load("uci/yacht").target_scale.std`: the metrics are then in the original units.
    """
    level = _checked_levels(levels)
    if not isinstance(prediction, Mixture):
        raise ValueError(
            "prediction: expected what predict(..., likelihood=...) returns for real-valued targets, got "
            f"{type(prediction).__name__}; draws alone have no density, but coverage and crps take them"
        )
    unit = _checked_scale(scale, np.shape(targets))
    means, stds = (unit * part for part in _members(prediction, targets))
    targets = unit * jnp.asarray(targets)
    cdf = mixture_cdf(means, stds, targets)
    return RegressionSummary(
        rmse=rmse(jnp.mean(means, axis=0), targets),
        nll=mixture_nll(means, stds, targets),
        crps=mixture_crps(means, stds, targets),
        calibration=quantile_calibration(cdf),
        levels=tuple(level.tolist()),
        coverage=covered(cdf, jnp.asarray(level)),
    )


def _members(prediction: Mixture, targets: Any) -> tuple[Members, Members]:
    """Means and standard deviations `(members, *targets.shape)`: one where the mixture was summed up."""
    shape, expected = np.shape(prediction.mean), np.shape(targets)
    if expected and shape == expected:
        return prediction.mean[None], prediction.std[None]
    if not expected or shape[1:] != expected:
        raise ValueError(
            f"targets: expected shape {shape if len(shape) < 3 else shape[1:]}, that of the predicted means, "
            f"got {expected}"
        )
    return prediction.mean, prediction.std


def _check_draws(draws: Any, targets: Any, levels: np.ndarray) -> None:
    finite("prediction", draws)
    finite_targets("targets", targets, (draws,))
    # The lowest draw is the quantile 1/(draws + 1): there is none further out.
    least = int(np.ceil(2.0 / (1.0 - levels.max()) - 1e-9)) - 1
    if (number := len(draws)) < least:
        raise ValueError(
            f"prediction: the interval of level {levels.max():g} needs at least {least} draws, got {number}"
        )


@partial(jax.jit, static_argnames="levels")
def _coverage_of_draws(
    draws: Members, targets: Targets, *, levels: tuple[float, ...]
) -> Float[Array, " levels"]:
    ordered = jnp.sort(draws, axis=0)
    ends = [[_quantile(ordered, 0.5 * (1.0 + side * level)) for side in (-1, 1)] for level in levels]
    return jnp.stack([jnp.mean((low <= targets) & (targets <= high)) for low, high in ends])


def _quantile(ordered: Members, probability: float) -> Targets:
    """Between the draws whose ranks enclose probability · (draws + 1)."""
    place = min(max(probability * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _checked_levels(levels: Any) -> np.ndarray:
    values = np.atleast_1d(np.asarray(levels, np.float64))
    if values.ndim != 1 or not values.size or not ((values > 0) & (values < 1)).all():
        raise ValueError(f"levels: expected numbers between 0 and 1, such as 0.9 for 90 %, got {levels}")
    return values


def _checked_scale(scale: Any, shape: tuple[int, ...]) -> Array:
    unit = jnp.asarray(scale, jnp.float32)
    if unit.shape not in ((), shape[-1:]) or not bool(jnp.all((unit > 0) & jnp.isfinite(unit))):
        raise ValueError(
            f"scale: expected one positive number, or one for each of {shape[1:]} outputs, got {scale}"
        )
    return unit
