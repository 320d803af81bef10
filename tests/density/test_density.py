"""Targets: likelihoods and priors against scipy, chunks against the plain sum, errors before a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from symbnn import density, models, tree
from symbnn.data import Streamed
from symbnn.density.chunked import default_chunk_size, number_of_chunks
from tests.inference.cases import LinearModel, linear_model, small_network

random = np.random.default_rng(0)
OUTPUTS = random.normal(size=(6, 4)).astype(np.float32)
VALUES = random.normal(size=(6, 2)).astype(np.float32)
LABELS = random.integers(4, size=6)


def categorical_oracle():
    logits = OUTPUTS.astype(float)
    return np.log((np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(6), LABELS])


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets", "oracle"),
    [
        (density.categorical(), OUTPUTS, LABELS, categorical_oracle),
        # Sequences of three places: each is an example of its own, and they add up.
        (
            density.categorical(),
            OUTPUTS.reshape(2, 3, 4),
            LABELS.reshape(2, 3),
            lambda: categorical_oracle().reshape(2, 3).sum(1),
        ),
        (
            density.bernoulli(),
            OUTPUTS[:, :2],
            VALUES > 0,
            lambda: scipy.stats.bernoulli.logpmf(VALUES > 0, 1 / (1 + np.exp(-OUTPUTS[:, :2]))).sum(1),
        ),
        (
            density.gaussian(0.3),
            OUTPUTS[:, :2],
            VALUES,
            lambda: scipy.stats.norm.logpdf(VALUES, OUTPUTS[:, :2], 0.3).sum(1),
        ),
        (
            density.heteroscedastic(),
            OUTPUTS,
            VALUES,
            lambda: scipy.stats.norm.logpdf(VALUES, OUTPUTS[:, :2], np.exp(OUTPUTS[:, 2:])).sum(1),
        ),
        (
            density.heteroscedastic("softplus"),
            OUTPUTS,
            VALUES,
            lambda: scipy.stats.norm.logpdf(
                VALUES, OUTPUTS[:, :2], np.logaddexp(OUTPUTS[:, 2:], 0) + 1e-6
            ).sum(1),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, density.Likelihood) else None,
)
def test_likelihood_is_the_textbook_one(likelihood, outputs, targets, oracle):
    values = likelihood.log_prob(jnp.asarray(outputs), jnp.asarray(targets).astype(jnp.float32))
    np.testing.assert_allclose(values, oracle(), rtol=2e-5, atol=1e-5)
    draws = likelihood.sample(jax.random.key(0), jnp.broadcast_to(outputs, (4000, *outputs.shape)))
    if likelihood.has_labels:
        draws = jax.nn.one_hot(draws, outputs.shape[-1])
    error = np.asarray(draws.std(0)) / np.sqrt(4000) + 1e-3
    assert np.all(np.abs(draws.mean(0) - likelihood.predictive(jnp.asarray(outputs))) < 5 * error)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (density.gaussian_prior(0.5), scipy.stats.norm(0, 0.5)),
        (density.laplace_prior(0.5), scipy.stats.laplace(0, 0.5)),
    ],
    ids=["gaussian", "laplace"],
)
def test_prior_is_the_textbook_one(prior, law):
    params = {"a": jnp.asarray(OUTPUTS), "b": {"c": jnp.asarray(VALUES)}}
    expected = sum(law.logpdf(np.asarray(leaf, float)).sum() for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(prior.log_prob(params), expected, rtol=1e-5)
    draw = prior.sample(jax.random.key(1), {"w": jnp.zeros((50, 80))})["w"]
    assert scipy.stats.kstest(np.asarray(draw).ravel(), law.cdf).pvalue > 1e-3
    assert prior.scales(params)["b/c"] == pytest.approx(law.std())


def test_scales_by_name_and_by_fan_in():
    params = {"hidden": {"kernel": jnp.zeros((3, 3, 4, 8)), "bias": jnp.zeros(8)}, "out": jnp.zeros((8, 2))}
    prior = density.gaussian_prior({"*/bias": 2.0, "hidden/*": 3.0, "*": 1.0}, fan_in=True)
    expected = {"hidden/bias": 2.0, "hidden/kernel": 3.0 / 6.0, "out": 1.0 / np.sqrt(8)}
    assert prior.scales(params) == pytest.approx(expected)
    draw = tree.named_leaves(
        prior.sample(jax.random.key(0), jax.tree.map(lambda a: jnp.zeros((*a.shape, 500)), params))
    )
    assert set(draw) == set(expected)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ({"hidden/*": 1.0}, "no scale for leaf 'out/bias'"),
        ({"hiden/kernel": 1.0, "*": 1.0}, "did you mean 'hidden/kernel'"),
        (0.0, "positive and finite"),
        ({"*": float("nan")}, "positive and finite"),
    ],
)
def test_a_prior_that_does_not_fit_names_the_leaf(scale, message):
    model, batch = small_network()
    with pytest.raises(ValueError, match=message):
        density.target(model, batch, prior=density.gaussian_prior(scale))


@pytest.mark.parametrize("chunk_size", [1, 8, 36])
def test_chunks_add_up(chunk_size):
    """37 points: single points, a remainder, one short of all."""
    model, batch = small_network()
    params = model.init(jax.random.key(0))
    whole, chunked = (density.target(model, batch, chunk_size=size) for size in (1000, chunk_size))
    values = [jax.jit(jax.value_and_grad(target.log_density))(params) for target in (whole, chunked)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *values)
    weights = jnp.linspace(0.0, 1.0, 37)
    sums = [jax.jit(target.log_likelihood)(params, target.data, weights) for target in (whole, chunked)]
    np.testing.assert_allclose(*sums, rtol=1e-5)


@pytest.mark.slow
def test_chunked_gradients_vmap_and_differentiate_again():
    model, batch = small_network()
    target = density.target(model, batch, chunk_size=10)
    plain = density.target(model, batch, chunk_size=1000)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 3))
    gradients = [jax.jit(jax.vmap(jax.grad(t.log_density)))(params) for t in (target, plain)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients)
    one = tree.take(params, 0)

    def product(target):
        return jax.jit(lambda w: jax.jvp(jax.grad(target.log_density), (w,), (w,))[1])(one)

    products = [product(t) for t in (target, plain)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), *products)


def test_memory_is_that_of_one_chunk():
    def temporary_bytes(num_data):
        model, batch = small_network(num_data, num_hidden=64)
        target = density.target(model, batch, chunk_size=64)
        gradient = jax.jit(jax.grad(target.log_likelihood))
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        return gradient.lower(shapes, target.data).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(64 * 64) < 1.2 * temporary_bytes(64 * 4)


def test_default_chunk_follows_the_activations():
    chunk = default_chunk_size
    small, large = (models.mlp((784,), 10, hidden=(width,)) for width in (32, 512))
    inputs = jax.ShapeDtypeStruct((60_000, 784), jnp.float32)
    sizes = [chunk(m.apply, jax.eval_shape(m.init, jax.random.key(0)), inputs) for m in (small, large)]
    assert 1000 <= sizes[1] <= 4000 < sizes[0]


@pytest.mark.parametrize("rows", ["first", "last"])
def test_what_depends_on_no_weight_does_not_count_as_an_activation(rows):
    """Of 784 inputs and as many turned round: 26,000 points of 32 hidden units are one chunk."""
    model = models.mlp((784,), 10, hidden=(32,), rows=rows)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    some, all_of_them = (
        default_chunk_size(model.apply, shapes, jax.ShapeDtypeStruct((num, 784), jnp.float32))
        for num in (26_000, 60_000)
    )
    assert some == 26_000
    assert 2**22 / 1000 < all_of_them < 2**22 / 784


def test_temperature_divides_both_terms():
    model, batch = small_network()
    warm, cold = (density.target(model, batch, temperature=t) for t in (1.0, 0.25))
    params = warm.init(jax.random.key(0))
    np.testing.assert_allclose(cold.log_density(params), 4 * warm.log_density(params), rtol=1e-6)


def test_a_difference_of_log_densities_is_formed_weight_by_weight():
    """In float32 at a million weights: as in float64, where one number for each would be off by 0.06."""
    prior = density.gaussian_prior()
    old = random.normal(size=1_000_000).astype(np.float32)
    new = (old + 1e-3 * random.normal(size=old.size)).astype(np.float32)
    parts = density.LogDensity(lambda params: 3.0 * params["w"][0], prior.log_probs, temperature=0.5)
    pairs = [({"w": jnp.asarray(each)}, jnp.asarray(3.0 * each[0])) for each in (new, old)]
    found = parts.difference(*pairs[0], *pairs[1])
    wide = [each.astype(np.float64) for each in (new, old)]
    exact = 2.0 * (3.0 * (wide[0][0] - wide[1][0]) - 0.5 * np.sum(wide[0] ** 2 - wide[1] ** 2))
    np.testing.assert_allclose(found, exact, atol=1e-3)
    assert abs(float(parts(pairs[0][0]) - parts(pairs[1][0])) - exact) > 1e-2


def test_a_whole_log_density_has_no_temperature_of_its_own():
    with pytest.raises(ValueError, match=r"LogDensity without log_priors .* got temperature=0.1"):
        density.LogDensity(lambda params: -jnp.sum(params**2), temperature=0.1)


def test_a_target_is_a_start_and_a_log_density():
    bare = density.Target(lambda key: jnp.zeros(2), lambda params: -jnp.sum(params**2))
    assert bare.temperature == 1.0
    with pytest.raises(ValueError, match=r"ensemble works on a network .* the target has no model, data"):
        density.require_network(bare, "ensemble")


def test_noise_is_learned_as_a_leaf():
    plain = models.mlp((3,), 1, hidden=(4,))
    model = density.learn_noise(plain, 1, initial=0.2)
    params = model.init(jax.random.key(0))
    inputs, targets = VALUES[:, :1].repeat(3, 1), VALUES[:, 1:]
    target = density.target(model, density.Batch(inputs, targets), likelihood=density.heteroscedastic())
    known = density.target(plain, density.Batch(inputs, targets), likelihood=density.gaussian(0.2))
    weights = {name: leaf for name, leaf in params.items() if name != "noise"}
    np.testing.assert_allclose(target.log_likelihood(params), known.log_likelihood(weights), rtol=1e-5)
    assert {leaf.name for leaf in model.spec.leaves} == set(tree.named_leaves(params))
    outputs, trained = model.train(params, inputs, jax.random.key(0))
    assert outputs.shape == (6, 2)
    assert jax.tree.structure(trained) == jax.tree.structure(params)
    with pytest.raises(ValueError, match="already has a leaf 'noise'"):
        density.learn_noise(model, 1)


def batch_norm_model():
    def init(key):
        return {"params": {"w": jnp.ones((5, 3))}, "batch_stats": {"mean": jnp.zeros(3)}}

    def apply(params, inputs):
        return inputs @ params["params"]["w"] - params["batch_stats"]["mean"]

    return LinearModel(init, apply, lambda params, inputs, key: (apply(params, inputs), params))


def test_batch_statistics_are_no_likelihood():
    _, batch = small_network()
    target = density.target(batch_norm_model(), batch)
    params = target.init(jax.random.key(0))
    assert np.isfinite(target.log_prior(params))
    with pytest.raises(ValueError, match="Networks with BatchNorm have no per-example likelihood"):
        target.log_density(params)


def test_noise_of_a_net_with_batch_statistics_is_refused():
    with pytest.raises(ValueError, match="learn_noise takes networks without BatchNorm"):
        density.learn_noise(batch_norm_model(), 3)


def mixed_dtypes(key):
    return {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(2, jnp.float16)}


@pytest.mark.parametrize(
    ("model", "batch", "settings", "message"),
    [
        (None, density.Batch(VALUES, LABELS[:3]), {}, r"same positive length; got \(6, 2\) and \(3,\)"),
        (None, density.Batch(VALUES, LABELS + 9), {}, r"labels must be in \[0, 3\)"),
        (None, density.Batch(VALUES, VALUES), {}, r"integer labels \(n,\)"),
        (None, density.Batch(VALUES, VALUES), {"likelihood": density.gaussian(1.0)}, "needs 2 outputs"),
        (None, density.Batch(VALUES, LABELS % 3), {"temperature": 0.0}, "temperature must be positive"),
        (None, density.Batch(VALUES, LABELS % 3), {"chunk_size": 0}, "chunk_size must be at least 1"),
        (
            linear_model(2, 2),
            density.Batch(VALUES, np.where(VALUES > 0, 1, -1)),
            {"likelihood": density.bernoulli()},
            r"bernoulli\(\) takes targets in \[0, 1\]; \d+ of 12 are not, the first at index \(.*\): -1",
        ),
        (LinearModel(mixed_dtypes, None, None), density.Batch(VALUES, LABELS), {}, "must have one dtype"),
    ],
)
def test_bad_input_is_refused(model, batch, settings, message):
    with pytest.raises(ValueError, match=message):
        density.target(model or linear_model(2, 3), batch, **settings)


@pytest.mark.parametrize("targets", [VALUES > 0, np.clip(VALUES, 0, 1)], ids=["0 or 1", "shares"])
def test_targets_between_zero_and_one_are_those_of_bernoulli(targets):
    batch = density.Batch(VALUES, targets)
    found = density.target(linear_model(2, 2), batch, likelihood=density.bernoulli()).data.targets
    np.testing.assert_array_equal(found, targets.astype(np.float32))


def changed(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (changed(VALUES, (slice(2, 4), 1), np.nan), VALUES, r"inputs .*; 2 of 12 .* index \(2, 1\): nan"),
        (VALUES, changed(VALUES, (5, 0), -np.inf), r"targets .*; 1 of 12 .* index \(5, 0\): -inf"),
        (changed(VALUES, (0, 0), np.inf).astype(jnp.bfloat16), VALUES, r"inputs .* index \(0, 0\): inf"),
        (changed(VALUES.astype(float), (1, 0), 1e300), VALUES, r"finite in float32; .* \(1, 0\): 1e\+300"),
        (Streamed(lambda indices: VALUES[indices], VALUES.shape), VALUES * np.nan, r"targets .*; 12 of 12"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(inputs, targets, message):
    with pytest.raises(ValueError, match=message):
        density.target(linear_model(2, 2), density.Batch(inputs, targets), likelihood=density.gaussian(1.0))


def test_streamed_inputs_are_not_read_for_a_check():
    streamed = Streamed(lambda indices: pytest.fail("read"), VALUES.shape)
    density.target(linear_model(2, 4), density.Batch(streamed, LABELS))


def test_noise_must_be_positive():
    with pytest.raises(ValueError, match="positive standard deviation"):
        density.gaussian(0.0)


@pytest.mark.parametrize(
    ("num", "chunk_size", "expected"),
    [(60_000, 1400, 48), (60_000, 1000, 60), (10, 3, 5), (7, 3, 3), (1009, 100, 11), (5, 1, 5)],
)
def test_chunks_divide_the_data_where_they_can(num, chunk_size, expected):
    count = number_of_chunks(num, chunk_size)
    assert count == expected
    assert -(-num // count) <= chunk_size


def test_a_softplus_scale_has_a_finite_density_where_the_noise_vanishes_and_an_unknown_one_is_named():
    likelihood = density.heteroscedastic("softplus")
    outputs = jnp.array([[0.0, -200.0]])
    value, slope = jax.value_and_grad(lambda o: likelihood.log_prob(o, jnp.zeros((1, 1)))[0])(outputs)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))
    assert likelihood.spread(outputs)[0, 0] == pytest.approx(1e-6)
    with pytest.raises(ValueError, match="unknown scale 'softplu'"):
        density.heteroscedastic("softplu")
