"""Local reparametrisation: the law of the outputs is that of drawn weights, whatever the network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import models
from symbnn.posteriors import DiagonalGaussian, local_reparametrisation

NUM_DRAWS = 20_000


def affine(params, x):
    return x @ params["kernel"] + params["bias"]


def shared(params, x):
    """The same matrix twice: its two uses are not independent."""
    return (x @ params["kernel"]) @ params["kernel"] + params["bias"]


def positive(params, x):
    """A weight behind a nonlinearity is no Gaussian any more."""
    return x @ jax.nn.softplus(params["kernel"]) + params["bias"]


def layered(params, x):
    """Bodies of jit and remat are read; a scaled, transposed, shifted weight is still Gaussian."""
    hidden = jax.checkpoint(lambda w: jnp.tanh(x @ (2.0 * w.T - 0.5)))(params["kernel"])
    return jax.jit(jnp.add)(hidden[:, ::-1] / 3.0, -params["bias"])


def chained(params, x):
    """No nonlinearity between two products: the numbers of the first stay together in the second."""
    return (x @ params["kernel"] + params["bias"]) @ jnp.array(
        [[1.0, 1.0, 0.0], [1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]
    )


def params_of(size: int = 3):
    random = np.random.default_rng(0)
    mean = {"kernel": random.normal(size=(size, size)), "bias": random.normal(size=size)}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), mean)


def spread(mean, seed: int = 1):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.uniform(0.1, 0.5, leaf.shape), jnp.float32), mean)


INPUTS = jnp.asarray(np.random.default_rng(2).normal(size=(2, 3)), jnp.float32)


def local_draws(apply, mean, std, inputs, num=NUM_DRAWS) -> np.ndarray:
    """(draws, inputs, outputs)."""
    run = local_reparametrisation(apply)
    keys = jax.random.split(jax.random.key(3), num)
    return np.asarray(jax.jit(jax.vmap(lambda key: run(key, mean, std, inputs)))(keys), np.float64)


def test_an_affine_layer_is_exact():
    mean = params_of()
    std = spread(mean)
    draws = local_draws(affine, mean, std, INPUTS)
    for row, x in enumerate(np.asarray(INPUTS)):
        variance = x**2 @ np.asarray(std["kernel"]) ** 2 + np.asarray(std["bias"]) ** 2
        scores = (draws[:, row] - affine(mean, x)) / np.sqrt(variance)
        assert np.max(np.abs(scores.mean(0))) < 5 / np.sqrt(NUM_DRAWS)
        assert np.max(np.abs(np.cov(scores.T) - np.eye(3))) < 5 * np.sqrt(2 / NUM_DRAWS)
        assert np.max(np.abs((scores**4).mean(0) - 3)) < 5 * np.sqrt(96 / NUM_DRAWS)


def test_inputs_of_a_batch_have_their_own_noise():
    mean = params_of()
    draws = local_draws(affine, mean, spread(mean), jnp.repeat(INPUTS[:1], 2, axis=0))
    correlation = np.corrcoef(draws[:, 0].T, draws[:, 1].T)[:3, 3:]
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(NUM_DRAWS)


@pytest.mark.parametrize("apply", [shared, positive, layered, chained])
def test_the_law_is_that_of_drawn_weights(apply):
    mean = params_of()
    std = spread(mean)
    local = local_draws(apply, mean, std, INPUTS)[:, 0]
    weights = DiagonalGaussian(mean, std).sample(jax.random.key(4), NUM_DRAWS)
    drawn = np.asarray(jax.jit(jax.vmap(lambda p: apply(p, INPUTS)))(weights), np.float64)[:, 0]
    np.testing.assert_allclose(
        np.cov(local.T), np.cov(drawn.T), atol=5 * np.sqrt(2 / NUM_DRAWS) * drawn.var(0).max()
    )
    for power in (1, 2, 3):
        # Moments of both sides carry noise: the standard error of the difference of two means.
        a, b = (local - drawn.mean(0)) ** power, (drawn - drawn.mean(0)) ** power
        error = np.sqrt((a.var(0) + b.var(0)) / NUM_DRAWS)
        assert np.max(np.abs(a.mean(0) - b.mean(0)) / error) < 5


def test_a_deep_network_has_the_moments_of_drawn_weights():
    model = models.mlp((3,), 2, hidden=(4, 3), activation="tanh")
    mean = model.init(jax.random.key(0))
    std = spread(mean)
    local = local_draws(model.apply, mean, std, INPUTS)[:, 1]
    weights = DiagonalGaussian(mean, std).sample(jax.random.key(4), NUM_DRAWS)
    drawn = np.asarray(jax.jit(jax.vmap(lambda p: model.apply(p, INPUTS)))(weights), np.float64)[:, 1]
    error = np.sqrt((local.var(0) + drawn.var(0)) / NUM_DRAWS)
    assert np.max(np.abs(local.mean(0) - drawn.mean(0)) / error) < 5
    np.testing.assert_allclose(
        np.cov(local.T), np.cov(drawn.T), atol=5 * np.sqrt(2 / NUM_DRAWS) * drawn.var(0).max()
    )


def test_noise_is_per_unit_not_per_weight():
    model = models.mlp((50,), 10, hidden=(20,))
    mean = model.init(jax.random.key(0))
    jaxpr = jax.make_jaxpr(local_reparametrisation(model.apply))(
        jax.random.key(0), mean, mean, jnp.zeros((7, 50))
    )
    drawn = [
        equation.outvars[0].aval.shape
        for equation in jaxpr.eqns
        if "normal" in str(equation.params.get("name"))
    ]
    assert drawn == [(7 * (20 + 10),)]


def convolved(params, x):
    convolution = jax.lax.conv_general_dilated(
        x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.mean(convolution + params["bias"], axis=(1, 2))


def convolution_params():
    random = np.random.default_rng(0)
    mean = {"kernel": random.normal(size=(3, 3, 1, 2)), "bias": random.normal(size=2)}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), mean)


def test_a_convolution_bias_is_one_draw_for_all_positions():
    mean = convolution_params()
    std = {"kernel": jnp.zeros((3, 3, 1, 2)), "bias": jnp.array([0.3, 0.7])}
    draws = local_draws(convolved, mean, std, jnp.ones((1, 4, 4, 1)), num=4000)[:, 0]
    np.testing.assert_allclose(draws.std(0), [0.3, 0.7], rtol=5 / np.sqrt(8000))


def test_every_position_of_a_convolution_has_its_variance():
    mean = convolution_params()
    std = {"kernel": spread(mean)["kernel"], "bias": jnp.zeros(2)}
    draws = local_draws(lambda p, x: convolved(p, x[:, 1:2, 1:2]), mean, std, jnp.full((1, 3, 3, 1), 2.0))[
        :, 0
    ]
    expected = 2.0 * np.asarray(std["kernel"])[1, 1, 0]
    np.testing.assert_allclose(draws.std(0), expected, rtol=5 / np.sqrt(2 * NUM_DRAWS))


def attention(params, x):
    """Weights in a softmax, a norm, a gather and a scan: not linear, so drawn."""
    tokens = x[..., None] * params["scale"] + params["table"][jnp.arange(3)]
    scores = jax.nn.softmax((tokens @ params["query"]) @ jnp.swapaxes(tokens @ params["key"], 1, 2))
    mixed, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), scores @ tokens, params["stack"])
    return jnp.mean(mixed * jax.lax.rsqrt(jnp.sum(params["scale"] ** 2)), axis=1)


def test_without_spread_the_network_is_the_network():
    random = np.random.default_rng(0)
    shapes = {"scale": (2,), "table": (3, 2), "query": (2, 2), "key": (2, 2), "stack": (2, 2, 2)}
    mean = {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    outputs = jax.jit(local_reparametrisation(attention))(
        jax.random.key(2), mean, jax.tree.map(jnp.zeros_like, mean), INPUTS
    )
    np.testing.assert_allclose(outputs, attention(mean, INPUTS), rtol=1e-4, atol=1e-5)


def test_gradients_are_finite_without_input():
    mean = params_of()
    run = local_reparametrisation(affine)
    gradient = jax.grad(lambda std: jnp.sum(run(jax.random.key(0), mean, std, jnp.zeros((2, 3)))))(
        spread(mean)
    )
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))


def test_spread_must_fit_the_mean():
    mean = params_of()
    with pytest.raises(ValueError, match="leaf 'bias'"):
        local_reparametrisation(affine)(jax.random.key(0), mean, mean | {"bias": jnp.ones(2)}, INPUTS)
