"""The stages of weight sharing, each a function of what the stages before it returned."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import numpy as np

from configs.weight_sharing import WeightSharing
from experiments.common import methods, published
from experiments.common.problem import Problem, load
from experiments.harness.progress import SHOWN
from experiments.weight_sharing.augmentation import Crop, augmented
from experiments.weight_sharing.imports import import_weights
from symbnn import keys, sharing, tree
from symbnn.io import TrainingStore
from symbnn.sharing import Clusters, Layout, Refined, SharedWeights, Stochastic
from symbnn.types import Params


def load_problem(config: WeightSharing, seed: int) -> Problem:
    """The problem of a config and one of its seeds."""
    network, judging = config.model, config.judging
    problem = load(
        config,
        network.name,
        hidden=network.hidden,
        width=network.width,
        prior_scale=config.pretraining.prior_std,
        num_held_out=judging.holdout,
        scale=published.SCALE if config.pretraining.published else None,
        seed=seed,
    )
    if judging.holdout and judging.holdout_crop is not None:
        harder = Crop(judging.holdout_crop)(keys.named(problem.key, "crop"), problem.inputs)
        problem = dataclasses.replace(problem, inputs=harder)
    return problem


def after_stage_0(problem: Problem) -> Problem:
    """The problem of the later stages: they leave running statistics alone if the config says so."""
    return problem.frozen() if problem.config.model.statistics == "frozen" else problem


def kernels(problem: Problem) -> Callable[[str], bool]:
    """Which leaves are shared; a network of another library may call its kernels what it likes."""
    if not problem.is_own:
        return sharing.is_kernel
    leaves = tree.named_leaves(problem.shapes)
    return lambda name: len(leaves[name].shape) > 1


def pretrain(problem: Problem, repeat: int, checkpoint: TrainingStore) -> dict[str, Any]:
    """Stage 0: the deterministic network, trained or imported. Trainings go on from their `checkpoint`."""
    settings = problem.config.pretraining
    if settings.published:
        return {"params": read_published(problem)[repeat], "losses": np.zeros(0, np.float32)}
    if settings.weights is not None:
        layers = None if problem.is_own else problem.network
        params = import_weights(problem.model, layers, settings.weights)
        return {"params": params, "losses": np.zeros(0, np.float32)}
    params, losses = sharing.pretrain(
        keys.named(problem.key, "pretrain"),
        problem.target,
        methods.recipe(problem, settings.epochs, settings.learning_rate, settings.optimizer),
        wrap=partial(augmented, problem),
        progress=SHOWN,
        checkpoint=checkpoint,
    )
    return {"params": params, "losses": losses}


def read_published(problem: Problem) -> list[Params]:
    """All published networks of the config."""
    directory, names = problem.config.data.directory, problem.config.pretraining.published
    return [published.read(problem.model, directory, name, problem.network) for name in names]


def train_stochastic(
    problem: Problem, pretrained: dict[str, Any], checkpoint: TrainingStore
) -> dict[str, Any]:
    """Stage 1: standard deviations, and the mean absolute gradient of every weight."""
    settings = problem.config.stochastic
    found = _stochastic(problem, pretrained, settings.kl_weight, "stochastic", checkpoint)
    gradients = sharing.gradient_magnitudes(
        keys.named(problem.key, "gradients"),
        problem.target,
        found,
        num_batches=problem.config.clustering.gradient_batches,
        batch_size=problem.config.pretraining.batch_size,
    )
    return {"network": found, "gradients": gradients}


def train_mean_field(problem: Problem, pretrained: dict[str, Any], checkpoint: TrainingStore) -> Stochastic:
    """Plain mean-field VI for as long as both stochastic stages together: full KL, nothing shared."""
    extra = problem.config.training.epochs
    return _stochastic(problem, pretrained, 1.0, "mean field", checkpoint, extra=extra)


def _stochastic(
    problem: Problem,
    pretrained: dict[str, Any],
    kl_weight: float,
    name: str,
    checkpoint: TrainingStore,
    extra: int = 0,
) -> Stochastic:
    settings = problem.config.stochastic
    return sharing.train_stochastic(
        keys.named(problem.key, name),
        problem.target,
        methods.recipe(problem, settings.epochs + extra, settings.learning_rate),
        initial=pretrained["params"],
        initial_std=settings.initial_std,
        scale_map=settings.scale_map,
        scale_speed=settings.scale_speed,
        kl_weight=kl_weight,
        prior_std=settings.prior_std,
        select=kernels(problem),
        wrap=partial(augmented, problem),
        progress=SHOWN,
        checkpoint=checkpoint,
    )


def cluster(problem: Problem, config: WeightSharing, stochastic: dict[str, Any]) -> Clusters:
    """Stage 1b: outliers and mixture."""
    settings = config.clustering
    points = stochastic["network"].points()
    outliers = sharing.find_outliers(
        points[:, 0],
        points[:, 1],
        np.asarray(stochastic["gradients"]),
        magnitude=settings.magnitude,
        gradient_share=settings.gradient_share,
        # An infinite magnitude says that none are wanted.
        required=math.isfinite(settings.magnitude),
    )
    return sharing.cluster(
        keys.named(problem.key, "gmm"),
        points,
        outliers,
        num_components=settings.num_components,
        smallest_cluster=settings.smallest_cluster,
        num_sweeps=settings.num_sweeps,
        minibatch=settings.minibatch,
    )


def refine(
    problem: Problem, config: WeightSharing, stochastic: dict[str, Any], clusters: Clusters
) -> Refined:
    """Stage 2: merging and ellipse weights."""
    found = stochastic["network"]
    points, mixture, labels = found.points(), clusters.mixture, clusters.labels
    settings, gradients = asdict(config.refining), None
    if config.refining.merging:
        as_they_are = settings | {"merging": False, "ellipses": False}
        plain = sharing.refine(points, mixture, labels, **as_they_are)
        before = _share(config, found.params, found.layout, points, plain)
        gradients = _component_gradients(problem, before, "refine")
    return sharing.refine(points, mixture, labels, gradients=gradients, **settings)


def shared_of(config: WeightSharing, stochastic: dict[str, Any], refined: Refined) -> SharedWeights:
    """The posterior before its training."""
    found = stochastic["network"]
    return _share(config, found.params, found.layout, found.points(), refined)


def train(
    problem: Problem,
    config: WeightSharing,
    pretrained: dict[str, Any],
    stochastic: dict[str, Any],
    shared: SharedWeights,
    checkpoint: Callable[[str], TrainingStore],
) -> dict[str, Any]:
    """Stage 3, merged again on the way if the config says so; every part has its own checkpoint."""
    settings = config.training
    block = settings.merge_every or settings.epochs
    points = stochastic["network"].points()
    losses = []
    for done in range(0, settings.epochs, block):
        if done:
            shared = _merged_again(problem, config, points, shared)
        found = sharing.train_shared(
            jax.random.fold_in(keys.named(problem.key, "train"), done),
            problem.target,
            shared,
            methods.recipe(problem, min(block, settings.epochs - done), settings.learning_rate),
            objective=sharing.Objective(
                settings.kl_weight,
                settings.multiplicity,
                settings.prior,
                settings.prior_std,
                settings.divergence,
            ),
            deterministic=np.asarray(sharing.flatten(shared.layout, pretrained["params"])),
            scale_speed=settings.scale_speed,
            train_fixed=settings.train_fixed,
            wrap=partial(augmented, problem),
            progress=SHOWN,
            checkpoint=checkpoint(f"epoch{done}"),
        )
        shared = found.shared
        losses.append(np.asarray(found.losses))
    return {"shared": shared, "losses": np.concatenate(losses)}


def _share(
    config: WeightSharing, params: Params, layout: Layout, points: np.ndarray, refined: Refined
) -> SharedWeights:
    settings = config.training
    return sharing.share(
        params,
        layout,
        points,
        refined,
        sampling=settings.sampling,
        noise=settings.noise,
        blending=settings.blending,
    )


def _component_gradients(problem: Problem, shared: SharedWeights, name: str) -> np.ndarray:
    return sharing.component_gradients(
        keys.named(problem.key, name),
        problem.target,
        shared,
        num_batches=problem.config.clustering.gradient_batches,
        batch_size=problem.config.pretraining.batch_size,
    )


def _merged_again(
    problem: Problem, config: WeightSharing, points: np.ndarray, shared: SharedWeights
) -> SharedWeights:
    """Trained components merged, ellipse weights found anew; outliers keep what they learnt."""
    points, labels = points.copy(), np.asarray(shared.labels).astype(np.int32)
    own = np.asarray(shared.outlier_indices)
    points[own] = np.stack([shared.outlier_means, shared.outlier_stds], axis=1)
    labels[own] = -1
    mixture = sharing.mixture_of(shared, sharing.member_counts(shared))
    gradients = _component_gradients(problem, shared, "merge again")
    refined = sharing.refine(points, mixture, labels, gradients=gradients, **asdict(config.refining))
    return _share(config, shared.fixed, shared.layout, points, refined)
