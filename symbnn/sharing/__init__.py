"""Stochastic weight sharing: most weights of a Bayesian network drawn from a few Gaussians (2DGBNN).

    0  network = pretrain(key, target, recipe)                     or any trained network
    1  stochastic = train_stochastic(key, target, recipe, initial=network)
       outliers = find_outliers(means, stds, gradient_magnitudes(key, target, stochastic))
       clusters = cluster(key, stochastic.points(), outliers)
    2  refined = refine(points, clusters.mixture, clusters.labels)
       shared = share(stochastic.params, stochastic.layout, points, refined)
    3  shared = train_shared(key, target, shared, recipe).shared

M. Lin, X. Guan, G. Jing, G. Botterweck, A. Patane: Stochastic Weight Sharing for Bayesian Neural Networks
(AISTATS 2025). `SharedWeights` goes through every evaluator like any posterior; `save` writes it to a small
file."""

from symbnn.sharing.ellipses import CHI_SQUARE_95, Ellipses, find_ellipses, mahalanobis
from symbnn.sharing.files import load, save
from symbnn.sharing.gmm import Fitted, assign, fit, fit_minibatch
from symbnn.sharing.kmeans import kmeans
from symbnn.sharing.layout import Layout, flatten, insert, is_kernel, layout_of
from symbnn.sharing.merge import guards_of, merge
from symbnn.sharing.objective import Objective, member_counts
from symbnn.sharing.outliers import Outliers, find_outliers
from symbnn.sharing.posterior import SharedWeights
from symbnn.sharing.refine import Clusters, Refined, cluster, default_components, mixture_of, refine, share
from symbnn.sharing.size import Size, size_of
from symbnn.sharing.stochastic import Stochastic, gradient_magnitudes, pretrain, train_stochastic
from symbnn.sharing.sweeps import Mixture
from symbnn.sharing.training import TrainedSharing, component_gradients, train_shared

__all__ = [
    "CHI_SQUARE_95",
    "Clusters",
    "Ellipses",
    "Fitted",
    "Layout",
    "Mixture",
    "Objective",
    "Outliers",
    "Refined",
    "SharedWeights",
    "Size",
    "Stochastic",
    "TrainedSharing",
    "assign",
    "cluster",
    "component_gradients",
    "default_components",
    "find_ellipses",
    "find_outliers",
    "fit",
    "fit_minibatch",
    "flatten",
    "gradient_magnitudes",
    "guards_of",
    "insert",
    "is_kernel",
    "kmeans",
    "layout_of",
    "load",
    "mahalanobis",
    "member_counts",
    "merge",
    "mixture_of",
    "pretrain",
    "refine",
    "save",
    "share",
    "size_of",
    "train_shared",
    "train_stochastic",
]
