"""The mixture of the (mean, standard deviation) plane: EM laws, scikit-learn as oracle, cells, bad input."""

import warnings

import jax
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from symbnn.sharing import gmm
from symbnn.sharing.cells import arrange
from symbnn.sharing.gmm import assign, fit, fit_minibatch
from symbnn.sharing.kmeans import kmeans
from symbnn.sharing.sweeps import Mixture, Moments, sweep

# Shares, means and covariances of three clusters at the scale of weights.
PLANTED = Mixture(
    np.array([0.5, 0.3, 0.2]),
    np.array([[-0.05, 0.03], [0.0, 0.05], [0.08, 0.03]]),
    np.array([[[9, 2], [2, 4]], [[4, -1], [-1, 2]], [[16, 0], [0, 1]]]) * 1e-5,
)


def draw(mixture: Mixture, num: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    chosen = random.choice(mixture.num_components, num, p=mixture.weights)
    factors = np.linalg.cholesky(mixture.covariances)
    return mixture.means[chosen] + np.einsum("nij,nj->ni", factors[chosen], random.normal(size=(num, 2)))


def weights_like(num: int, seed: int = 0) -> np.ndarray:
    """Points as a network has them: heavy-tailed means, standard deviations that hardly vary."""
    random = np.random.default_rng(seed)
    means = np.clip(0.03 * random.standard_t(4, num), -0.2, 0.2)
    return np.stack([means, 0.03 + 0.002 * random.normal(size=num)], axis=1)


@pytest.fixture(scope="module")
def start() -> Mixture:
    return kmeans(jax.random.key(0), weights_like(2000), 8)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_full_batch_em_equals_scikit_learn_from_the_same_start(start, dtype, tolerance):
    points = weights_like(2000)
    jitter = gmm.default_jitter(start)
    oracle = GaussianMixture(
        8,
        weights_init=start.weights,
        means_init=start.means,
        precisions_init=np.linalg.inv(start.covariances),
        reg_covar=jitter,
        max_iter=6,
        tol=0.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        oracle.fit(points)
    fitted = fit(points, start, num_sweeps=6, jitter=jitter, dtype=dtype)
    spread = points.std(0)
    np.testing.assert_allclose(fitted.mixture.weights, oracle.weights_, rtol=tolerance)
    np.testing.assert_allclose(fitted.mixture.means / spread, oracle.means_ / spread, atol=tolerance)
    scale = np.outer(spread, spread)
    np.testing.assert_allclose(
        fitted.mixture.covariances / scale, oracle.covariances_ / scale, atol=tolerance
    )
    assert fitted.log_likelihoods[-1] == pytest.approx(oracle.lower_bound_, abs=tolerance)
    if dtype == "float64":
        np.testing.assert_array_equal(assign(points, fitted.mixture, dtype=dtype), oracle.predict(points))


def test_the_likelihood_of_full_batch_em_never_falls(start):
    fitted = fit(weights_like(2000), start, num_sweeps=40, jitter=0.0, dtype="float64")
    assert len(fitted.log_likelihoods) == 40
    assert np.diff(fitted.log_likelihoods).min() > -1e-12
    assert np.diff(fitted.log_likelihoods)[0] > 1e-3


def test_a_planted_mixture_is_found():
    points = draw(PLANTED, 6000)
    found = fit(points, kmeans(jax.random.key(1), points, 3), num_sweeps=60).mixture
    order = np.argsort(found.means[:, 0])
    sizes = 6000 * PLANTED.weights
    errors = np.sqrt(np.diagonal(PLANTED.covariances, axis1=1, axis2=2) / sizes[:, None])
    assert np.all(np.abs(found.means[order] - PLANTED.means) < 5 * errors)
    np.testing.assert_allclose(found.weights[order], PLANTED.weights, atol=5 * np.sqrt(0.25 / 6000))
    np.testing.assert_allclose(found.covariances[order], PLANTED.covariances, atol=2e-5)


def test_minibatch_em_comes_to_the_likelihood_of_full_batch_em():
    points = draw(PLANTED, 6000)
    begin = kmeans(jax.random.key(1), points, 3, num_iterations=1)
    full = fit(points, begin, num_sweeps=60).mixture
    batches = fit_minibatch(0, points, begin, num_steps=60, batch_size=1500).mixture
    values = [fit(points, mixture, num_sweeps=1).log_likelihoods[0] for mixture in (full, batches)]
    assert values[1] == pytest.approx(values[0], abs=5e-3)
    again = fit_minibatch(0, points, begin, num_steps=60, batch_size=1500).mixture
    np.testing.assert_array_equal(batches.means, again.means)


def test_blended_moments_are_those_of_the_blended_sums():
    old = Moments(PLANTED.weights, PLANTED.means, PLANTED.covariances)
    new = Moments(PLANTED.weights[::-1], PLANTED.means + 0.01, PLANTED.covariances[::-1])

    def raw(moments: Moments) -> np.ndarray:
        outer = moments.means[:, :, None] * moments.means[:, None, :]
        return moments.shares[:, None, None] * (moments.covariances + outer)

    mixed = gmm.blend(old, new, 0.3)
    np.testing.assert_allclose(mixed.shares, 0.7 * old.shares + 0.3 * new.shares)
    first = 0.7 * old.shares[:, None] * old.means + 0.3 * new.shares[:, None] * new.means
    np.testing.assert_allclose(mixed.shares[:, None] * mixed.means, first)
    np.testing.assert_allclose(raw(mixed), 0.7 * raw(old) + 0.3 * raw(new))


@pytest.mark.slow
def test_few_candidates_give_what_all_components_give():
    points = weights_like(20_000)
    begin = kmeans(jax.random.key(0), points, 100, num_iterations=3)
    cells = arrange(points)
    few, value = sweep(cells, begin, num_candidates=24)
    every, exact = sweep(cells, begin, num_candidates=100)
    assert value == pytest.approx(exact, abs=1e-5)
    np.testing.assert_allclose(few.shares, every.shares, atol=1e-5)
    labels = assign(points, begin, num_candidates=24)
    assert np.mean(labels == assign(points, begin, num_candidates=100)) > 0.999


def test_narrow_components_far_from_zero_survive_float32():
    """Width 1e-4 at 0.2: the expanded square would lose all digits of the variance."""
    random = np.random.default_rng(0)
    points = np.stack([0.2 + 1e-4 * random.normal(size=3000), 0.03 + 1e-5 * random.normal(size=3000)], axis=1)
    begin = kmeans(jax.random.key(0), points, 2)
    single, double = (fit(points, begin, num_sweeps=5, dtype=d).mixture for d in ("float32", "float64"))
    np.testing.assert_allclose(single.means, double.means, atol=1e-7)
    for axis in (0, 1):
        got, wanted = (each.covariances[:, axis, axis] for each in (single, double))
        np.testing.assert_allclose(got, wanted, rtol=2e-3)


@pytest.mark.parametrize("num", [1, 7, 1000, 1031])
def test_cells_hold_every_point_once(num):
    points = weights_like(num).astype(np.float32)
    cells = arrange(points, size=64)
    assert sorted(cells.order) == list(range(num))
    assert float(cells.counts.sum()) == num
    flat = np.asarray(cells.points).reshape(-1, 2)[cells.slots]
    np.testing.assert_array_equal(flat, points[cells.order])


def test_the_start_is_as_good_as_scikit_learns():
    points = weights_like(5000)

    def inertia(centres: np.ndarray) -> float:
        return float(((points[:, None] - centres) ** 2).sum(-1).min(1).sum())

    ours = inertia(kmeans(jax.random.key(0), points, 20, num_iterations=20).means)
    oracle = inertia(KMeans(20, n_init=1, random_state=0).fit(points).cluster_centers_)
    assert ours < 1.1 * oracle


def test_as_many_components_as_points_is_the_limit():
    points = weights_like(12)
    mixture = kmeans(jax.random.key(0), points, 12)
    assert np.isfinite(mixture.covariances).all()
    assert len(np.unique(assign(points, mixture))) == 12
    with pytest.raises(ValueError, match="between 1 and 12, the number of points; got 13"):
        kmeans(jax.random.key(0), points, 13)


def test_equal_points_are_no_trouble():
    points = np.tile([[0.1, 0.03]], (50, 1))
    mixture = fit(points, kmeans(jax.random.key(0), points, 2), num_sweeps=2, jitter=1e-12).mixture
    np.testing.assert_allclose(mixture.means, points[:2], atol=1e-6)


def test_bad_points_are_named(start):
    points = weights_like(50)
    points[7, 1] = np.nan
    with pytest.raises(ValueError, match="point 7 is"):
        fit(points, start)
    with pytest.raises(ValueError, match=r"expected shape \(n, 2\), got \(4, 3\)"):
        assign(np.zeros((4, 3)), start)
    with pytest.raises(ValueError, match=r"decay must be in \(0.5, 1\]"):
        fit_minibatch(0, weights_like(50), start, num_steps=1, decay=0.4)
    with pytest.raises(ValueError, match="dtype: expected one of"):
        fit(weights_like(50), start, dtype="float16")
