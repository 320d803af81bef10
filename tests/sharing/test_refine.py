"""Outliers, 2-Wasserstein merging and ellipse weights: closed forms, hand-derived numbers, fixpoints."""

import itertools

import numpy as np
import pytest

from symbnn.sharing import find_ellipses, find_outliers, guards_of, mahalanobis, merge, refine
from symbnn.sharing.ellipses import CHI_SQUARE_95
from symbnn.sharing.merge import guards_after
from symbnn.sharing.outliers import drop_small_clusters
from symbnn.sharing.sweeps import Mixture
from symbnn.sharing.wasserstein import MERGES, square_root, squared_distance

FIRST = (np.array([0.010, 0.030]), np.array([[4.0, 1.0], [1.0, 9.0]]) * 1e-6)
SECOND = (np.array([0.012, 0.031]), np.array([[9.0, -2.0], [-2.0, 4.0]]) * 1e-6)


def eigen_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(np.sqrt(values)) @ vectors.T


def random_covariances(num: int, seed: int = 0) -> np.ndarray:
    factors = np.random.default_rng(seed).normal(size=(num, 2, 2)) * 1e-3
    return factors @ factors.swapaxes(1, 2)


# Distance


def test_distance_of_the_worked_example():
    assert squared_distance(*FIRST, *SECOND) == pytest.approx(7.767884115068e-06, rel=1e-12)
    assert squared_distance(*SECOND, *FIRST) == squared_distance(*FIRST, *SECOND)


def test_distance_is_zero_only_between_equals():
    assert squared_distance(*FIRST, *FIRST) == pytest.approx(0.0, abs=1e-20)
    assert squared_distance(FIRST[0], FIRST[1], FIRST[0], 1.01 * FIRST[1]) > 1e-11


def test_shortcut_equals_the_way_over_eigenvalues():
    first, second = random_covariances(20), random_covariances(20, 1)
    for a, b in zip(first, second, strict=True):
        root = eigen_root(a)
        np.testing.assert_allclose(square_root(a), root, atol=1e-12)
        overlap = np.trace(eigen_root(root @ b @ root))
        expected = np.trace(a) + np.trace(b) - 2 * overlap
        assert squared_distance(np.zeros(2), a, np.zeros(2), b) == pytest.approx(expected, rel=1e-9)


# Merge formulas

EXPECTED = {
    "paper": [[9.91268144, -0.508117708], [-0.508117708, 9.52034753]],
    "code": [[6.5, -0.5], [-0.5, 6.5]],
    "moment": [[7.5, 0.0], [0.0, 6.75]],
    "barycenter": [[6.15401449, -0.529785106], [-0.529785106, 6.15401449]],
}


def merged(name: str, weights=(0.5, 0.5)) -> tuple[np.ndarray, np.ndarray]:
    return MERGES[name](weights[0], *FIRST, weights[1], *SECOND)


@pytest.mark.parametrize("name", EXPECTED)
def test_merged_covariance_of_the_worked_example(name):
    mean, covariance = merged(name)
    np.testing.assert_allclose(mean, [0.011, 0.0305], rtol=1e-12)
    np.testing.assert_allclose(covariance * 1e6, EXPECTED[name], rtol=1e-8, atol=1e-12)


def test_the_barycentre_is_the_nearest_to_both():
    total = {
        name: sum(squared_distance(*merged(name), *parent) for parent in (FIRST, SECOND)) for name in EXPECTED
    }
    expected = {"barycenter": 3.88394e-6, "code": 3.90338e-6, "moment": 4.08983e-6, "paper": 5.51532e-6}
    assert total == pytest.approx(expected, rel=2e-6)
    assert total["barycenter"] == pytest.approx(squared_distance(*FIRST, *SECOND) / 2, rel=1e-9)


@pytest.mark.parametrize("name", EXPECTED)
def test_merging_equals_gives_the_same_but_for_the_printed_formula(name):
    mean, covariance = MERGES[name](0.3, *FIRST, 0.7, *FIRST)
    np.testing.assert_allclose(mean, FIRST[0])
    np.testing.assert_allclose(covariance, (1.5 if name == "paper" else 1.0) * FIRST[1], rtol=1e-9)


def test_the_printed_formula_is_not_symmetric():
    _, forth = MERGES["paper"](0.5, *FIRST, 0.5, *SECOND)
    _, back = MERGES["paper"](0.5, *SECOND, 0.5, *FIRST)
    assert np.abs(forth - back).max() == pytest.approx(9.04e-9, rel=1e-2)
    assert np.trace(forth) == pytest.approx(np.trace(back), rel=1e-12)


def test_moment_merging_keeps_the_pooled_moments():
    random = np.random.default_rng(0)
    parts = [random.multivariate_normal(m, s, n) for (m, s), n in ((FIRST, 300), (SECOND, 900))]
    moments = [(part.mean(0), np.cov(part.T, ddof=0)) for part in parts]
    mean, covariance = MERGES["moment"](300, *moments[0], 900, *moments[1])
    pooled = np.concatenate(parts)
    np.testing.assert_allclose(mean, pooled.mean(0))
    np.testing.assert_allclose(covariance, np.cov(pooled.T, ddof=0))


# Merging to a fixpoint


def row_of(num: int, step: float = 0.01) -> tuple[np.ndarray, np.ndarray, Mixture]:
    """Components on a line with twenty members each: points, labels, mixture."""
    means = np.stack([step * np.arange(num), np.full(num, 0.03)], axis=1)
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(num, dtype=np.int32), 20)
    points = means[labels] + 1e-3 * random.normal(size=(20 * num, 2))
    covariances = np.broadcast_to(1e-6 * np.eye(2), (num, 2, 2)).copy()
    return points, labels, Mixture(np.full(num, 1 / num), means, covariances)


def test_infinite_thresholds_merge_everything_within_the_distance():
    points, labels, mixture = row_of(6)
    found = merge(mixture, guards_of(points, labels, 6), distance=np.inf, variance=np.inf)
    assert found.mixture.num_components == 1
    assert found.mixture.weights.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(found.numbers, np.zeros(6))


def test_a_second_refinement_changes_nothing():
    points, labels, mixture = row_of(40, step=0.002)
    mixture.means[:, 0] += 0.0005 * np.sin(np.arange(40))
    first = refine(points, mixture, labels, distance=1.2e-5)
    assert 1 < first.mixture.num_components < 40
    again = refine(points, first.mixture, first.labels, distance=1.2e-5)
    assert again.mixture.num_components == first.mixture.num_components
    np.testing.assert_array_equal(again.labels, first.labels)
    np.testing.assert_array_equal(again.ellipses.indices, first.ellipses.indices)
    left = merge(first.mixture, guards_of(points, first.labels, first.mixture.num_components), distance=1e-9)
    assert left.mixture.num_components == first.mixture.num_components


def test_more_distance_leaves_fewer_components():
    points, labels, mixture = row_of(30, step=0.002)
    guards = guards_of(points, labels, 30)
    counts = [
        merge(mixture, guards, distance=d, variance=np.inf).mixture.num_components
        for d in (1e-7, 1e-5, 1e-4, 1e-3)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 30
    assert merge(mixture, guards, distance=np.inf, variance=np.inf, fewest=7).mixture.num_components == 7


def test_a_steep_or_wide_component_is_left_alone():
    points, labels, mixture = row_of(3)
    gradients = np.zeros((4, 3, 2))
    gradients[:, 1] = 5.0
    guards = guards_of(points, labels, 3, gradients)
    found = merge(mixture, guards, distance=np.inf, gradient=1.0, variance=np.inf)
    np.testing.assert_array_equal(found.numbers, [0, 1, 0])
    wide = guards._replace(gradients=np.zeros((1, 3, 2)), variances=np.array([0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(merge(mixture, wide, distance=np.inf).numbers, [0, 0, 1])


def test_gradient_and_variance_of_a_union_are_exact():
    points, labels, _ = row_of(2)
    gradients = np.random.default_rng(1).normal(size=(5, 2, 2))
    both = guards_after(guards_of(points, labels, 2, gradients), np.array([0]), np.array([1]))
    whole = guards_of(points, np.zeros_like(labels), 1, gradients.sum(1, keepdims=True))
    for name in ("counts", "means", "variances", "gradient_norms"):
        np.testing.assert_allclose(getattr(both, name)[0], getattr(whole, name)[0])


# Ellipse weights


def test_the_threshold_is_the_95_percent_quantile():
    assert pytest.approx(5.991464547, abs=1e-9) == CHI_SQUARE_95


def test_five_percent_of_one_gaussian_are_ellipse_weights():
    points = np.random.default_rng(0).multivariate_normal(*FIRST, 20_000)
    mixture = Mixture(np.ones(1), FIRST[0][None], FIRST[1][None])
    found = find_ellipses(points, np.zeros(20_000, np.int32), mixture)
    # Five standard errors of a share of 5 %.
    assert len(found.indices) / 20_000 == pytest.approx(0.05, abs=5 * np.sqrt(0.05 * 0.95 / 20_000))
    np.testing.assert_array_equal(found.weights, np.ones((len(found.indices), 1)))


def test_no_ellipses_where_every_weight_has_its_component():
    points = np.random.default_rng(0).normal(size=(30, 2))
    mixture = Mixture(np.full(30, 1 / 30), points, np.broadcast_to(np.eye(2), (30, 2, 2)))
    assert len(find_ellipses(points, np.arange(30, dtype=np.int32), mixture).indices) == 0


def test_blends_are_normalised_densities_of_the_two_densest_of_five_nearest():
    _, _, mixture = row_of(8)
    mixture.covariances[3] *= 4.0
    points = np.array([[0.0, 0.03], [0.024, 0.033], [0.5, 0.03], [0.046, 0.03]])
    labels = np.array([0, 2, -1, 4], np.int32)
    found = find_ellipses(points, labels, mixture)
    np.testing.assert_array_equal(found.indices, [1, 3])
    np.testing.assert_allclose(found.weights.sum(1), 1.0, rtol=1e-6)
    for row, index in enumerate(found.indices):
        densities = np.array(
            [
                np.exp(-0.5 * mahalanobis(points[[index]], np.array([k]), mixture)[0])
                / np.sqrt(np.linalg.det(mixture.covariances[k]))
                for k in range(8)
            ]
        )
        near = np.argsort(np.linalg.norm(mixture.means - points[index], axis=1))[:5]
        best = near[np.argsort(-densities[near])[:2]]
        np.testing.assert_array_equal(found.components[row], best)
        np.testing.assert_allclose(found.weights[row], densities[best] / densities[best].sum(), atol=1e-6)


# Outliers


def test_outliers_by_magnitude_and_gradient():
    random = np.random.default_rng(0)
    means, stds, gradients = random.normal(0, 0.1, 1234), np.full(1234, 0.03), random.exponential(size=1234)
    found = find_outliers(means, stds, gradients)
    np.testing.assert_array_equal(found.large, np.abs(means) > 0.2)
    assert found.steep.sum() == 13  # the ceiling of one percent
    assert gradients[found.steep].min() > gradients[~found.steep].max()
    np.testing.assert_array_equal(found.mask, found.large | found.steep)
    counts = [find_outliers(means, stds, magnitude=m).mask.sum() for m in (0.1, 0.2, 0.4)]
    assert counts == sorted(counts, reverse=True)


def test_members_of_small_clusters_leave_and_the_rest_is_numbered_anew():
    _, _, mixture = row_of(3)
    labels = np.array([0] * 30 + [1] * 19 + [2] * 20, np.int32)
    small, numbered, left = drop_small_clusters(labels, mixture)
    np.testing.assert_array_equal(small, labels == 1)
    np.testing.assert_array_equal(numbered[~small], np.where(labels[~small] == 2, 1, 0))
    assert left.num_components == 2
    assert left.weights.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no cluster of 3 has 31 members"):
        drop_small_clusters(labels, mixture, smallest_cluster=31)


def test_thresholds_that_leave_nothing_are_named():
    means, stds = np.array([0.3, -0.4, 0.5]), np.full(3, 0.03)
    with pytest.raises(ValueError, match=r"outliers: all 3 weights are .* raise magnitude"):
        find_outliers(means, stds)
    with pytest.raises(ValueError, match=r"outliers: found none in 3 weights; the largest \|mean\| is 0.5"):
        find_outliers(means, stds, magnitude=1.0, required=True)
    for name, bad in itertools.product(("means", "stds"), (np.nan, np.inf)):
        values = {"means": means.copy(), "stds": stds.copy()}
        values[name][1] = bad
        with pytest.raises(ValueError, match=f"{name} of 1 of 3 weights are not finite, the first at 1"):
            find_outliers(**values, magnitude=1.0)


# Order


def test_ellipses_first_are_those_of_the_fitted_components_under_their_merged_numbers():
    random = np.random.default_rng(3)
    centres = np.linspace(-0.2, 0.2, 12)
    labels = random.integers(12, size=4000).astype(np.int32)
    points = np.stack(
        [centres[labels] + 0.01 * random.normal(size=4000), 0.03 + 1e-3 * random.normal(size=4000)], 1
    )
    labels[:50] = -1
    mixture = Mixture(
        np.full(12, 1 / 12),
        np.stack([centres, np.full(12, 0.03)], 1),
        np.tile(np.diag([1e-4, 1e-6]), (12, 1, 1)),
    )
    fitted = find_ellipses(points, labels, mixture)
    assert 0 < len(fitted.indices) < 400
    for distance in (0.0, 2e-3, 1.0):
        first = refine(points, mixture, labels, order="ellipses first", distance=distance, variance=np.inf)
        np.testing.assert_array_equal(first.ellipses.indices, fitted.indices)
        np.testing.assert_array_equal(first.ellipses.weights, fitted.weights)
        np.testing.assert_array_equal(first.ellipses.components, first.merged.numbers[fitted.components])
        last = refine(points, mixture, labels, distance=distance, variance=np.inf)
        np.testing.assert_array_equal(first.labels, last.labels)
        np.testing.assert_array_equal(first.mixture.means, last.mixture.means)
        expected = find_ellipses(points, last.labels, last.mixture)
        np.testing.assert_array_equal(last.ellipses.indices, expected.indices)
    assert first.mixture.num_components == 1
    with pytest.raises(ValueError, match="unknown order 'ellipses last'; did you mean 'ellipses first'"):
        refine(points, mixture, labels, order="ellipses last")
