"""Predictions by every road, and every metric."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from symbnn import compact, density, diagnostics, evaluate, models
from symbnn.evaluate import one_by_one, stream
from tests.accelerators.cases import case
from tests.accelerators.cases_inference import IMAGES, KEY, MODEL, batch

INPUTS, LABELS = batch((4,))
SAMPLES = jax.vmap(MODEL.init)(jax.random.split(KEY, 8))
PROBS = np.full((16, 3), 1 / 3, np.float32)
MEMBERS = np.full((4, 16, 3), 1 / 3, np.float32)
SCORES = np.linspace(0, 1, 16, dtype=np.float32)
MEANS, STDS, TARGETS = np.zeros((40, 16), np.float32), np.ones((40, 16), np.float32), np.ones(16, np.float32)
OF_CLASSES = (
    *(evaluate.accuracy, evaluate.nll, evaluate.brier, evaluate.ece, evaluate.mce, evaluate.adaptive_ece),
    *(
        evaluate.classwise_ece,
        evaluate.classwise_adaptive_ece,
        evaluate.reliability_curve,
        evaluate.risk_coverage_curve,
        evaluate.aurc,
    ),
    evaluate.fit_temperature,
)


def spread(samples: object) -> object:
    """Samples on all devices."""
    if len(jax.devices()) == 1:
        return samples
    mesh = Mesh(np.array(jax.devices()), ("samples",))
    return jax.device_put(samples, NamedSharding(mesh, PartitionSpec("samples")))


@case("predict", is_mapped=True)
def predict() -> None:
    samples = spread(SAMPLES)
    evaluate.predict(MODEL.apply, samples, INPUTS, block_samples=2, block_inputs=6)
    evaluate.predict(MODEL.apply, samples, INPUTS, block_samples=4, members=True)
    evaluate.predict_uncertainty(MODEL.apply, samples, INPUTS, block_samples=4)
    heteroscedastic = models.mlp((4,), 2, hidden=(5,))
    real = spread(jax.vmap(heteroscedastic.init)(jax.random.split(KEY, 8)))
    evaluate.predict(heteroscedastic.apply, real, INPUTS, likelihood=density.heteroscedastic())


@case("predict by convolutional networks", is_mapped=True)
def predict_images() -> None:
    samples = spread(jax.vmap(IMAGES.init)(jax.random.split(KEY, 8)))
    evaluate.predict(IMAGES.apply, samples, batch((18, 18, 1)).inputs, block_samples=4)


@case("predict one by one", is_mapped=True)
def predict_one_by_one() -> None:
    """What a CPU does with convolutional networks: lowered as well, as it is asked for by name here."""
    samples = spread(jax.vmap(IMAGES.init)(jax.random.split(KEY, 8)))
    inputs = batch((18, 18, 1)).inputs
    placed = stream.sample_axis(samples)
    block = next(stream.blocks(samples, 4))
    summarise = lambda outputs, weights: jnp.tensordot(weights, outputs, 1)  # noqa: E731
    one_by_one.summaries(IMAGES.apply, summarise, 8, placed, *block, stream.replicate(placed, inputs))
    network = jax.tree.map(lambda leaf: leaf[None], IMAGES.init(KEY))
    one_by_one.summaries(IMAGES.apply, summarise, 8, None, network, np.ones(1), jnp.asarray(inputs))


@case("predict by posteriors")
def predict_by_posteriors() -> None:
    posterior = compact.gaussian(SAMPLES)
    evaluate.predict(MODEL.apply, posterior, INPUTS, key=KEY, num_samples=4)
    evaluate.linearised(MODEL.apply, posterior, INPUTS)
    for link in ("probit", "bridge"):
        evaluate.predict_linearised(MODEL.apply, posterior, INPUTS, link=link)
    evaluate.predict_linearised(MODEL.apply, posterior, INPUTS, link="monte_carlo", key=KEY, num_samples=4)


@case("metrics of classes")
def classes() -> None:
    with evaluate.unchecked():
        for metric in OF_CLASSES:
            metric(PROBS, LABELS)
        for metric in (evaluate.agreement, evaluate.total_variation):
            metric(PROBS, PROBS)
        for metric in (evaluate.mutual_information_score, evaluate.mutual_information, evaluate.disagreement):
            metric(MEMBERS)
        for metric in (evaluate.auroc, evaluate.aupr, evaluate.fpr_at):
            metric(SCORES, SCORES)
        for score in (evaluate.max_probability_score, evaluate.entropy_score, evaluate.energy_score):
            score(PROBS)
        evaluate.Metrics.empty(3).update(PROBS, LABELS, reference=PROBS)


@case("metrics of regressions")
def regressions() -> None:
    with evaluate.unchecked():
        evaluate.rmse(TARGETS, TARGETS)
        for metric in (evaluate.mixture_nll, evaluate.mixture_crps, evaluate.mixture_cdf):
            metric(MEANS, STDS, TARGETS)
        evaluate.crps(MEANS, TARGETS)
        evaluate.quantile_calibration(SCORES)
        evaluate.coverage(MEANS, TARGETS)


@case("checks of what metrics are given", is_dry=False)
def checks() -> None:
    evaluate.accuracy(PROBS, LABELS)
    # What is said of rows that are no probabilities is computed, too.
    with contextlib.suppress(ValueError):
        evaluate.accuracy(2.0 * PROBS, LABELS)
    evaluate.auroc(SCORES, SCORES)
    evaluate.rmse(TARGETS, TARGETS)


@case("distances of posteriors")
def distances() -> None:
    posterior = compact.gaussian(SAMPLES)
    evaluate.kl(posterior, posterior)
    evaluate.wasserstein(posterior, posterior)
    evaluate.mmd(SAMPLES, SAMPLES, key=KEY, num_permutations=4, num_bootstrap=4, block=8)


@case("barrier")
def barrier() -> None:
    evaluate.barrier(MODEL.apply, MODEL.init(KEY), MODEL.init(jax.random.key(1)), batch((4,)), points=3)


@case("diagnostics")
def convergence() -> None:
    draws = np.random.default_rng(0).normal(size=(4, 8, 3)).astype(np.float32)
    for statistic in (diagnostics.split_rhat, diagnostics.rank_rhat):
        statistic(draws)
    for statistic in (diagnostics.bulk_ess, diagnostics.tail_ess):
        statistic(draws)
    many = jax.vmap(MODEL.init)(jax.random.split(KEY, 16))
    diagnostics.function_space(MODEL.apply, many, INPUTS, num_chains=2)
    diagnostics.weight_space(many, num_chains=2)
    diagnostics.relabelling_control(MODEL.spec, many, KEY, num_chains=2)
    diagnostics.exchangeability(MODEL.spec, many, group=MODEL.spec.groups[0].name)
