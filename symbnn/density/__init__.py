"""Likelihood and prior make a target."""

from symbnn.density.likelihoods import Likelihood, bernoulli, categorical, gaussian, heteroscedastic
from symbnn.density.noise import learn_noise
from symbnn.density.parts import LogDensity, tempered
from symbnn.density.priors import Prior, gaussian_prior, laplace_prior
from symbnn.density.target import (
    Batch,
    Target,
    has_batch_statistics,
    refuse_batch_statistics,
    require_network,
    target,
)
from symbnn.tree import draw_like

__all__ = [
    "Batch",
    "Likelihood",
    "LogDensity",
    "Prior",
    "Target",
    "bernoulli",
    "categorical",
    "draw_like",
    "gaussian",
    "gaussian_prior",
    "has_batch_statistics",
    "heteroscedastic",
    "laplace_prior",
    "learn_noise",
    "refuse_batch_statistics",
    "require_network",
    "target",
    "tempered",
]
