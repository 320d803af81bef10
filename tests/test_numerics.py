"""Laws at the edges of float32: weights from 1e-20 to 1e20, probabilities of 0 and 1, constant features.

What is computed is finite, or infinite where its docstring says so, or refused by a `ValueError`; and scaling
the input changes the answer as the formula says.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn import evaluate, sharing, symmetry
from symbnn.posteriors import DiagonalGaussian
from tests.networks import mlp_apply, mlp_params, mlp_spec

few = settings(derandomize=True, max_examples=8, deadline=None, database=None)
POWERS = st.sampled_from([-20, -13, -6, 0, 6, 13, 20])
SEEDS = st.integers(0, 2**16)
ROUNDING = 1e-5

# Every shape is fixed, so that everything is compiled once.
ROWS, CLASSES, MEMBERS = 12, 3, 4

IN_UNIT_INTERVAL = {
    name: getattr(evaluate, name)
    for name in ("accuracy", "ece", "mce", "adaptive_ece", "classwise_ece", "aurc")
}


@st.composite
def probabilities(draw, *shape):
    """Softmax of logits of any size: from uniform rows over constant logits to exact zeros and ones."""
    rng = np.random.default_rng(draw(SEEDS))
    logits = rng.normal(size=(*shape, CLASSES)) * 10.0 ** draw(POWERS)
    kind = draw(st.sampled_from(["as drawn", "constant", "one-hot", "wrong by one bit"]))
    if kind == "constant":
        logits[:] = logits.ravel()[0]
    probs = np.array(jax.nn.softmax(jnp.asarray(logits, jnp.float32)))
    if kind == "one-hot":
        probs = np.eye(CLASSES, dtype=np.float32)[probs.argmax(-1)]
    if kind == "wrong by one bit":
        probs = np.nextafter(probs, np.float32(1))
    return jnp.asarray(probs)


LABELS = st.lists(st.integers(0, CLASSES - 1), min_size=ROWS, max_size=ROWS).map(
    lambda values: jnp.asarray(values, jnp.int32)
)


@given(probabilities(ROWS), LABELS)
@few
def test_scores_of_any_probabilities_stay_in_their_range(probs, labels):
    for name, metric in IN_UNIT_INTERVAL.items():
        settings = {"bins": 4} if name == "adaptive_ece" else {}
        assert -ROUNDING <= float(metric(probs, labels, **settings)) <= 1 + ROUNDING, name
    assert -ROUNDING <= float(evaluate.brier(probs, labels)) <= 2 + ROUNDING
    at_label = np.asarray(probs)[np.arange(ROWS), labels]
    nll = float(evaluate.nll(probs, labels))
    # Denormal numbers are zero to many processors.
    assert np.isinf(nll) == bool((at_label < np.finfo(np.float32).tiny).any())
    assert nll >= -ROUNDING
    assert np.isfinite(evaluate.entropy_score(probs)).all()


@given(probabilities(ROWS), probabilities(ROWS))
@few
def test_distances_of_predictions_are_distances(first, second):
    there, back = evaluate.total_variation(first, second), evaluate.total_variation(second, first)
    assert -ROUNDING <= float(there) <= 1 + ROUNDING
    assert float(there) == float(back)
    assert float(evaluate.total_variation(first, first)) == 0.0
    assert float(evaluate.agreement(first, first)) == 1.0
    inside, outside = evaluate.max_probability_score(first), evaluate.entropy_score(second)
    both = evaluate.auroc(inside, outside), evaluate.auroc(outside, inside)
    assert sum(map(float, both)) == pytest.approx(1.0)
    for metric in (evaluate.aupr, evaluate.fpr_at):
        assert 0.0 <= float(metric(inside, outside)) <= 1.0


@given(probabilities(MEMBERS, ROWS))
@few
def test_members_disagree_between_nothing_and_everything(members):
    information = evaluate.mutual_information_score(members)
    assert np.all((np.asarray(information) >= 0) & (np.asarray(information) <= np.log(CLASSES) + ROUNDING))
    assert -ROUNDING <= float(evaluate.disagreement(members)) <= 1 + ROUNDING


@given(SEEDS, POWERS, LABELS)
@few
def test_logits_of_any_size_have_an_energy_and_a_temperature(seed, power, labels):
    logits = jnp.asarray(np.random.default_rng(seed).normal(size=(ROWS, CLASSES)) * 10.0**power, jnp.float32)
    assert np.isfinite(evaluate.energy_score(logits)).all()
    assert 1e-3 * (1 - 1e-5) <= float(evaluate.fit_temperature(logits, labels)) <= 1e3 * (1 + 1e-5)


@given(SEEDS, POWERS)
@few
def test_real_predictions_are_judged_alike_in_any_unit(seed, power):
    rng = np.random.default_rng(seed)
    means, targets = rng.normal(size=(MEMBERS, ROWS)), rng.normal(size=ROWS)
    stds = rng.uniform(0.5, 2.0, size=(MEMBERS, ROWS))

    def judged(unit):
        m, s, t = (jnp.asarray(array * unit, jnp.float32) for array in (means, stds, targets))
        return {
            "rmse": float(evaluate.rmse(m[0], t)) / unit,
            "crps": float(evaluate.crps(m, t)) / unit,
            "mixture_crps": float(evaluate.mixture_crps(m, s, t)) / unit,
            "mixture_nll": float(evaluate.mixture_nll(m, s, t)) - np.log(unit),
            "cdf": float(evaluate.mixture_cdf(m, s, t)[0]),
            "wasserstein": float(evaluate.wasserstein(DiagonalGaussian(m, s), DiagonalGaussian(s, s))) / unit,
        }

    assert judged(10.0**power) == pytest.approx(judged(1.0), rel=1e-3, abs=1e-5)


def test_networks_too_large_to_compare_are_refused():
    large = {"w": 1e20 * jax.random.normal(jax.random.key(0), (4, 5))}
    with pytest.raises(ValueError, match=r"'w'.*not finite"):
        evaluate.mmd(large, large)


SIZES = (5, 4, 3)


def network(seed, *, scales=False, signs=False):
    params = mlp_params(SIZES, jax.random.key(seed))
    return params, mlp_spec(SIZES, params, scales=scales, signs=signs)


def rescaled(params, powers):
    """The same function with hidden units scaled by powers of ten."""
    scale = 10.0 ** np.asarray(powers, np.float64)
    hidden, out = params["hidden0"], params["out"]
    return {
        "hidden0": {name: jnp.asarray(leaf * scale, jnp.float32) for name, leaf in hidden.items()},
        "out": out | {"kernel": jnp.asarray(out["kernel"] / scale[:, None], jnp.float32)},
    }


def assert_same_function(params, expected):
    """In float64, up to the rounding of float32 in what the terms of an output add up to at most."""
    inputs = np.random.default_rng(0).normal(size=(8, SIZES[0]))
    wide, wide_expected = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree) for tree in (params, expected)
    )
    found, wanted = mlp_apply(wide, inputs, relu), mlp_apply(wide_expected, inputs, relu)
    largest = mlp_apply(jax.tree.map(np.abs, wide_expected), np.abs(inputs), relu)
    assert np.all(np.abs(found - wanted) <= ROUNDING * largest)


def relu(values):
    return np.maximum(values, 0)


UNIT_POWERS = st.lists(st.sampled_from([-18, -9, 0, 9, 18]), min_size=4, max_size=4)


@given(SEEDS, UNIT_POWERS)
@few
def test_gauges_undo_any_scale_of_the_units(seed, powers):
    params, spec = network(seed, scales=True)
    moved = rescaled(params, powers)
    balanced, expected = symmetry.balance(spec, moved), symmetry.balance(spec, params)
    assert int(balanced.dead_units["h0"]) == int(expected.dead_units["h0"])
    assert float(balanced.residual) < 1e-5
    assert float(balanced.mass_after) == pytest.approx(float(expected.mass_after), rel=1e-4)
    assert_same_function(balanced.params, params)
    normal = symmetry.normalise(spec, moved)
    np.testing.assert_allclose(np.linalg.norm(normal["hidden0"]["kernel"], axis=0), 1, rtol=1e-5)
    assert_same_function(normal, params)
    canonical = symmetry.canonicalise(spec, moved)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        canonical,
        symmetry.canonicalise(spec, params),
    )


@given(SEEDS, POWERS)
@few
def test_orders_and_signs_do_not_depend_on_the_size_of_all_weights(seed, power):
    params, spec = network(seed, signs=True)
    scaled = jax.tree.map(lambda leaf: jnp.asarray(np.float64(leaf) * 10.0**power, jnp.float32), params)
    for gauge in (
        symmetry.canonicalise,
        lambda spec, params: symmetry.sort_units(spec, params, key="mass"),
    ):
        expected = jax.tree.map(lambda leaf: np.float64(leaf) * 10.0**power, gauge(spec, params))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), gauge(spec, scaled), expected)


MATCHINGS = {
    "weights": {"method": "weights"},
    "frank_wolfe": {"method": "frank_wolfe"},
    "correlation": {"method": "activations", "similarity": "correlation"},
    "inner_product": {"method": "activations", "similarity": "inner_product"},
}


@pytest.mark.parametrize("name", MATCHINGS)
@given(SEEDS, POWERS)
@few
def test_planted_permutations_are_found_at_any_size_of_the_weights(name, seed, power):
    params, spec = network(seed)
    params = jax.tree.map(lambda leaf: jnp.asarray(np.float64(leaf) * 10.0**power, jnp.float32), params)
    aligned = symmetry.align(spec, planted(spec, params, seed), reference=params, **matching(name))
    for name_, leaf in params["hidden0"].items():
        np.testing.assert_array_equal(
            aligned.samples["hidden0"][name_], np.broadcast_to(leaf, (3, *leaf.shape))
        )
    assert np.isfinite(aligned.objective).all()


@pytest.mark.parametrize("name", MATCHINGS)
def test_units_without_any_feature_are_still_permuted(name):
    params, spec = network(0)
    constant = jax.tree.map(jnp.zeros_like, params)
    constant["hidden0"]["bias"] += 1.0
    samples = planted(spec, constant, 0)
    aligned = symmetry.align(spec, samples, reference=constant, **matching(name))
    orders = np.asarray(aligned.elements.permutations["h0"])
    np.testing.assert_array_equal(np.sort(orders, axis=-1), np.tile(np.arange(4), (3, 1)))


def planted(spec, params, seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    elements = [symmetry.random_element(spec, key) for key in keys]
    moved = [symmetry.act(spec, element, params) for element in elements]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)


INPUTS = jnp.asarray(np.random.default_rng(1).normal(size=(20, SIZES[0])), jnp.float32)


def matching(name):
    given = {"apply": mlp_apply, "inputs": INPUTS} if "similarity" in MATCHINGS[name] else {}
    return MATCHINGS[name] | given


@given(SEEDS, POWERS)
@few
def test_clusters_do_not_depend_on_the_unit_of_the_weights(seed, power):
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.normal(centre, 0.1, size=(40, 2)) for centre in ((0, 1), (2, 2), (-3, 1))])

    def clustered(unit):
        scaled = (points * unit).astype(np.float32)
        start = sharing.kmeans(jax.random.key(seed), scaled, 3)
        fitted = sharing.fit(scaled, start, num_sweeps=3, tolerance=-np.inf)
        return fitted, sharing.assign(scaled, fitted.mixture)

    (found, labels), (expected, expected_labels) = clustered(10.0**power), clustered(1.0)
    np.testing.assert_array_equal(labels, expected_labels)
    unit = 10.0**power
    np.testing.assert_allclose(
        found.mixture.means, unit * expected.mixture.means, rtol=1e-3, atol=1e-4 * unit
    )
    np.testing.assert_allclose(
        found.mixture.covariances, unit**2 * expected.mixture.covariances, rtol=1e-2, atol=1e-4 * unit**2
    )
    np.testing.assert_allclose(
        found.log_likelihoods, expected.log_likelihoods - 2 * np.log(unit), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("spread", [(0.0, 0.0), (1.0, 0.0), (0.0, 1e-20), (1e20, 0.0)])
def test_points_on_a_line_or_in_one_place_are_a_mixture(spread):
    points = (np.random.default_rng(0).normal(size=(120, 2)) * spread + 0.5).astype(np.float32)
    mixture = sharing.fit(points, sharing.kmeans(jax.random.key(0), points, 3), num_sweeps=3).mixture
    assert all(np.isfinite(part).all() for part in mixture)
    assert mixture.weights.sum() == pytest.approx(1.0)
    labels = sharing.assign(points, mixture)
    assert set(labels) <= {0, 1, 2}
