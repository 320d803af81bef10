"""Refinement of regressions and of mixtures: unbiased moments, known optima, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from symbnn import compact, density, evaluate, models, posteriors
from symbnn.compact.predictive_loss import moments, real_loss
from symbnn.models import Model
from symbnn.posteriors import DiagonalGaussian

KEY = jax.random.key(0)
LIKELIHOOD = density.heteroscedastic()
MODEL = models.mlp((3,), 2, hidden=(5,))
INPUTS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
DRAWS = jax.vmap(MODEL.init)(jax.random.split(jax.random.key(9), 6))
REFERENCE = evaluate.predict(MODEL.apply, DRAWS, INPUTS, likelihood=LIKELIHOOD)
SETTINGS = {"likelihood": LIKELIHOOD, "epochs": 40, "batch_size": 20, "num_draws": 4, "learning_rate": 0.05}


def start(seed=0, std=0.3):
    network = MODEL.init(jax.random.key(seed))
    return DiagonalGaussian(network, jax.tree.map(lambda leaf: jnp.full_like(leaf, std), network))


def linear(params, inputs):
    return inputs @ params["w"]


def one_weight(mean, std, outputs=1):
    """A network f(x) = x w with one row of weights, and the Gaussian over them."""
    law = DiagonalGaussian({"w": jnp.full((1, outputs), mean)}, {"w": jnp.full((1, outputs), std)})
    return Model(lambda key: law.mean, linear, None, None, (1,)), law  # type: ignore[arg-type]


def test_moments_of_few_draws_are_unbiased():
    """Three components, five draws each, averaged over many repetitions: the exact moments of the mixture."""
    weights, centres, spreads = (
        jnp.array([0.2, 0.5, 0.3]),
        jnp.array([-1.0, 0.5, 2.0]),
        jnp.array([0.5, 1, 2]),
    )
    noises = jnp.array([0.1, 0.4, 0.9])
    repetitions = 40_000
    noise = jax.random.normal(KEY, (3, 5, repetitions, 1))
    means = centres[:, None, None, None] + spreads[:, None, None, None] * noise
    found = moments(weights, means, jnp.broadcast_to(noises[:, None, None, None], means.shape))
    mean = weights @ centres
    variance = weights @ (noises + spreads**2 + (centres - mean) ** 2)
    np.testing.assert_allclose(found[0].mean(), mean, atol=0.02)
    np.testing.assert_allclose(found[1].mean(), variance, rtol=0.02)
    square = jnp.square(found[0] - 3.0) - found[2]
    np.testing.assert_allclose(square.mean(), (mean - 3.0) ** 2, rtol=0.02)


@pytest.mark.parametrize("loss", ["cross_entropy", "moments"])
def test_the_loss_is_least_at_the_reference_and_is_its_entropy_there(loss):
    """Draws that all agree with the reference: the cross-entropy is the Gaussian's own entropy."""
    mean, std = jnp.tile(jnp.array([[0.3], [-2.0]]), (500, 1)), jnp.tile(jnp.array([[0.5], [3.0]]), (500, 1))
    outputs = jnp.broadcast_to(jnp.concatenate([mean, jnp.log(std)], axis=-1), (1, 4, 1000, 2))
    reference = jnp.concatenate([mean, std], axis=-1)

    def value(moved):
        return float(real_loss(loss, LIKELIHOOD, KEY, jnp.ones(1), moved, reference).mean())

    entropy = np.mean(0.5 * np.log(2 * np.pi * np.e * np.square(std)))
    np.testing.assert_allclose(value(outputs), entropy, atol=0.005 if loss == "cross_entropy" else 1e-5)
    for part in ([0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]):
        assert value(outputs + jnp.array(part)) > value(outputs)


def test_only_the_cross_entropy_tells_noise_from_disagreement():
    """Two sharp networks at ±1 have the moments of N(0, 1), which they do not predict."""
    reference = jnp.array([[0.0, 1.0]])
    sharp = jnp.array([-1.0, 1.0])[:, None, None, None] * jnp.ones((2, 4, 1, 1))
    outputs = jnp.concatenate([sharp, jnp.full_like(sharp, np.log(0.01))], axis=-1)
    found = {
        loss: float(real_loss(loss, LIKELIHOOD, KEY, jnp.full(2, 0.5), outputs, reference)[0])
        for loss in ("cross_entropy", "moments")
    }
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(found["moments"], entropy, atol=1e-3)
    assert found["cross_entropy"] > entropy + 1


@pytest.mark.parametrize("loss", [pytest.param("cross_entropy", marks=pytest.mark.slow), "moments"])
def test_reaches_the_optimum_of_one_weight(loss):
    """f(x) = x w, w ~ N(m, s²), noise 0.5: the predictive is N(m x, s² x² + 0.25), so the loss is known."""
    model, law = one_weight(0.0, 1.0)
    inputs = np.linspace(-2, 2, 32, dtype=np.float32)[:, None]
    wanted_mean, wanted_std = 1.7 * inputs, np.sqrt(0.36 * inputs**2 + 0.25)
    reference = evaluate.Mixture(*map(jnp.asarray, (wanted_mean, wanted_std, wanted_std, wanted_std)))
    penalty = 0.05

    def objective(point):
        m, s = point
        variance = np.exp(2 * s) * inputs**2 + 0.25
        error = 0.5 * np.mean(np.log(variance) + (wanted_std**2 + (wanted_mean - m * inputs) ** 2) / variance)
        return error + penalty * ((m**2 + np.exp(2 * s) - 1) / 2 - s)

    expected = minimize(objective, [0.1, 0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    settings = {"epochs": 400, "batch_size": 32, "num_draws": 64, "learning_rate": 0.03, "penalty": penalty}
    likelihood = density.gaussian(0.5)
    fit = compact.refine(law, model, inputs, reference, KEY, likelihood=likelihood, loss=loss, **settings)
    np.testing.assert_allclose(fit.posterior.mean["w"][0, 0], expected[0], atol=0.03)
    np.testing.assert_allclose(jnp.log(fit.posterior.std["w"][0, 0]), expected[1], atol=0.05)


@pytest.mark.slow
def test_two_components_find_two_modes():
    """At x = 1 the reference has mean 0 and variance 1 + noise, which two narrow laws reach only apart."""
    model, narrow = one_weight(0.0, 0.05)
    apart = [DiagonalGaussian({"w": narrow.mean["w"] + side}, narrow.std) for side in (-0.3, 0.3)]
    inputs = np.ones((16, 1), np.float32)
    wide = jnp.full((16, 1), np.sqrt(1 + 0.01))
    reference = evaluate.Mixture(jnp.zeros((16, 1)), wide, wide, wide)
    settings = {"epochs": 400, "batch_size": 16, "num_draws": 8, "learning_rate": 0.3, "penalty": 1e-4}
    settings["loss"] = "moments"
    law = posteriors.mixture(apart)
    fit = compact.refine(law, model, inputs, reference, KEY, likelihood=density.gaussian(0.1), **settings)
    assert isinstance(fit.posterior, posteriors.GaussianMixture)
    drawn = fit.posterior.sample(KEY, 20_000)["w"]
    np.testing.assert_allclose(drawn.mean(), 0.0, atol=0.05)
    np.testing.assert_allclose(drawn.std(), 1.0, rtol=0.05)
    left, right = fit.posterior.components.mean["w"][:, 0, 0]
    assert left < -0.5 < 0.5 < right


@pytest.mark.slow
def test_predictions_come_nearer_to_the_reference():
    def loss(law):
        found = evaluate.predict(MODEL.apply, law, INPUTS, likelihood=LIKELIHOOD, key=KEY, num_samples=500)
        spread = jnp.square(REFERENCE.std) + jnp.square(REFERENCE.mean - found.mean)
        return float(jnp.mean(jnp.log(found.std) + 0.5 * spread / jnp.square(found.std)))

    least = float(jnp.mean(jnp.log(REFERENCE.std) + 0.5))
    both = posteriors.mixture([start(0), start(1)])
    fit = compact.refine(both, MODEL, INPUTS, REFERENCE, KEY, **SETTINGS)
    assert loss(fit.posterior) - least < 0.5 * (loss(both) - least)


def test_a_mixture_of_one_is_the_gaussian():
    alone = compact.refine(start(), MODEL, INPUTS, REFERENCE, KEY, **SETTINGS).posterior
    mixed = compact.refine(posteriors.mixture([start()]), MODEL, INPUTS, REFERENCE, KEY, **SETTINGS).posterior
    jax.tree.map(
        np.testing.assert_array_equal, mixed.components.mean, jax.tree.map(lambda a: a[None], alone.mean)
    )


@pytest.mark.slow
def test_a_wide_start_is_shrunk_and_comes_back_if_nothing_else_counts():
    """Where draws overflow the loss is infinite; shrunk it is not, and a large penalty restores the width."""
    wide, small = start(std=30.0), SETTINGS | {"learning_rate": 1e-3}
    with pytest.warns(RuntimeWarning, match="non-finite loss"):
        compact.refine(wide, MODEL, INPUTS, REFERENCE, KEY, **small)
    fit = compact.refine(wide, MODEL, INPUTS, REFERENCE, KEY, shrink=0.01, **small)
    assert fit.diagnostics["num_nonfinite"] == 0
    assert np.isfinite(fit.diagnostics["loss"]).all()
    heavy = SETTINGS | {"penalty": 100.0, "learning_rate": 0.1, "epochs": 200}
    back = compact.refine(start(), MODEL, INPUTS, REFERENCE, KEY, shrink=0.3, **heavy)
    np.testing.assert_allclose(back.diagnostics["std_ratio"], 1.0, atol=0.01)


@pytest.mark.slow
def test_classes_take_mixtures_too():
    model = models.mlp((3,), 4, hidden=(5,))
    probs = jax.nn.softmax(model.apply(model.init(jax.random.key(9)), INPUTS))
    laws = [
        DiagonalGaussian(network, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.3), network))
        for network in map(model.init, jax.random.split(KEY, 2))
    ]
    settings = {name: value for name, value in SETTINGS.items() if name != "likelihood"}
    mixed = posteriors.mixture(laws, [0.25, 0.75])
    fit = compact.refine(mixed, model, INPUTS, probs, KEY, **settings)
    np.testing.assert_allclose(fit.posterior.weights, [0.25, 0.75])
    before, after = (
        evaluate.total_variation(evaluate.predict(model.apply, law, INPUTS, key=KEY, num_samples=400), probs)
        for law in (mixed, fit.posterior)
    )
    assert after < 0.7 * before


def mixture_of(mean, std):
    return evaluate.Mixture(mean, std, std, std)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference_probs": REFERENCE.mean}, r"evaluate\.predict\(.*\) gives without members=True.*got \w+"),
        (
            {"reference_probs": mixture_of(REFERENCE.mean[:3], REFERENCE.std[:3])},
            r"shape \(40, 1\).*\(3, 1\)",
        ),
        ({"reference_probs": mixture_of(REFERENCE.mean, -REFERENCE.std)}, "positive, finite"),
        ({"reference_probs": mixture_of(REFERENCE.mean * jnp.nan, REFERENCE.std)}, "finite means"),
        ({"likelihood": None}, "give the likelihood that they were predicted with"),
        ({"likelihood": density.bernoulli()}, r"classes or real-valued targets, not those of bernoulli\(\)"),
        ({"num_draws": 1}, "num_draws must be a whole number of at least 2; got 1"),
        ({"loss": "squared"}, "cross_entropy"),
        ({"shrink": 0.0}, "shrink must be above 0 and at most 1; got 0.0"),
    ],
)
def test_bad_input_is_named(changes, message):
    arguments = {"reference_probs": REFERENCE} | SETTINGS | changes
    with pytest.raises(ValueError, match=message):
        compact.refine(start(), MODEL, INPUTS, key=KEY, **arguments)


def test_mixtures_of_other_laws_are_refused():
    factors = jax.tree.map(lambda leaf: leaf[None], start().std)
    mixed = posteriors.mixture([posteriors.LowRankPrecision(start().mean, start().std, factors)])
    with pytest.raises(ValueError, match="a mixture of such or an Empirical, not from GaussianMixture"):
        compact.refine(mixed, MODEL, INPUTS, REFERENCE, KEY, **SETTINGS)


def test_a_law_with_factors_is_refined_for_real_values_too():
    factors = jax.tree.map(lambda leaf: 0.1 * leaf[None], start().std)
    law = posteriors.LowRankGaussian(start().mean, factors, start().std)
    fit = compact.refine(law, MODEL, INPUTS, REFERENCE, KEY, **SETTINGS)
    assert isinstance(fit.posterior, posteriors.LowRankGaussian)
    assert fit.diagnostics["loss"][-1] < fit.diagnostics["loss"][0]
