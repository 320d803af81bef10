"""Refinement: laws of the fit, a case whose optimum is known, what it costs, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from symbnn import compact, evaluate, models, posteriors, symmetry
from symbnn.inference.training import epochs
from symbnn.models import Model
from symbnn.posteriors import DiagonalGaussian, Empirical, LowRankGaussian, LowRankPrecision

KEY = jax.random.key(0)
MODEL = models.mlp((3,), 4, hidden=(5,))
INPUTS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
PROBS = jax.nn.softmax(MODEL.apply(MODEL.init(jax.random.key(9)), INPUTS))
START = DiagonalGaussian(
    MODEL.init(KEY), jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), MODEL.init(KEY))
)
SETTINGS = {"epochs": 40, "batch_size": 20, "num_draws": 4, "learning_rate": 0.05}


@pytest.fixture(scope="module")
def fit():
    return compact.refine(START, MODEL, INPUTS, PROBS, KEY, **SETTINGS)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_no_epochs_leave_the_start_alone():
    fit = compact.refine(START, MODEL, INPUTS, PROBS, KEY, epochs=0)
    assert_same(fit.posterior, START)
    assert fit.diagnostics["divergence"] == 0
    assert fit.diagnostics["shift"] == 0
    assert fit.diagnostics["std_ratio"] == 1


def test_predictions_come_nearer_to_the_reference(fit):
    def distance(posterior):
        probs = evaluate.predict(MODEL.apply, posterior, INPUTS, key=KEY, num_samples=500)
        return evaluate.total_variation(probs, PROBS)

    assert distance(fit.posterior) < 0.5 * distance(START)
    assert fit.diagnostics["loss"].shape == (40,)
    assert fit.diagnostics["loss"][-1] < fit.diagnostics["loss"][0]


def test_the_same_key_gives_the_same_law(fit):
    assert_same(compact.refine(START, MODEL, INPUTS, PROBS, KEY, **SETTINGS).posterior, fit.posterior)
    other = compact.refine(START, MODEL, INPUTS, PROBS, jax.random.key(1), **SETTINGS)
    assert not np.array_equal(other.posterior.mean["out"]["bias"], fit.posterior.mean["out"]["bias"])


def test_a_penalty_keeps_the_law_near_and_compiles_nothing(fit):
    compiled = epochs._scan._cache_size()
    divergences = [fit.diagnostics["divergence"]] + [
        compact.refine(START, MODEL, INPUTS, PROBS, KEY, penalty=penalty, **SETTINGS).diagnostics[
            "divergence"
        ]
        for penalty in (0.01, 0.1, 10.0)
    ]
    assert np.all(np.diff(divergences) < 0)
    assert divergences[-1] < 1e-3 < divergences[0]
    assert epochs._scan._cache_size() == compiled


def test_divergence_is_that_of_the_evaluators(fit):
    """Closed forms written twice: here in units of the start, there in units of the weights."""
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(START.mean))
    expected = evaluate.kl(fit.posterior, START) / num_weights
    np.testing.assert_allclose(fit.diagnostics["divergence"], expected, rtol=1e-4)


def test_displacement_of_a_known_move():
    moved = DiagonalGaussian(
        jax.tree.map(lambda m, s: m + 2 * s, START.mean, START.std), jax.tree.map(lambda s: s / 4, START.std)
    )
    found = compact.displacement(moved, START)
    np.testing.assert_allclose(found.shift, 2.0, rtol=1e-5)
    np.testing.assert_allclose(found.std_ratio, 0.25, rtol=1e-5)
    np.testing.assert_allclose(found.divergence, np.log(4) + (1 / 16 + 4 - 1) / 2, rtol=1e-5)


def test_the_scale_of_the_units_does_not_matter(fit):
    """ReLU units rescaled by powers of two compute the same numbers, so the fit takes the same steps."""
    scales = {"hidden": 2.0 ** jnp.array([[-2.0, -1.0, 0.0, 1.0, 3.0]])}
    element = symmetry.identity(MODEL.spec)._replace(scales=scales)

    def scaled(posterior):
        return DiagonalGaussian(
            *(symmetry.act(MODEL.spec, element, part) for part in (posterior.mean, posterior.std))
        )

    found = compact.refine(scaled(START), MODEL, INPUTS, PROBS, KEY, **SETTINGS).posterior
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, scaled(fit.posterior))


def test_a_known_weight_stays():
    std = {**START.std, "out": jax.tree.map(jnp.zeros_like, START.std["out"])}
    start = DiagonalGaussian(START.mean, std)
    fit = compact.refine(start, MODEL, INPUTS, PROBS, KEY, **SETTINGS)
    assert_same(fit.posterior.mean["out"], START.mean["out"])
    assert_same(fit.posterior.std["out"], std["out"])
    assert np.isfinite(fit.diagnostics["divergence"])
    assert fit.diagnostics["shift"] > 0


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
def test_reaches_the_optimum_of_two_logits(loss):
    """Logits N(±m, s²) on one input: their difference is N(2m, 2s²), so quadrature gives the objective."""
    start = DiagonalGaussian({"w": jnp.zeros((1, 2))}, {"w": jnp.ones((1, 2))})
    model = Model(lambda key: start.mean, linear, None, None, (1,))  # type: ignore[arg-type]
    penalty, share = 0.02, 0.9
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def objective(point):
        m, s = point
        probs = np.sum(weights / weights.sum() / (1 + np.exp(-(2 * m + np.sqrt(2) * np.exp(s) * nodes))))
        pair = np.array([probs, 1 - probs])
        target = np.array([share, 1 - share])
        value = -target @ np.log(pair) if loss == "cross_entropy" else np.sum((target - pair) ** 2)
        return value + penalty * 2 * ((m**2 + np.exp(2 * s) - 1) / 2 - s)

    expected = minimize(objective, [0.1, 0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    fit = compact.refine(
        start,
        model,
        np.ones((16, 1), np.float32),
        np.tile(np.float32([share, 1 - share]), (16, 1)),
        KEY,
        epochs=600,
        batch_size=16,
        num_draws=256,
        learning_rate=0.02,
        loss=loss,
        penalty=penalty,
    )
    np.testing.assert_allclose(fit.posterior.mean["w"][0], [expected[0], -expected[0]], atol=0.02)
    np.testing.assert_allclose(jnp.log(fit.posterior.std["w"][0]), expected[1], atol=0.02)


def linear(params, inputs):
    return inputs @ params["w"]


def test_progress_is_told():
    events = []
    compact.refine(START, MODEL, INPUTS, PROBS, KEY, progress=events.append, **SETTINGS)
    assert events[-1].stage == "refinement"
    assert events[-1].done == events[-1].total == 40
    assert {"loss"} <= events[-1].statistics.keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": INPUTS[:, :2]}, r"inputs must have shape \(inputs, \*\(3,\)\); got \(40, 2\)"),
        ({"reference_probs": PROBS[:30]}, r"reference_probs must have shape \(40, 4\)"),
        ({"reference_probs": 2 * PROBS}, "must be probabilities"),
        ({"reference_probs": -PROBS}, "must be probabilities"),
        ({"reference_probs": PROBS * jnp.nan}, "must be probabilities"),
        ({"epochs": -1}, "epochs must be a whole number of at least 0; got -1"),
        ({"num_draws": 0}, "num_draws must be a whole number of at least 1; got 0"),
        ({"batch_size": 41}, "batch_size is 41, but there are only 40"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"penalty": -1.0}, "penalty must be at least 0 and finite; got -1.0"),
        ({"penalty": float("nan")}, "penalty must be at least 0 and finite; got nan"),
        ({"loss": "cross-entropy"}, "cross_entropy"),
    ],
)
def test_bad_input_is_named(changes, message):
    arguments = {"inputs": INPUTS, "reference_probs": PROBS} | SETTINGS | changes
    with pytest.raises(ValueError, match=message):
        compact.refine(START, MODEL, key=KEY, **arguments)


def test_mixed_up_points_lie_between_two_inputs():
    ends = jnp.array([[0.0, 0.0], [1.0, 3.0]])
    points = compact.mixed_up(KEY, ends, 200)
    np.testing.assert_allclose(points[:, 1], 3 * points[:, 0], atol=1e-6)
    assert points[:, 0].min() >= 0
    assert points[:, 0].max() <= 1
    # A quarter of the pairs are (0, 0) and a quarter (1, 1); the others are uniform between them.
    between = (points[:, 0] > 0) & (points[:, 0] < 1)
    assert abs(between.mean() - 0.5) < 4 * np.sqrt(0.25 / 200)
    assert_same(points, compact.mixed_up(KEY, ends, 200))
    assert compact.mixed_up(KEY, jnp.zeros((3, 2, 2)), 5).shape == (5, 2, 2)


def test_nothing_cannot_be_mixed_up():
    with pytest.raises(ValueError, match="at least one; got shape"):
        compact.mixed_up(KEY, jnp.zeros((0, 2)), 5)
    with pytest.raises(ValueError, match="num must be a whole number"):
        compact.mixed_up(KEY, jnp.zeros((4, 2)), 0)


def test_refine_says_what_it_starts_from():
    networks = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), MODEL.init(KEY))
    precision = LowRankPrecision(START.mean, START.std, FACTORS)
    with pytest.raises(ValueError, match="or an Empirical, not from LowRankPrecision; fit"):
        compact.refine(precision, MODEL, INPUTS, PROBS, KEY)
    still_stacked = DiagonalGaussian(networks, networks)
    with pytest.raises(
        ValueError, match=r"posterior\.mean: leaf 'hidden0?/bias' has shape \(3, 5\); expected"
    ):
        compact.refine(still_stacked, MODEL, INPUTS, PROBS, KEY)


FACTORS = jax.tree.map(
    lambda leaf: 0.3 * jax.random.normal(jax.random.key(leaf.size), (2, *leaf.shape)), START.mean
)
WITH_FACTORS = LowRankGaussian(START.mean, FACTORS, jax.tree.map(lambda leaf: 0.5 * leaf, START.std))


def test_a_law_with_factors_comes_nearer_and_keeps_its_kind():
    fit = compact.refine(WITH_FACTORS, MODEL, INPUTS, PROBS, KEY, **SETTINGS)

    def distance(posterior):
        probs = evaluate.predict(MODEL.apply, posterior, INPUTS, key=KEY, num_samples=500)
        return evaluate.total_variation(probs, PROBS)

    assert isinstance(fit.posterior, LowRankGaussian)
    assert fit.posterior.rank == 2
    assert distance(fit.posterior) < 0.5 * distance(WITH_FACTORS)
    moves = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), fit.posterior.factors, FACTORS)
    assert all(move > 0 for move in jax.tree.leaves(moves))


def test_no_epochs_leave_a_law_with_factors_alone():
    assert_same(compact.refine(WITH_FACTORS, MODEL, INPUTS, PROBS, KEY, epochs=0).posterior, WITH_FACTORS)
    bare = LowRankGaussian(START.mean, FACTORS)
    assert compact.refine(bare, MODEL, INPUTS, PROBS, KEY, epochs=0).posterior.std is None


def test_factors_of_zero_take_the_first_step_of_the_diagonal_law():
    """Other programs, so equal but for the rounding of a number."""
    still = LowRankGaussian(START.mean, jax.tree.map(jnp.zeros_like, FACTORS), START.std)
    settings = SETTINGS | {"epochs": 1, "batch_size": 40}
    found = compact.refine(still, MODEL, INPUTS, PROBS, KEY, **settings)
    expected = compact.refine(START, MODEL, INPUTS, PROBS, KEY, **settings)
    for part in ("mean", "std"):
        one, other = getattr(found.posterior, part), getattr(expected.posterior, part)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), one, other)


def test_shrinking_counts_for_factors_too():
    """One step of nearly no length, so what is left is the start, shrunk."""
    settings = SETTINGS | {"epochs": 1, "batch_size": 40, "learning_rate": 1e-9, "shrink": 0.25}
    found = compact.refine(WITH_FACTORS, MODEL, INPUTS, PROBS, KEY, **settings)
    for part in ("std", "factors"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, 0.25 * b, rtol=1e-4, atol=1e-7),
            getattr(found.posterior, part),
            getattr(WITH_FACTORS, part),
        )
    np.testing.assert_allclose(found.diagnostics["std_ratio"], 0.25, rtol=1e-4)


def test_mixtures_of_laws_with_factors_are_refined_together():
    start = posteriors.mixture([WITH_FACTORS, WITH_FACTORS])
    fit = compact.refine(start, MODEL, INPUTS, PROBS, KEY, **SETTINGS)
    assert fit.posterior.components.factors["out"]["bias"].shape == (2, 2, 4)
    assert fit.diagnostics["loss"][-1] < fit.diagnostics["loss"][0]


def test_a_penalty_of_a_law_with_factors_is_refused():
    with pytest.raises(ValueError, match="penalty is of diagonal Gaussians only"):
        compact.refine(WITH_FACTORS, MODEL, INPUTS, PROBS, KEY, penalty=0.1, **SETTINGS)


def test_networks_come_to_predict_together_as_the_reference():
    """Three networks far from it; two of them could stay as they are, so they are asked as a mean."""
    networks = jax.vmap(MODEL.init)(jax.random.split(KEY, 3))
    start = Empirical(networks, num_chains=3)
    fit = compact.refine(start, MODEL, INPUTS, PROBS, KEY, **SETTINGS)

    def distance(posterior):
        return evaluate.total_variation(evaluate.predict(MODEL.apply, posterior, INPUTS), PROBS)

    assert isinstance(fit.posterior, Empirical)
    assert fit.posterior.num_chains == 3
    assert distance(fit.posterior) < 0.3 * distance(start)
    assert fit.diagnostics["shift"] > 0
    assert_same(compact.refine(start, MODEL, INPUTS, PROBS, KEY, epochs=0).posterior, start)


def test_one_network_is_refused():
    """It would not move, and nobody would be told."""
    start = Empirical(jax.vmap(MODEL.init)(jax.random.split(KEY, 1)))
    with pytest.raises(ValueError, match="keep at least two"):
        compact.refine(start, MODEL, INPUTS, PROBS, KEY, **SETTINGS)


def test_a_penalty_of_networks_is_refused():
    start = Empirical(jax.vmap(MODEL.init)(jax.random.split(KEY, 3)))
    with pytest.raises(ValueError, match="penalty is of diagonal Gaussians only"):
        compact.refine(start, MODEL, INPUTS, PROBS, KEY, penalty=0.1, **SETTINGS)
