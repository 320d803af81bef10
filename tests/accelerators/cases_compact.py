"""Refinement, mixtures, merging; shared weights, stage by stage."""

import jax
import numpy as np

from symbnn import compact, density, evaluate, models, sharing
from symbnn.inference.training.recipe import Recipe
from tests.accelerators.cases import case
from tests.accelerators.cases_inference import KEY, MODEL, batch, target
from tests.sharing import shared as shared_weights

INPUTS = batch((4,)).inputs
SAMPLES = jax.vmap(MODEL.init)(jax.random.split(KEY, 8))
REFINING = {"epochs": 1, "batch_size": 8, "num_draws": 2, "progress": None}
PROBS = np.full((16, 3), 1 / 3, np.float32)
POINTS = np.abs(np.random.default_rng(0).normal(size=(300, 2))).astype(np.float32)


@case("refinement")
def refinement() -> None:
    compact.refine(compact.gaussian(SAMPLES), MODEL, INPUTS, PROBS, KEY, **REFINING)


@case("refinement of a mixture")
def refinement_of_a_mixture() -> None:
    compact.refine(compact.mixture(SAMPLES, np.arange(8) % 2), MODEL, INPUTS, PROBS, KEY, **REFINING)


@case("refinement of a regression")
def refinement_of_a_regression() -> None:
    model, likelihood = models.mlp((4,), 2, hidden=(5,)), density.heteroscedastic()
    samples = jax.vmap(model.init)(jax.random.split(KEY, 8))
    reference = evaluate.predict(model.apply, samples, INPUTS, likelihood=likelihood)
    compact.refine(
        compact.gaussian(samples), model, INPUTS, reference, KEY, likelihood=likelihood, **REFINING
    )


@case("mixtures", is_dry=False)
def mixtures() -> None:
    compact.mixture(SAMPLES, compact.k_means(KEY, SAMPLES, 2))


@case("merging", is_dry=False)
def merging() -> None:
    networks = [MODEL.init(jax.random.key(seed)) for seed in range(2)]
    compact.merge(MODEL, networks, inputs=INPUTS)


@case("sharing: training")
def sharing_training() -> None:
    problem, recipe = target(shared_weights.MODEL), Recipe(1, 8)
    network, _ = sharing.pretrain(KEY, problem, recipe, progress=None)
    stochastic = sharing.train_stochastic(KEY, problem, recipe, initial=network, progress=None)
    sharing.gradient_magnitudes(KEY, problem, stochastic, num_batches=1, batch_size=8)
    shared = shared_weights.make()
    sharing.train_shared(KEY, problem, shared, recipe, progress=None)
    sharing.component_gradients(KEY, problem, shared, num_batches=1, batch_size=8)


@case("sharing: clusters", is_dry=False)
def sharing_clusters() -> None:
    for dtype in ("float32", "float64"):
        start = sharing.kmeans(KEY, POINTS, 3, num_iterations=1)
        sharing.assign(POINTS, sharing.fit(POINTS, start, num_sweeps=1, dtype=dtype).mixture, dtype=dtype)
