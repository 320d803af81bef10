"""The linearised predictive: exact for linear networks and every Gaussian, a limit for all others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate, special, stats

from symbnn import density, evaluate, inference, models, posteriors

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(7, 2)).astype(np.float32)


def draw(*shape, scale=1.0):
    return jnp.asarray(scale * RANDOM.normal(size=shape), jnp.float32)


MEAN = {"bias": draw(3), "kernel": draw(2, 3)}
STD = {"bias": 0.3 + jnp.abs(draw(3)), "kernel": 0.3 + jnp.abs(draw(2, 3))}
FACTORS = {"bias": draw(4, 3), "kernel": draw(4, 2, 3)}
GAUSSIANS = {
    "diagonal": posteriors.DiagonalGaussian(MEAN, STD),
    "low rank": posteriors.LowRankGaussian(MEAN, FACTORS, STD),
    "factors alone": posteriors.LowRankGaussian(MEAN, FACTORS),
    "precision": posteriors.LowRankPrecision(MEAN, STD, FACTORS),
    "kronecker": posteriors.KroneckerGaussian(
        MEAN,
        {
            "bias": posteriors.Block(jnp.ones((1, 1)), jnp.eye(3)[::-1], STD["bias"][None], ()),
            "kernel": posteriors.Block(jnp.eye(2)[::-1], jnp.eye(3), STD["kernel"], (0,)),
        },
    ),
    "fixed": posteriors.FixedLeaves(
        MEAN, posteriors.DiagonalGaussian({"kernel": MEAN["kernel"]}, {"kernel": STD["kernel"]})
    ),
}


def linear(params, x):
    return x @ params["kernel"] + params["bias"]


def tiny(scale):
    """A network that is not linear, with weights that hardly vary."""
    model = models.mlp((2,), 3, hidden=(4,), activation="tanh")
    mean = model.init(KEY)
    return model, posteriors.DiagonalGaussian(
        mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, scale), mean)
    )


@pytest.mark.parametrize("name", GAUSSIANS)
def test_outputs_of_a_linear_network_have_their_own_law(name):
    """J Σ Jᵀ with Σ from 100,000 draws: within five of their standard errors."""
    posterior = GAUSSIANS[name]
    found = evaluate.linearised(linear, posterior, INPUTS)
    np.testing.assert_allclose(found.mean, linear(MEAN, INPUTS), rtol=1e-5, atol=1e-6)
    num = 100_000
    outputs = np.asarray(jax.vmap(linear, (0, None))(posterior.sample(KEY, num), INPUTS), np.float64)
    deviations = outputs - np.asarray(found.mean)
    drawn = np.einsum("snc,snd->ncd", deviations, deviations) / num
    scale = np.sqrt(np.einsum("ncc->nc", np.asarray(found.covariance)))
    error = (drawn - found.covariance) / (scale[:, :, None] * scale[:, None, :])
    assert np.max(np.abs(error)) < 5 * np.sqrt(2 / num)


def test_regression_has_the_closed_form():
    """Mean x μ, doubt √(xᵀ Σ x), and the noise beside it."""
    likelihood = density.gaussian(0.3)
    found = evaluate.predict_linearised(linear, GAUSSIANS["diagonal"], INPUTS, likelihood=likelihood)
    epistemic = np.sqrt(INPUTS**2 @ STD["kernel"] ** 2 + STD["bias"] ** 2)
    np.testing.assert_allclose(found.mean, linear(MEAN, INPUTS), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.epistemic, epistemic, rtol=1e-5)
    np.testing.assert_allclose(found.aleatoric, 0.3, rtol=1e-6)
    np.testing.assert_allclose(found.std, np.hypot(epistemic, 0.3), rtol=1e-5)


def test_spreads_that_the_network_gives_have_their_expectation():
    """The log-spread is Gaussian too: E[exp(2 s)], against the mixture of drawn networks."""
    mean = {"kernel": draw(2, 2, scale=0.3)}
    posterior = posteriors.DiagonalGaussian(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.2), mean))
    apply, likelihood = (lambda params, x: x @ params["kernel"]), density.heteroscedastic()
    found = evaluate.predict_linearised(apply, posterior, INPUTS, likelihood=likelihood)
    drawn = evaluate.predict(
        apply, posterior, INPUTS, likelihood=likelihood, key=KEY, num_samples=20_000, block_samples=20_000
    )
    for name in ("aleatoric", "epistemic", "std"):
        np.testing.assert_allclose(getattr(found, name), getattr(drawn, name), rtol=0.03)


def test_links_of_one_logit_against_quadrature():
    """E[sigmoid(f)]: draws are exact within their error, the probit is good to a percent."""
    posterior = posteriors.DiagonalGaussian({"w": jnp.array([[0.7]])}, {"w": jnp.array([[1.2]])})
    apply, inputs = (lambda params, x: x @ params["w"]), np.array([[1.0], [-2.0], [0.3]], np.float32)
    exact = [
        integrate.quad(lambda f, x=x: special.expit(f) * stats.norm(0.7 * x, 1.2 * abs(x)).pdf(f), -30, 30)[0]
        for x in inputs[:, 0].astype(float)
    ]
    given = functools.partial(
        evaluate.predict_linearised, apply, posterior, inputs, likelihood=density.bernoulli()
    )
    np.testing.assert_allclose(given()[:, 0], exact, atol=0.01)
    drawn = given(link="monte_carlo", key=KEY, num_samples=40_000)
    np.testing.assert_allclose(drawn[:, 0], exact, atol=5 * 0.5 / np.sqrt(40_000))


@pytest.mark.parametrize("link", ["probit", "bridge", "monte_carlo"])
def test_links_are_probabilities_and_blocks_do_not_matter(link):
    more = {"key": KEY, "num_samples": 500} if link == "monte_carlo" else {}
    whole, cut = (
        evaluate.predict_linearised(
            linear, GAUSSIANS["low rank"], INPUTS, link=link, block_inputs=size, **more
        )
        for size in (None, 3)
    )
    np.testing.assert_allclose(np.sum(whole, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(cut, whole, rtol=1e-5, atol=1e-6)


def test_a_narrow_gaussian_predicts_as_its_networks_do():
    model, posterior = tiny(1e-2)
    outputs = evaluate.linearised(model.apply, posterior, INPUTS)
    samples = posterior.sample(KEY, 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(model.apply, (0, None)))(samples, INPUTS), np.float64)
    np.testing.assert_allclose(np.var(drawn, axis=0), np.einsum("ncc->nc", outputs.covariance), rtol=0.06)
    probs = evaluate.predict(model.apply, samples, INPUTS)
    np.testing.assert_allclose(evaluate.predict_linearised(model.apply, posterior, INPUTS), probs, atol=1e-3)


def test_a_mixture_mixes_the_predictions_of_its_components():
    first, second = GAUSSIANS["diagonal"], posteriors.DiagonalGaussian(jax.tree.map(jnp.negative, MEAN), STD)
    mixture = posteriors.mixture([first, second], weights=[3.0, 1.0])
    predict = functools.partial(evaluate.predict_linearised, linear, inputs=INPUTS)
    expected = 0.75 * predict(first) + 0.25 * predict(second)
    np.testing.assert_allclose(predict(mixture), expected, rtol=1e-5)
    real = functools.partial(predict, likelihood=density.gaussian(0.3))
    found, one, other = real(mixture), real(first), real(second)
    mean = 0.75 * one.mean + 0.25 * other.mean
    second_moment = 0.75 * (one.std**2 + one.mean**2) + 0.25 * (other.std**2 + other.mean**2)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.std**2, second_moment - mean**2, rtol=1e-4)


def test_a_fit_will_do_and_its_last_layer_is_exact():
    model = models.mlp((2,), 3, hidden=(4,), activation="tanh")
    target = density.target(model, density.Batch(INPUTS, np.arange(7) % 3))
    fit = inference.laplace(structure="full", leaves="last_layer", pretrain_epochs=0)(KEY, target)
    found = evaluate.linearised(model.apply, fit, INPUTS).covariance
    mean = fit.posterior.mean
    hidden = np.tanh(INPUTS @ mean["hidden"]["kernel"] + mean["hidden"]["bias"])
    rows = np.asarray(jax.vmap(lambda factor: ravel_pytree(factor)[0])(fit.posterior.free.factors))
    features = np.concatenate([np.ones((7, 1)), hidden], axis=1)
    jacobian = np.stack([np.kron(feature, np.eye(3)) for feature in features])
    np.testing.assert_allclose(
        found, jacobian @ (rows.T @ rows) @ jacobian.transpose(0, 2, 1), rtol=1e-3, atol=1e-5
    )


def test_the_same_shapes_compile_once():
    traces = []

    def apply(params, x):
        traces.append(1)
        return linear(params, x)

    first = evaluate.predict_linearised(apply, GAUSSIANS["diagonal"], INPUTS, block_inputs=4)
    count = len(traces)
    other = posteriors.DiagonalGaussian(jax.tree.map(jnp.negative, MEAN), STD)
    second = evaluate.predict_linearised(apply, other, INPUTS, block_inputs=4)
    assert len(traces) == count
    assert np.max(np.abs(first - second)) > 0.01


@pytest.mark.parametrize(
    ("posterior", "settings", "message"),
    [
        (posteriors.Empirical({"w": draw(3, 2)}, num_chains=1), {}, "got Empirical: average its networks"),
        (GAUSSIANS["diagonal"], {"link": "probits"}, "did you mean 'probit'"),
        (GAUSSIANS["diagonal"], {"link": "monte_carlo"}, "which needs both"),
        (GAUSSIANS["diagonal"], {"key": KEY}, "belong to link='monte_carlo'"),
        (GAUSSIANS["diagonal"], {"link": "monte_carlo", "key": KEY, "num_samples": 0}, "positive integer"),
        (GAUSSIANS["diagonal"], {"link": "bridge", "likelihood": density.bernoulli()}, "is for class labels"),
        (GAUSSIANS["diagonal"], {"block_inputs": 0}, "block_inputs"),
    ],
)
def test_what_does_not_go_together_is_refused(posterior, settings, message):
    with pytest.raises(ValueError, match=message):
        evaluate.predict_linearised(linear, posterior, INPUTS, **settings)


def test_outputs_of_a_mixture_are_refused():
    with pytest.raises(ValueError, match="outputs of a mixture are not Gaussian"):
        evaluate.linearised(linear, posteriors.mixture([GAUSSIANS["diagonal"]] * 2), INPUTS)


@pytest.mark.parametrize("link", ["probit", "bridge"])
def test_outputs_that_are_known_are_their_softmax(link):
    """No bias, and an input of zeros beside another: no weight has a part in its outputs."""
    weights = {"kernel": draw(4, 3)}
    law = posteriors.DiagonalGaussian(weights, jax.tree.map(jnp.ones_like, weights))
    inputs = jnp.stack([jnp.zeros(4), jnp.ones(4)])
    found = evaluate.predict_linearised(lambda p, x: x @ p["kernel"], law, inputs, link=link)
    np.testing.assert_allclose(found[0], 1 / 3, rtol=1e-6)
    assert np.isfinite(found).all()
