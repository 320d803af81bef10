"""A table of rows as a problem of classes: its predictive, told to bins of the standardised target.

Total variation is then measured, and laws are refined, as for images. HMC samples the network with its own
likelihood: a mean and a standard deviation for every row.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from configs.rate_distortion import RateDistortion
from experiments.common import regression
from experiments.common.problem import Problem, perceptron
from symbnn import density, models
from symbnn.types import Params

LIKELIHOOD = density.heteroscedastic("softplus")
REACH = 3.5
"""Bins of one width lie within so many standard deviations of the target; the two outermost are open."""
LEAST_MASS = 1e-8
"""Added to every bin, so that its logarithm has a gradient far from the mean."""


def load(config: RateDistortion) -> Problem:
    """The problem of images or, where the data are a table, of rows."""
    scale = config.inference.prior_scale
    if not config.data.name.startswith("uci/"):
        return perceptron(config, prior_scale=scale)
    return regression.load(
        config,
        config.data.name,
        hidden=config.model.hidden,
        activation=config.model.activation,
        likelihood=LIKELIHOOD,
        prior_scale=scale,
    )


def as_judged(problem: Problem) -> Problem:
    """The problem whose network gives logits: of classes, or of bins of a real target."""
    if problem.target.likelihood.has_labels:
        return problem
    return dataclasses.replace(problem, model=binned(problem.model, problem.config.num_bins))


def binned(model: models.Model, num_bins: int) -> models.Model:
    """The network with logarithms of the masses of the bins as outputs."""
    edges = jnp.linspace(-REACH, REACH, num_bins - 1)

    def apply(params: Params, inputs: Any) -> jax.Array:
        outputs = model.apply(params, inputs)
        assert LIKELIHOOD.spread is not None
        below = norm.cdf(edges, LIKELIHOOD.predictive(outputs), LIKELIHOOD.spread(outputs))
        ends = jnp.zeros((*below.shape[:-1], 1), below.dtype)
        masses = jnp.diff(jnp.concatenate([ends, below, ends + 1], axis=-1), axis=-1)
        return jnp.log(masses + LEAST_MASS)

    return model._replace(apply=apply, train=None)
