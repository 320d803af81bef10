"""Networks with BatchNorm whose statistics are frozen: every method holds them and varies the weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from scipy import stats

from symbnn import data, density, evaluate, inference, io, models, symmetry, tree
from symbnn.models.base import named_weights

KEY = jax.random.key(0)
ADAM, STILL = optax.adam(1e-3), optax.set_to_zero()


class Normalised(nn.Module):
    """Dense or convolution, BatchNorm, the same again, dense."""

    convolves: bool = False

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = x.reshape(-1, 8, 8, 1) if self.convolves else x
        for index in (1, 2):
            layer = nn.Conv(6, (3, 3), strides=2, name=f"layer{index}") if self.convolves else nn.Dense(12)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9, name=f"norm{index}")(layer(x))
            x = nn.relu(x)
        return nn.Dense(10, name="out")(x.reshape(len(x), -1))


class EndsNormalised(nn.Module):
    """The outputs are affine in the statistics of their own BatchNorm, too."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.BatchNorm(use_running_average=not train, name="norm")(nn.Dense(10, name="out")(x))


@functools.cache
def digits():
    return data.load("digits", flatten=True, num_train=400, num_test=300)


@functools.cache
def trained(convolves=False):
    """(model as it is, two networks)."""
    model = models.from_module(Normalised(convolves), (64,))
    method = inference.ensemble(num_members=2, epochs=15, batch_size=50, optimizer=optax.adam(1e-2))
    return model, method(KEY, density.target(model, digits().train)).posterior.samples


@functools.cache
def target(convolves=False, **settings):
    return density.target(models.frozen(trained(convolves)[0]), digits().train, **settings)


METHODS = {
    "variational": lambda optimizer=ADAM: inference.variational(
        epochs=2, batch_size=50, initial_std=0.01, optimizer=optimizer
    ),
    "variational by weights": lambda optimizer=ADAM: inference.variational(
        epochs=2, batch_size=50, initial_std=0.01, optimizer=optimizer, reparametrisation="weights"
    ),
    "swag": lambda optimizer=ADAM: inference.swag(
        rank=2, epochs=2, batch_size=50, pretrain_epochs=0, optimizer=optimizer
    ),
    "pretrained swag": lambda optimizer=ADAM: inference.swag(
        rank=2, epochs=2, batch_size=50, pretrain_epochs=1, pretrain_optimizer=optimizer, optimizer=optimizer
    ),
    "laplace": lambda optimizer=ADAM: inference.laplace(
        leaves="last_layer", structure="full", pretrain_epochs=1, batch_size=50, optimizer=optimizer
    ),
    "laplace of all weights": lambda optimizer=ADAM: inference.laplace(
        pretrain_epochs=1, batch_size=50, optimizer=optimizer
    ),
    "kronecker laplace": lambda optimizer=ADAM: inference.laplace(
        structure="kronecker", tune=("prior",), pretrain_epochs=1, batch_size=50, optimizer=optimizer
    ),
    "dropout": lambda optimizer=ADAM: inference.dropout(epochs=2, batch_size=50, optimizer=optimizer),
    "sgmcmc": lambda optimizer=ADAM: inference.sgmcmc(
        num_samples=4, num_burnin=5, thinning=2, step_size=1e-6 if optimizer is STILL else 1e-3
    ),
}
# Networks drawn from these underfit, as `inference.laplace` says.
LINEARISED = ("laplace of all weights", "kronecker laplace")
# Each of these is another way through a method that is tested anyway.
SLOW = ("variational by weights", "pretrained swag", "kronecker laplace")
EVERY_METHOD = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in METHODS]
)
NETWORKS = pytest.mark.parametrize("convolves", [False, pytest.param(True, marks=pytest.mark.slow)])


@functools.cache
def fitted(name, convolves=False):
    method = inference.multimode(METHODS[name](), members=trained(convolves)[1])
    return method(KEY, target(convolves)).posterior


def same(first, second):
    return all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(second)))


@NETWORKS
@EVERY_METHOD
def test_draws_have_the_statistics_of_the_mode_they_are_around(name, convolves):
    drawn, modes = fitted(name, convolves).sample(KEY, 12), trained(convolves)[1]
    around = []
    for index in range(12):
        network = tree.take(drawn, index)
        own = [same(network["batch_stats"], tree.take(modes, mode)["batch_stats"]) for mode in range(2)]
        assert sum(own) == 1
        gaps = [
            np.linalg.norm(tree.flat(network["params"]) - tree.flat(tree.take(modes, mode)["params"]))
            for mode in range(2)
        ]
        assert own[int(np.argmin(gaps))], "statistics of another mode"
        around.append(own.index(True))
    assert set(around) == {0, 1}


@EVERY_METHOD
def test_weights_vary(name):
    drawn = fitted(name).sample(KEY, 12)["params"]["out"]["kernel"]
    assert np.all(np.ptp(drawn, axis=0) > 0)


@NETWORKS
@EVERY_METHOD
def test_it_stays_far_better_than_guessing(name, convolves):
    loaded = digits()
    apply = target(convolves).model.apply
    posterior = fitted(name, convolves)
    if name in LINEARISED:
        probs = evaluate.predict_linearised(apply, posterior, loaded.test.inputs)
    else:
        probs = evaluate.predict(apply, posterior, loaded.test.inputs, key=KEY, num_samples=10)
    before = evaluate.predict(apply, trained(convolves)[1], loaded.test.inputs)
    accuracy, at_modes = (evaluate.accuracy(each, loaded.test.targets) for each in (probs, before))
    assert accuracy > 0.7, f"{accuracy}; the modes have {at_modes}, guessing gives 0.1"


@NETWORKS
@EVERY_METHOD
def test_without_noise_predictions_are_those_of_the_network_in_evaluation_mode(name, convolves):
    """Nothing is trained and no noise is drawn, so the method is left with the network it was given."""
    start, inputs = tree.take(trained(convolves)[1], 0), digits().test.inputs
    method = inference.multimode(METHODS[name](STILL), members=jax.tree.map(lambda leaf: leaf[None], start))
    posterior = method(KEY, target(convolves)).posterior
    if name == "sgmcmc":
        still = tree.take(posterior.samples, -1)
    elif name == "dropout":
        still = tree.take(posterior.samples, 0)
    else:
        still = tree.take(posterior.components, 0).mean
    assert jax.tree.structure(still) == jax.tree.structure(start)
    expected = trained(convolves)[0].apply(start, inputs)
    np.testing.assert_allclose(
        target(convolves).model.apply(still, inputs), expected, atol=5e-3 if name == "sgmcmc" else 1e-5
    )


def random_permutations(spec, key):
    """An element that only relabels units."""
    return symmetry.identity(spec)._replace(permutations=symmetry.random_element(spec, key).permutations)


@EVERY_METHOD
def test_draws_can_be_relabelled_and_aligned_again(name):
    """The spec knows the statistics, so they move with their units."""
    frozen, inputs = target().model, digits().test.inputs[:50]
    drawn = fitted(name).sample(KEY, 4)
    elements = [random_permutations(frozen.spec, key) for key in jax.random.split(jax.random.key(1), 4)]
    moved = tree.stack(
        [symmetry.act(frozen.spec, each, tree.take(drawn, i)) for i, each in enumerate(elements)]
    )
    assert not np.array_equal(moved["batch_stats"]["norm1"]["mean"], drawn["batch_stats"]["norm1"]["mean"])
    apply = jax.vmap(frozen.apply, in_axes=(0, None))
    np.testing.assert_allclose(apply(moved, inputs), apply(drawn, inputs), rtol=1e-3, atol=1e-3)
    # A network relabelled at random, aligned to itself as it was, is itself again.
    back = symmetry.align(
        frozen.spec, tree.take(moved, slice(0, 1)), reference=tree.take(drawn, 0), method="weights"
    ).samples
    np.testing.assert_allclose(apply(back, inputs)[0], apply(drawn, inputs)[0], rtol=1e-3, atol=1e-3)
    assert np.array_equal(back["batch_stats"]["norm1"]["mean"][0], drawn["batch_stats"]["norm1"]["mean"][0])


@pytest.mark.parametrize("name", ["laplace", "laplace of all weights", "swag"])
def test_the_posterior_of_a_relabelled_network_is_the_relabelled_posterior(name):
    frozen, start = target().model, tree.take(trained()[1], 0)
    element = random_permutations(frozen.spec, jax.random.key(2))
    settings = {
        "laplace": lambda: inference.laplace(leaves="last_layer", structure="full", pretrain_epochs=0),
        "laplace of all weights": lambda: inference.laplace(pretrain_epochs=0),
        # One minibatch of all data: nothing about the steps is random.
        "swag": lambda: inference.swag(
            rank=3, epochs=3, pretrain_epochs=0, batch_size=400, optimizer=optax.sgd(0.05)
        ),
    }
    starts = tree.stack([start, symmetry.act(frozen.spec, element, start)])
    mixture = inference.multimode(settings[name](), members=starts)(KEY, target()).posterior
    own, other = (tree.take(mixture.components, index) for index in range(2))
    near = tree.take(own.sample(jax.random.key(3), 1), 0)
    np.testing.assert_allclose(
        own.log_prob(near), other.log_prob(symmetry.act(frozen.spec, element, near)), rtol=1e-3
    )
    assert not np.isfinite(other.log_prob(near)), "statistics of other units are another network"
    assert np.isfinite(own.log_prob(near))


def test_the_log_density_is_a_sum_over_examples_and_has_no_prior_of_statistics():
    scale = {"*/bias": 0.5, "*": 2.0}
    frozen = target(prior=density.gaussian_prior(scale))
    params, batch = tree.take(trained()[1], 0), digits().train
    outputs = np.asarray(trained()[0].apply(params, batch.inputs), np.float64)
    log_probs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    expected = log_probs[np.arange(len(batch.targets)), batch.targets].sum()
    for name, leaf in tree.named_leaves(params["params"]).items():
        expected += stats.norm(0, 0.5 if name.endswith("bias") else 2.0).logpdf(np.asarray(leaf)).sum()
    np.testing.assert_allclose(frozen.log_density(params), expected, rtol=1e-4)
    halves = [
        frozen.log_likelihood(params, density.Batch(*(array[part] for array in frozen.data)))
        for part in (slice(0, 130), slice(130, None))
    ]
    np.testing.assert_allclose(sum(halves), frozen.log_likelihood(params), rtol=1e-5)


def test_scales_of_the_prior_go_by_the_names_of_weights():
    """A narrow prior of one leaf makes that leaf narrow, and no other."""
    start = tree.take(trained()[1], 0)
    names = {"norm1/scale": 1e-3, "*": 1.0}
    narrow, plain = (
        inference.laplace(pretrain_epochs=0, initial=start)(KEY, target(prior=prior)).posterior.free.std
        for prior in (density.gaussian_prior(names), density.gaussian_prior(1.0))
    )
    assert set(narrow) == set(named_weights(start))
    for name, std in narrow.items():
        if name == "params/norm1/scale":
            assert np.all(std <= 1e-3)
        else:
            np.testing.assert_array_equal(std, plain[name])


def test_statistics_are_no_weights_of_the_last_layer():
    model = models.frozen(models.from_module(EndsNormalised(), (64,)))
    problem = density.target(model, digits().train)
    fit = inference.laplace(leaves="last_layer", structure="full", pretrain_epochs=0)(KEY, problem)
    assert set(fit.posterior.free.mean)
    assert all(name.startswith("params/") for name in fit.posterior.free.mean)


@EVERY_METHOD
def test_it_saves_and_loads(name, tmp_path):
    io.save_posterior(tmp_path / "posterior.safetensors", fitted(name))
    loaded, _ = io.load_posterior(tmp_path / "posterior.safetensors")
    jax.tree.map(np.testing.assert_array_equal, loaded.sample(KEY, 2), fitted(name).sample(KEY, 2))


def test_a_chain_that_was_stopped_goes_on_with_its_statistics(tmp_path):
    def chain(**kept):
        method = inference.sgmcmc(num_samples=4, num_burnin=4, thinning=2, step_size=1e-3, **kept)
        return inference.multimode(method, members=trained()[1])(KEY, target()).posterior.samples

    whole = chain()
    first = chain(sink=io.ChunkStore(tmp_path))
    again = chain(sink=io.ChunkStore(tmp_path))
    jax.tree.map(np.testing.assert_array_equal, first, whole)
    jax.tree.map(np.testing.assert_array_equal, again, whole)


@EVERY_METHOD
def test_a_network_that_is_not_frozen_is_refused_with_the_remedy(name):
    model, networks = trained()
    problem = density.target(model, digits().train)
    method = inference.multimode(METHODS[name](), members=networks)
    if "swag" in name:
        statistics = method(KEY, problem).posterior.components.params["batch_stats"]
        assert not same(statistics, networks["batch_stats"]), "statistics of the mean network are measured"
        return
    with pytest.raises(ValueError, match=r"density.target\(models.frozen\(model\), data\)"):
        method(KEY, problem)


def test_samplers_that_move_every_leaf_refuse_it():
    with pytest.raises(ValueError, match="for hmc, nuts and mclmc use a network without batch statistics"):
        inference.hmc(step_size=0.1)(KEY, target())


def test_training_a_frozen_network_leaves_its_statistics_alone():
    networks = trained()[1]
    method = inference.ensemble(num_members=2, epochs=1, batch_size=50, initial=networks)
    after = method(KEY, target()).posterior.samples
    jax.tree.map(np.testing.assert_array_equal, after["batch_stats"], networks["batch_stats"])
    assert not same(after["params"], networks["params"])
    assert jnp.all(jnp.isfinite(after["params"]["out"]["kernel"]))


def test_freezing_changes_no_output_and_no_symmetry():
    model, networks = trained()
    frozen, inputs = models.frozen(model), digits().test.inputs[:5]
    one = tree.take(networks, 0)
    assert frozen.spec == model.spec
    np.testing.assert_array_equal(frozen.apply(one, inputs), model.apply(one, inputs))
    assert models.frozen(model) == frozen, "one object to jit, so that a second fit compiles nothing"
    outputs, after = models.in_training(frozen, one, inputs, KEY)
    np.testing.assert_array_equal(outputs, model.apply(one, inputs))
    assert same(after, one)
