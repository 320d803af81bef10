"""Things one can sample networks from."""

from symbnn.posteriors.base import Gaussian, Posterior
from symbnn.posteriors.dropped import DroppedUnits, Reading, Units
from symbnn.posteriors.empirical import Empirical
from symbnn.posteriors.gaussian import DiagonalGaussian, LowRankGaussian, LowRankPrecision
from symbnn.posteriors.kronecker import Block, KroneckerGaussian
from symbnn.posteriors.local import local_reparametrisation
from symbnn.posteriors.mixture import GaussianMixture, mixture
from symbnn.posteriors.partial import FixedLeaves

__all__ = [
    "Block",
    "DiagonalGaussian",
    "DroppedUnits",
    "Empirical",
    "FixedLeaves",
    "Gaussian",
    "GaussianMixture",
    "KroneckerGaussian",
    "LowRankGaussian",
    "LowRankPrecision",
    "Posterior",
    "Reading",
    "Units",
    "local_reparametrisation",
    "mixture",
]
