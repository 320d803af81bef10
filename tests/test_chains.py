"""Chains are never taken for draws: what knows them keeps them, a tree with both axes is told or refused."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from symbnn import chains, compact, diagnostics, evaluate, inference, io, plot, posteriors, symmetry, tree
from symbnn.posteriors import DiagonalGaussian, Empirical

KEY = jax.random.key(0)
CHAINS, DRAWS = 3, 8
INPUTS = jax.random.normal(jax.random.key(9), (5, 3))
REMEDY = r"posteriors\.Empirical\.from_chains\(samples\)"


def layers(key):
    """A network as JAX's own examples write it, a list of tuples."""
    keys = jax.random.split(key, 3)
    return [
        (jax.random.normal(keys[0], (3, 4)), jax.random.normal(keys[1], (4,))),
        (jax.random.normal(keys[2], (4, 2)), jnp.zeros(2)),
    ]


def apply_layers(params, inputs):
    (w, b), (v, c) = params
    return jnp.tanh(inputs @ w + b) @ v + c


def equinox_network():
    network = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=KEY)
    params, static = eqx.partition(network, eqx.is_inexact_array)
    return params, lambda params, inputs: jax.vmap(eqx.combine(params, static))(inputs)


def nnx_network():
    class Network(nnx.Module):
        def __init__(self, rngs):
            self.hidden, self.out = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, inputs):
            return self.out(jnp.tanh(self.hidden(inputs)))

    graph, state = nnx.split(Network(nnx.Rngs(0)))
    return state, lambda state, inputs: nnx.merge(graph, state)(inputs)


FRAMEWORKS = {
    "list of tuples": lambda: (layers(KEY), apply_layers),
    "equinox": equinox_network,
    "nnx": nnx_network,
}


@functools.cache
def network(name):
    params, apply = FRAMEWORKS[name]()
    return params, apply, symmetry.discover(apply, params, INPUTS)


def grouped(params, num_chains=CHAINS, num_draws=DRAWS):
    """Noisy copies of a network, (chains, draws, ...)."""

    def noisy(leaf):
        return leaf + 0.1 * jax.random.normal(jax.random.key(leaf.size), (num_chains, num_draws, *leaf.shape))

    return jax.tree.map(noisy, params)


def flat(samples):
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)


def assert_same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_draws_of_any_framework_go_through_everything(name):
    params, apply, spec = network(name)
    samples = grouped(params)
    posterior = Empirical.from_chains(samples)
    assert_same(posterior.by_chain(), samples)
    aligned = symmetry.align(spec, posterior)
    assert aligned.num_chains == CHAINS
    assert_same(aligned.samples, symmetry.align(spec, flat(samples)).samples)
    assert jax.tree.structure(aligned.samples) == jax.tree.structure(params)
    law = compact.gaussian(aligned)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.mean(0), rtol=1e-6), law.mean, aligned.samples)
    probs = evaluate.predict(apply, aligned, INPUTS)
    np.testing.assert_allclose(probs, evaluate.predict(apply, flat(samples), INPUTS), atol=1e-6)
    with pytest.raises(ValueError, match=REMEDY):
        evaluate.predict(apply, samples, INPUTS)
    with pytest.raises(ValueError, match=REMEDY):
        symmetry.align(spec, samples)
    with pytest.raises(ValueError, match=REMEDY):
        compact.gaussian(samples)


PARAMS, APPLY, SPEC = layers(KEY), apply_layers, symmetry.discover(apply_layers, layers(KEY), INPUTS)
GROUPED = grouped(PARAMS)
POSTERIOR = Empirical.from_chains(GROUPED)
LABELS = np.repeat(np.arange(CHAINS), DRAWS)

TAKES_SAMPLES = {
    "gaussian": compact.gaussian,
    "low_rank": lambda samples: compact.low_rank(samples, 2),
    "mixture": lambda samples: compact.mixture(samples, LABELS),
    "k_means": lambda samples: compact.k_means(KEY, samples, 2),
    "mmd": lambda samples: evaluate.mmd(samples, flat(GROUPED)).total.value,
    "mmd, second": lambda samples: evaluate.mmd(flat(GROUPED), samples).total.value,
    "predict": lambda samples: evaluate.predict(APPLY, samples, INPUTS),
    "members": lambda samples: evaluate.predict(APPLY, samples, INPUTS, members=True),
    "uncertainty": lambda samples: evaluate.predict_uncertainty(APPLY, samples, INPUTS).epistemic,
    "align": lambda samples: symmetry.align(SPEC, samples).samples,
    "relabelled": lambda samples: diagnostics.relabelled(SPEC, samples, KEY)[0],
    "exchangeability": lambda samples: diagnostics.exchangeability(SPEC, samples, group="0").counts,
}
NEEDS_CHAINS = {
    "function_space": lambda samples, **how: diagnostics.function_space(APPLY, samples, INPUTS, **how),
    "weight_space": diagnostics.weight_space,
    "control": lambda samples, **how: diagnostics.relabelling_control(SPEC, samples, KEY, **how),
}


@pytest.mark.parametrize("name", TAKES_SAMPLES)
def test_whatever_takes_samples_takes_what_knows_their_chains(name):
    expected = TAKES_SAMPLES[name](flat(GROUPED))
    fit = inference.Fit(POSTERIOR, {"seconds": 1.0})
    for given in (POSTERIOR, fit):
        assert_same(TAKES_SAMPLES[name](given), expected)


@pytest.mark.parametrize("name", NEEDS_CHAINS)
def test_the_number_of_chains_comes_from_the_posterior(name):
    expected = NEEDS_CHAINS[name](flat(GROUPED), num_chains=CHAINS)
    assert NEEDS_CHAINS[name](POSTERIOR) == expected
    assert NEEDS_CHAINS[name](POSTERIOR, num_chains=CHAINS) == expected
    with pytest.raises(ValueError, match=f"num_chains is 2, but the Empirical holds {CHAINS} chains"):
        NEEDS_CHAINS[name](POSTERIOR, num_chains=2)
    with pytest.raises(ValueError, match="num_chains is needed"):
        NEEDS_CHAINS[name](flat(GROUPED))


@pytest.mark.parametrize("name", [*TAKES_SAMPLES, *NEEDS_CHAINS])
def test_chains_and_draws_are_refused_with_the_remedy(name):
    call = TAKES_SAMPLES.get(name) or functools.partial(NEEDS_CHAINS[name], num_chains=CHAINS)
    with pytest.raises(ValueError, match=REMEDY) as caught:
        call(GROUPED)
    assert "\n" not in str(caught.value)


def test_figures_do_not_take_chains_for_draws_either():
    for call in (lambda: plot.spread(GROUPED, POSTERIOR), lambda: plot.pairs(GROUPED)):
        with pytest.raises(ValueError, match=REMEDY):
            call()
    aligned = symmetry.align(SPEC, POSTERIOR)
    assert plot.rank(aligned).axes


def test_warm_starts_follow_the_chains_of_the_posterior():
    settings = {"warm_start": "chain", "restarts": 0}
    expected = symmetry.align(SPEC, flat(GROUPED), num_chains=CHAINS, **settings)
    found = symmetry.align(SPEC, POSTERIOR, **settings)
    assert_same(found.samples, expected.samples)
    np.testing.assert_array_equal(found.objective, expected.objective)
    with pytest.raises(ValueError, match="holds 3 chains"):
        symmetry.align(SPEC, POSTERIOR, num_chains=4, **settings)


def test_chains_are_the_clusters_of_a_mixture_unless_labels_are_given():
    assert_same(compact.mixture(POSTERIOR), compact.mixture(flat(GROUPED), LABELS))
    with pytest.raises(ValueError, match="labels are needed"):
        compact.mixture(flat(GROUPED))


@pytest.mark.parametrize("num_draws", [len(INPUTS), DRAWS])
def test_predictions_are_refused_even_where_the_network_broadcasts(num_draws):
    """Without biases any number of draws passes through; with as many draws as inputs, biases do too."""

    def without_bias(params, inputs):
        return jnp.tanh(inputs @ params["in"]) @ params["out"]

    one = {"in": PARAMS[0][0], "out": PARAMS[1][0]}
    both = grouped(one, CHAINS, num_draws)
    assert jax.vmap(without_bias, (0, None))(both, INPUTS).shape == (CHAINS, num_draws, 5, 2)
    for apply, samples in ((without_bias, both), (APPLY, grouped(PARAMS, CHAINS, num_draws))):
        with pytest.raises(ValueError, match=REMEDY):
            evaluate.predict(apply, samples, INPUTS)
        np.testing.assert_allclose(
            evaluate.predict(apply, Empirical.from_chains(samples), INPUTS).sum(-1), 1.0, atol=1e-5
        )


def one_layer(params, inputs):
    return inputs @ params["weight"].T + params["bias"]


def test_a_network_that_looks_like_chains_is_taken_where_it_is_known():
    """One layer as Equinox writes it: both leaves begin with the outputs, and there are more than samples."""
    samples = grouped({"weight": jnp.ones(3), "bias": jnp.zeros(())}, 4, 6)
    params = tree.take(samples, 0)
    assert chains.grouped(samples) == (4, 6)
    assert evaluate.predict(one_layer, samples, INPUTS).shape == (5, 6)
    spec = symmetry.from_axes({"weight": ("o", None), "bias": ("o",)}, params)
    assert symmetry.align(spec, samples).num_chains is None
    with pytest.raises(
        ValueError, match=r"if they are 4 networks, say so with posteriors\.Empirical\(samples, "
    ):
        compact.gaussian(samples)
    assert compact.gaussian(Empirical(samples, num_chains=1)).mean["weight"].shape == (6, 3)


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": (4, 500)},
        {"x": (500, 3, 4)},
        {"w": (1000, 16), "b": (1000, 16), "v": (1000, 16)},
        {"kernel": (2, 7, 5), "bias": (2, 5)},
        {"scale": (2,), "kernel": (2, 9, 9)},
    ],
)
def test_samples_that_do_not_look_like_chains_are_taken(shapes):
    samples = {name: jnp.ones(shape) for name, shape in shapes.items()}
    assert Empirical(samples).num_chains == 1
    assert jax.tree.map(jnp.shape, compact.gaussian(samples).mean) == {n: s[1:] for n, s in shapes.items()}


@pytest.mark.parametrize("said", [{}, {"num_chains": 4}])
@pytest.mark.parametrize("shapes", [{"x": (4, 500, 2)}, {"a": (4, 500), "b": (4, 500, 3)}])
def test_an_empirical_of_chains_and_draws_is_refused(shapes, said):
    samples = {name: jnp.ones(shape) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=rf"\(4, 500, \.\.\.\): .*{REMEDY}"):
        Empirical(samples, **said)
    assert Empirical.from_chains(samples).num_chains == 4


def test_one_draw_a_chain_is_no_ambiguity_for_who_knows():
    """An ensemble of one-layer networks, and its members one by one."""
    posterior = Empirical.from_chains({"weight": jnp.ones((4, 1, 6, 3)), "bias": jnp.ones((4, 1, 6))})
    assert posterior.num_chains == tree.num_samples(posterior.samples) == 4
    assert jax.tree.map(lambda leaf: leaf + 1, posterior).num_chains == 4


def test_host_arrays_stay_on_the_host():
    samples = {"w": np.arange(12.0).reshape(2, 3, 2)}
    stored = Empirical.from_chains(samples).samples["w"]
    assert isinstance(stored, np.ndarray)
    assert np.shares_memory(stored, samples["w"])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            {"w": jnp.ones((60, 3, 4)), "b": jnp.ones((60, 4))},
            r"all leaves must agree on \(chains, draws\).*group_by",
        ),
        ({"s": jnp.ones(60)}, r"leaf 's' has shape \(60,\); expected \(chains, draws, \.\.\.\)"),
        ({"s": 1.0}, r"leaf 's' has shape \(\)"),
        ({"a": jnp.ones((2, 5)), "b": jnp.ones((3, 5))}, r"leaf 'b' has shape \(3, 5\), but leaf 'a' begins"),
        ({}, "without leaves"),
        ({"a": jnp.ones((2, 0, 3))}, r"at least one chain and one draw, got \(2, 0\)"),
    ],
)
def test_samples_that_are_not_grouped_are_answered_in_one_line(samples, message):
    with pytest.raises(ValueError, match=message) as caught:
        Empirical.from_chains(samples)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [compact.gaussian, compact.low_rank, io.to_arviz, diagnostics.weight_space])
def test_a_law_must_be_drawn_from_first(call):
    with pytest.raises(ValueError, match=r"got a DiagonalGaussian, a law; draw networks from it first"):
        call(DiagonalGaussian({"w": jnp.zeros(3)}, {"w": jnp.ones(3)}))


def test_draws_in_a_store_must_be_read_first(tmp_path):
    stored = inference.Stored(io.ChunkStore(tmp_path), PARAMS, (0,), CHAINS, DRAWS)
    with pytest.raises(ValueError, match=r"read them first: posterior\.load\(\)"):
        compact.gaussian(stored)


def test_posteriors_of_chains_can_be_kept(tmp_path):
    samples = {"w": jnp.ones((4, 1, 6, 3)), "b": jnp.ones((4, 1, 6))}
    io.save_posterior(tmp_path / "posterior", posteriors.Empirical.from_chains(samples))
    assert io.load_posterior(tmp_path / "posterior")[0].num_chains == 4
