"""Coverage and the summary of regression: closed forms, scipy's quantiles, simulations, real data."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.stats.mstats import mquantiles

from symbnn import data, density, evaluate, inference, models

RANDOM = np.random.default_rng(0)
LEVELS = (0.5, 0.8, 0.9, 0.95)
FOLDER = Path(os.environ.get("SYMBNN_DATA_DIR", "nowhere"))
needs_yacht = pytest.mark.skipif(
    not (FOLDER / "uci" / "yacht").exists(), reason="no uci/yacht under SYMBNN_DATA_DIR"
)


def gaussians(means, stds):
    """What `predict` returns for Gaussians with these moments."""
    means, stds = jnp.asarray(means, jnp.float32), jnp.asarray(stds, jnp.float32)
    return evaluate.Mixture(means, stds, stds, jnp.zeros_like(means))


def drawn_mixture(members, *shape):
    means = RANDOM.normal(size=(members, *shape))
    return gaussians(means, np.exp(0.3 * RANDOM.normal(size=means.shape)))


def four_errors(level, number):
    """Four standard errors of a share of that many independent targets."""
    return 4 * np.sqrt(level * (1 - level) / number)


def test_one_gaussian_has_its_closed_forms():
    mean, std = np.array([[0.5], [-1.0], [3.0]]), np.array([[2.0], [0.1], [1.0]])
    targets = np.float32([[1.0], [-1.3], [3.1]])
    found = evaluate.regression_summary(gaussians(mean, std), targets)
    z = (targets - mean) / std
    crps = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    low, high = (
        np.stack(end) for end in zip(*(stats.norm.interval(q, mean, std) for q in LEVELS), strict=True)
    )
    np.testing.assert_allclose(found.rmse, np.sqrt(np.mean((targets - mean) ** 2)), rtol=1e-6)
    np.testing.assert_allclose(found.nll, -stats.norm.logpdf(targets, mean, std).mean(), rtol=1e-6)
    np.testing.assert_allclose(found.crps, crps.mean(), rtol=1e-5)
    np.testing.assert_allclose(found.coverage, ((low <= targets) & (targets <= high)).mean((1, 2)), rtol=1e-6)
    assert found.levels == LEVELS


def test_intervals_of_a_mixture_are_between_its_quantiles():
    prediction, targets = drawn_mixture(5, 40, 1), np.float32(1.5 * RANDOM.normal(size=(40, 1)))

    def quantile(probability, row):
        law = [np.asarray(part[:, row, 0], np.float64) for part in prediction[:2]]
        return brentq(lambda y: stats.norm.cdf(y, *law).mean() - probability, -50, 50)

    expected = [
        np.mean([quantile((1 - q) / 2, n) <= targets[n, 0] <= quantile((1 + q) / 2, n) for n in range(40)])
        for q in LEVELS
    ]
    np.testing.assert_allclose(evaluate.coverage(prediction, targets), expected, atol=1e-6)
    assert 0 < expected[0] < expected[-1]


@pytest.mark.parametrize("members", [1, 6])
def test_a_calibrated_prediction_covers_what_it_promises(members):
    number = 20_000
    prediction = drawn_mixture(members, number, 1)
    chosen = RANDOM.integers(members, size=number), np.arange(number)
    noise = RANDOM.normal(size=number)
    targets = np.float32(prediction.mean[..., 0][chosen] + prediction.std[..., 0][chosen] * noise)[:, None]
    found = evaluate.regression_summary(prediction, targets)
    for level, share in zip(LEVELS, found.coverage, strict=True):
        assert abs(share - level) < four_errors(level, number)
    assert found.calibration < four_errors(0.5, number)
    # Half as wide as it should be, and the same call says so.
    narrow = evaluate.coverage(prediction._replace(std=0.5 * prediction.std), targets)
    assert np.all(narrow < np.array(LEVELS) - 0.05)


def test_intervals_of_draws_are_between_scipys_quantiles():
    draws, targets = np.float32(RANDOM.normal(size=(60, 30, 2))), np.float32(RANDOM.normal(size=(30, 2)))
    tails = [((1 - q) / 2, (1 + q) / 2) for q in LEVELS]
    ends = [np.quantile(draws, pair, axis=0, method="weibull") for pair in tails]
    expected = [np.mean((low <= targets) & (targets <= high)) for low, high in ends]
    np.testing.assert_allclose(evaluate.coverage(draws, targets), expected, atol=1e-6)
    flat = mquantiles(draws[:, :, 0], [0.05, 0.95], alphap=0, betap=0, axis=0)
    inside = np.mean((flat[0] <= targets[:, 0]) & (targets[:, 0] <= flat[1]))
    np.testing.assert_allclose(evaluate.coverage(draws[:, :, 0], targets[:, 0], levels=[0.9])[0], inside)


def test_few_draws_cover_as_much_as_they_promise():
    """39 draws: the 95 % interval is from the least to the greatest, which hold a 40th in 38 of 40 cases."""
    number = 20_000
    draws, targets = RANDOM.normal(size=(39, number, 1)), RANDOM.normal(size=(number, 1))
    shares = evaluate.coverage(np.float32(draws), np.float32(targets))
    for level, share in zip(LEVELS, shares, strict=True):
        assert abs(share - level) < four_errors(level, number)


def test_outputs_of_an_input_are_judged_together_by_density_and_one_by_one_by_intervals():
    prediction, targets = drawn_mixture(4, 9, 3), np.float32(RANDOM.normal(size=(9, 3)))
    found = evaluate.regression_summary(prediction, targets)
    means, stds = (np.asarray(part, np.float64) for part in prediction[:2])
    joint = np.prod(stats.norm.pdf(targets, means, stds), axis=-1).mean(0)
    np.testing.assert_allclose(found.nll, -np.log(joint).mean(), rtol=1e-5)
    each = [
        evaluate.regression_summary(gaussians(means[..., [k]], stds[..., [k]]), targets[:, [k]])
        for k in range(3)
    ]
    np.testing.assert_allclose(found.crps, np.mean([one.crps for one in each]), rtol=1e-5)
    np.testing.assert_allclose(found.coverage, np.mean([one.coverage for one in each], axis=0), atol=1e-6)
    np.testing.assert_allclose(found.rmse**2, np.mean([one.rmse**2 for one in each]), rtol=1e-5)


@pytest.mark.parametrize("likelihood", [density.gaussian(0.7), density.heteroscedastic()])
def test_what_predict_returns_is_judged_as_a_mixture_or_by_its_moments(likelihood):
    outputs = 2 if likelihood.name == "heteroscedastic()" else 1
    networks = {"kernel": jnp.asarray(0.3 * RANDOM.normal(size=(20, 3, outputs)), jnp.float32)}
    inputs, targets = np.float32(RANDOM.normal(size=(30, 3))), np.float32(RANDOM.normal(size=(30, 1)))

    def apply(params, inputs):
        return inputs @ params["kernel"]

    exact, moments = (
        evaluate.regression_summary(
            evaluate.predict(apply, networks, inputs, likelihood=likelihood, members=members), targets
        )
        for members in (True, False)
    )
    each = np.einsum("ni,mio->mno", inputs, np.asarray(networks["kernel"], np.float64))
    means, stds = each[..., :1], np.exp(each[..., 1:]) if outputs == 2 else np.full_like(each, 0.7)
    density_of_mixture = stats.norm.pdf(targets, means, stds).mean(0)
    np.testing.assert_allclose(exact.nll, -np.log(density_of_mixture).mean(), rtol=1e-5)
    law = stats.norm(means.mean(0), np.sqrt((stds**2).mean(0) + means.var(0)))
    np.testing.assert_allclose(moments.nll, -law.logpdf(targets).mean(), rtol=1e-5)
    np.testing.assert_allclose(moments.rmse, exact.rmse, rtol=1e-5)
    low, high = law.interval(0.8)
    np.testing.assert_allclose(moments.coverage[1], np.mean((low <= targets) & (targets <= high)), atol=1e-6)


def test_a_scale_gives_the_original_units():
    prediction, targets = drawn_mixture(3, 20, 2), np.float32(RANDOM.normal(size=(20, 2)))
    plain, scaled = (evaluate.regression_summary(prediction, targets, scale=unit) for unit in (1.0, 4.0))
    np.testing.assert_allclose([scaled.rmse, scaled.crps], [4 * plain.rmse, 4 * plain.crps], rtol=1e-5)
    np.testing.assert_allclose(scaled.nll, plain.nll + 2 * np.log(4), rtol=1e-5)
    np.testing.assert_array_equal(scaled.coverage, plain.coverage)
    each = evaluate.regression_summary(prediction, targets, scale=np.array([4.0, 1.0]))
    np.testing.assert_allclose(each.nll, plain.nll + np.log(4), rtol=1e-5)


@needs_yacht
def test_a_bayesian_linear_fit_of_real_data_has_its_closed_form():
    """Conjugate: weights N(0, 1), known noise; the predictive is Gaussian, which 400 draws must show."""
    dataset = data.load("uci/yacht")
    noise, (inputs, targets) = 0.6, dataset.train
    precision = np.eye(6) + inputs.T @ inputs / noise**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ inputs.T @ targets[:, 0] / noise**2
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, 400)
    test_inputs, test_targets = dataset.test
    prediction = evaluate.predict(
        lambda weights, inputs: inputs @ weights[:, None],
        jnp.asarray(draws, jnp.float32),
        test_inputs,
        likelihood=density.gaussian(noise),
        members=True,
    )
    found = evaluate.regression_summary(prediction, test_targets, scale=dataset.target_scale.std)
    unit = float(dataset.target_scale.std[0])
    law = stats.norm(
        unit * test_inputs @ mean,
        unit * np.sqrt(noise**2 + np.einsum("ni,ij,nj->n", test_inputs, covariance, test_inputs)),
    )
    truth = unit * test_targets[:, 0]
    np.testing.assert_allclose(found.rmse, np.sqrt(np.mean((law.mean() - truth) ** 2)), rtol=0.01)
    np.testing.assert_allclose(found.nll, -law.logpdf(truth).mean(), rtol=0.01)
    low, high = law.interval(0.9)
    np.testing.assert_allclose(found.coverage[2], np.mean((low <= truth) & (truth <= high)), atol=1e-6)


@needs_yacht
@pytest.mark.slow
def test_trained_networks_beat_the_constant_on_real_data():
    dataset = data.load("uci/yacht")
    model = models.mlp(dataset.input_shape, 2, hidden=(16,))
    likelihood = density.heteroscedastic()
    target = density.target(model, dataset.train, likelihood=likelihood)
    train = inference.ensemble(num_members=4, epochs=150, batch_size=32, optimizer=optax.adam(0.01))
    fit = train(jax.random.key(0), target)
    inputs, targets = dataset.test
    prediction = evaluate.predict(model.apply, fit.posterior, inputs, likelihood=likelihood, members=True)
    found = evaluate.regression_summary(prediction, targets)
    constant = evaluate.regression_summary(gaussians(np.zeros_like(targets), np.ones_like(targets)), targets)
    assert found.rmse < 0.3 * constant.rmse
    assert found.nll < constant.nll - 1
    assert found.crps < 0.3 * constant.crps
    # Wide enough intervals: at worst three binomial errors of 31 targets below their level.
    assert found.coverage[-1] > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 31)


ONE = gaussians(np.zeros((5, 1)), np.ones((5, 1)))
TARGETS = np.zeros((5, 1), np.float32)


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (lambda: evaluate.coverage(ONE, TARGETS[:, 0]), r"targets: expected shape \(5, 1\).*got \(5,\)"),
        (lambda: evaluate.coverage(ONE, np.zeros((5, 2), np.float32)), r"targets: .*\(5, 1\).*got \(5, 2\)"),
        (lambda: evaluate.coverage(ONE, TARGETS * np.nan), "targets: expected finite numbers"),
        (lambda: evaluate.coverage(ONE, np.float32(0)), r"targets: expected shape \(5, 1\)"),
        (
            lambda: evaluate.regression_summary(gaussians(TARGETS, TARGETS), TARGETS),
            "stds: expected positive",
        ),
        (
            lambda: evaluate.regression_summary(gaussians(TARGETS + np.inf, TARGETS + 1), TARGETS),
            "means: .*finite",
        ),
        (lambda: evaluate.regression_summary(np.zeros((9, 5, 1)), TARGETS), "draws alone have no density"),
        (lambda: evaluate.regression_summary(ONE, TARGETS, scale=-1), "scale: expected one positive number"),
        (
            lambda: evaluate.regression_summary(ONE, TARGETS, scale=[1, 2]),
            "scale: expected one positive number",
        ),
        (lambda: evaluate.coverage(ONE, TARGETS, levels=[90]), r"levels: .*such as 0.9 for 90 %, got \[90\]"),
        (lambda: evaluate.coverage(ONE, TARGETS, levels=[]), "levels: expected numbers between 0 and 1"),
        (
            lambda: evaluate.coverage(np.zeros((1, 5, 1), np.float32), TARGETS, levels=[0.5]),
            "the interval of level 0.5 needs at least 3 draws, got 1",
        ),
        (
            lambda: evaluate.coverage(np.zeros((38, 5, 1), np.float32), TARGETS),
            "level 0.95 needs at least 39 draws, got 38",
        ),
        (lambda: evaluate.coverage(np.zeros((9, 4, 1), np.float32), TARGETS), r"expected shape \(4, 1\)"),
        (lambda: evaluate.rmse(TARGETS, TARGETS[:, 0]), r"targets: expected shape \(5, 1\), got \(5,\)"),
        (
            lambda: evaluate.mixture_nll(TARGETS.T, TARGETS.T + 1, TARGETS),
            r"targets: expected shape \(5,\), got \(5, 1\)",
        ),
    ],
)
def test_what_cannot_be_judged_is_said_in_one_line(judge, message):
    with pytest.raises(ValueError, match=message) as refused:
        judge()
    assert "\n" not in str(refused.value)
