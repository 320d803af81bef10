"""Shared weights as a posterior: the law of its draws."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import evaluate, sharing, tree
from symbnn.posteriors import Posterior
from symbnn.sharing import SharedWeights, layout_of
from tests.sharing.shared import ELLIPSES, MODEL, OUTLIERS, make, plain_members

NUM_DRAWS = 20_000


def flat_draws(shared: SharedWeights, num: int = NUM_DRAWS) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(shared.draw))(jax.random.split(jax.random.key(1), num)))


@pytest.mark.parametrize(
    ("sampling", "noise"),
    [("hierarchical", n) for n in ("component", "sign", "layer", "weight")] + [("first_coord", "component")],
)
def test_mean_and_variance_of_a_weight_follow_the_sampling(sampling, noise):
    shared = make(sampling=sampling, noise=noise)
    draws = flat_draws(shared)
    means, factors = np.asarray(shared.means), np.asarray(shared.factors)
    variances = factors[:, 0] ** 2
    if sampling == "hierarchical":
        variances = variances + (factors[:, 1:] ** 2).sum(1) + means[:, 1] ** 2
    np.testing.assert_allclose(shared.variances(), variances, rtol=1e-6)
    for component in range(3):
        own = draws[:, plain_members(shared, component)]
        error = np.sqrt(variances[component] / NUM_DRAWS)
        np.testing.assert_allclose(own.mean(0), means[component, 0], atol=5 * error)
        # The fourth moment of m + |s| ε is at most a few times that of a Gaussian.
        np.testing.assert_allclose(own.var(0), variances[component], rtol=10 * np.sqrt(2 / NUM_DRAWS))
    np.testing.assert_allclose(draws[:, OUTLIERS].mean(0), [0.9, -0.8], atol=5 * 0.2 / np.sqrt(NUM_DRAWS))
    np.testing.assert_allclose(draws[:, OUTLIERS].std(0), [0.1, 0.2], rtol=0.03)


def test_members_of_a_component_are_one_number_in_a_draw_and_another_in_the_next():
    draws = flat_draws(make(), 4)
    for component in range(3):
        own = draws[:, plain_members(make(), component)]
        assert np.all(own == own[:, :1])
        assert len(np.unique(own[:, 0])) == 4


def test_noise_per_sign_layer_and_weight_tells_members_apart():
    shared = make(factors=jnp.zeros((3, 3)))
    members = plain_members(shared, 0)
    first = [i for i in members if i < shared.layout.sizes[0]]
    by_noise = {
        noise: flat_draws(dataclasses.replace(shared, noise=noise), 1)[0] + 0.2
        for noise in ("sign", "layer", "weight")
    }
    assert len(np.unique(np.abs(by_noise["sign"][members]).round(6))) == 1
    assert len(np.unique(np.sign(by_noise["sign"][members]))) == 2
    assert len(np.unique(by_noise["layer"][first])) == 1
    assert len(np.unique(by_noise["layer"][members])) == 2
    assert len(np.unique(by_noise["weight"][members])) == len(members)


def test_an_ellipse_weight_blends_the_draws_of_its_components():
    shared = make()
    draws = flat_draws(shared, 100)
    values = np.stack([draws[:, plain_members(shared, k)[0]] for k in range(3)], axis=1)
    np.testing.assert_allclose(draws[:, 8], 0.75 * values[:, 2] + 0.25 * values[:, 1], atol=1e-6)
    centred = flat_draws(make(blending="centers"), 100)
    np.testing.assert_allclose(centred[:, 8], 0.75 * 0.3, atol=1e-6)
    picked = flat_draws(make(blending="mixture"))
    values = np.stack([picked[:, plain_members(shared, k)[0]] for k in range(3)], axis=1)
    is_first = picked[:, 8] == values[:, 2]
    assert np.all(is_first | (picked[:, 8] == values[:, 1]))
    assert is_first.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / NUM_DRAWS))


def test_it_is_a_posterior_like_any_other():
    shared, key = make(), jax.random.key(2)
    assert isinstance(shared, Posterior)
    samples = shared.sample(key, 3)
    assert jax.tree.map(jnp.shape, tree.take(samples, 0)) == jax.tree.map(jnp.shape, MODEL.init(key))
    inputs = jax.random.normal(key, (7, 4))
    probs = evaluate.predict(MODEL.apply, shared, inputs, key=key, num_samples=5)
    np.testing.assert_allclose(probs.sum(1), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match="shared weights have no density"):
        shared.log_prob(tree.take(samples, 0))


def test_the_mean_network_holds_centres_blends_and_outliers():
    flat = np.asarray(sharing.flatten(make().layout, make().mean()))
    np.testing.assert_allclose(flat[OUTLIERS], [0.9, -0.8])
    np.testing.assert_allclose(flat[ELLIPSES], [0.75 * 0.3, -0.1], rtol=1e-6)
    assert flat[0] == pytest.approx(-0.2)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="unknown noise"):
        make(noise="none")
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); expected \(35,\)"):
        make(labels=jnp.zeros(3, jnp.uint8))
    with pytest.raises(ValueError, match="no leaf is selected"):
        layout_of({"hidden": {"bias": jnp.zeros(3)}})
