"""Compact laws have the moments of the samples; pruning keeps exactly the surest weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from symbnn import compact


def make_samples(count: int = 7):
    random = np.random.default_rng(0)
    return {
        "w": jnp.asarray(random.normal(size=(count, 3, 2)), jnp.float32),
        "b": jnp.asarray(random.normal(size=(count, 4)), jnp.float32),
    }


def flat(samples):
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(samples)], 1)


def test_gaussian_has_the_samples_moments():
    posterior = compact.gaussian(make_samples())
    moments = flat(make_samples())
    mean = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.mean)])
    std = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.std)])
    np.testing.assert_allclose(mean, moments.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, moments.std(0, ddof=1), rtol=1e-5)


def test_one_sample_is_its_own_law():
    posterior = compact.gaussian(make_samples(1))
    assert all(not leaf.any() for leaf in jax.tree.leaves(posterior.std))


@pytest.mark.parametrize(("count", "rank"), [(2, 1), (7, 6), (10, 9), (11, 10), (40, 10)])
def test_low_rank_of_full_rank_has_the_exact_covariance(count, rank):
    """Of fewer samples than the ten weights, of as many, and of more."""
    posterior = compact.low_rank(make_samples(count))
    factors = flat(posterior.factors)
    assert factors.shape == (rank, 10)
    np.testing.assert_allclose(factors.T @ factors, np.cov(flat(make_samples(count)).T), atol=3e-6)


@pytest.mark.parametrize("count", [7, 40])
def test_low_rank_keeps_the_leading_directions(count):
    samples = flat(make_samples(count))
    factors = flat(compact.low_rank(make_samples(count), rank=2).factors)
    _, values, vectors = np.linalg.svd(samples - samples.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.linalg.norm(factors, axis=1), values[:2] / np.sqrt(count - 1), rtol=1e-4)
    turned = vectors[:2] * np.sign(np.sum(vectors[:2] * factors, axis=1, keepdims=True))
    expected = turned * values[:2, None] / np.sqrt(count - 1)
    np.testing.assert_allclose(factors, expected, rtol=2e-3, atol=2e-5)


def test_low_rank_draws_have_the_samples_spread():
    draws = compact.low_rank(make_samples()).sample(jax.random.key(0), 20_000)
    expected = np.cov(flat(make_samples()).T)
    # Standard error of a covariance of n draws is about √((σ_i² σ_j² + σ_ij²) / n).
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 20_000)
    assert np.all(np.abs(np.cov(flat(draws).T) - expected) < 5 * error)


def test_low_rank_with_a_diagonal_has_the_variances_of_all_weights():
    samples = make_samples()
    law = compact.low_rank(samples, rank=2, diagonal=True)
    variances = jax.tree.map(lambda f, s: jnp.sum(f**2, axis=0) + s**2, law.factors, law.std)
    expected = jax.tree.map(jnp.square, compact.gaussian(samples).std)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), variances, expected)
    whole = compact.low_rank(samples, diagonal=True)
    assert all(leaf.max() < 2e-3 for leaf in jax.tree.leaves(whole.std))


def test_low_rank_does_not_depend_on_the_signs_that_eigh_gives(monkeypatch):
    expected = compact.low_rank(make_samples(), rank=4)
    eigh = jnp.linalg.eigh

    def flipped(matrix):
        values, vectors = eigh(matrix)
        return values, vectors * jnp.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])

    monkeypatch.setattr(jnp.linalg, "eigh", flipped)
    found = compact.low_rank(make_samples(), rank=4)
    jax.tree.map(np.testing.assert_array_equal, found.factors, expected.factors)


@pytest.mark.parametrize("rank", [0, 7, -1])
def test_impossible_ranks_are_named(rank):
    with pytest.raises(ValueError, match=f"between 1 and 6 for 7 samples of 10 weights, got {rank}"):
        compact.low_rank(make_samples(), rank=rank)


def test_there_are_no_more_directions_than_weights():
    with pytest.raises(ValueError, match="between 1 and 10 for 40 samples of 10 weights, got 11"):
        compact.low_rank(make_samples(40), rank=11)


def test_a_mixture_of_one_is_the_gaussian():
    mixture = compact.mixture(make_samples(), np.zeros(7, int))
    whole = compact.gaussian(make_samples())
    assert mixture.num_components == 1
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-6), mixture.components, whole
    )


def test_components_have_the_moments_of_their_samples():
    labels = np.array([5, 2, 5, 2, 5, 5, 5])
    mixture = compact.mixture(make_samples(), labels)
    np.testing.assert_allclose(mixture.weights, [2 / 7, 5 / 7], rtol=1e-6)
    values, within = flat(make_samples()), 0.0
    for label in (2, 5):
        own = values[labels == label]
        within = within + np.square(own - own.mean(0)).sum(0) / 5
    for index, label in enumerate((2, 5)):
        own = values[labels == label]
        np.testing.assert_allclose(flat(mixture.components.mean)[index], own.mean(0), rtol=1e-5, atol=1e-6)
        variance = own.var(0) + within / len(own)
        np.testing.assert_allclose(flat(mixture.components.std)[index], np.sqrt(variance), rtol=1e-5)


def test_a_cluster_of_one_has_a_spread():
    mixture = compact.mixture(make_samples(), np.array([0, 1, 1, 1, 1, 1, 1]))
    assert flat(mixture.components.std).min() > 0


def clustered_samples(scale: float = 1.0):
    """Three clusters, far apart against their spread, in a random order."""
    random = np.random.default_rng(1)
    labels = random.permutation(np.repeat(np.arange(3), 10))
    centres = 10 * random.normal(size=(3, 6))
    values = (centres[labels] + 0.1 * random.normal(size=(30, 6))) * np.geomspace(1.0, scale, 6)
    return labels, {"w": jnp.asarray(values, jnp.float32).reshape(30, 3, 2)}


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_k_means_finds_clusters_whatever_the_units_of_the_weights(seed, scale):
    labels, samples = clustered_samples(scale)
    found = np.asarray(compact.k_means(jax.random.key(seed), samples, 3))
    assert adjusted_rand_score(labels, found) == 1


@pytest.mark.parametrize("count", [9, 60])
def test_k_means_has_the_inertia_of_all_weights_laid_out(count):
    """Of fewer samples than the ten weights, and of more."""
    samples = make_samples(count)
    values = flat(samples) / flat(samples).std(0)

    def inertia(labels):
        return sum(np.square(values[labels == k] - values[labels == k].mean(0)).sum() for k in set(labels))

    ours = inertia(compact.k_means(jax.random.key(0), samples, 4))
    theirs = KMeans(4, n_init=10, random_state=0).fit(values).inertia_
    # Both take the best of ten starts, which need not be the same optimum.
    assert ours < 1.02 * theirs


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("count", [9, 60])
def test_k_means_takes_short_numbers(count, dtype):
    short = jax.tree.map(lambda leaf: leaf.astype(dtype), make_samples(count))
    same = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), short)
    found, expected = (compact.k_means(jax.random.key(0), samples, 3) for samples in (short, same))
    assert adjusted_rand_score(found, expected) == 1


def test_k_means_is_the_same_for_the_same_key():
    first, second = (compact.k_means(jax.random.key(5), make_samples(60), 4) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_k_means_leaves_out_weights_that_never_vary():
    labels, samples = clustered_samples()
    constant = samples | {"constant": jnp.full((30, 5), 3.0)}
    found = compact.k_means(jax.random.key(0), constant, 3)
    assert adjusted_rand_score(labels, found) == 1


def test_bad_clusters_are_named():
    with pytest.raises(ValueError, match=r"one number for each of 7 samples; got \(6,\)"):
        compact.mixture(make_samples(), np.zeros(6, int))
    with pytest.raises(ValueError, match="labels: expected fewer than 7, the number of samples; got 7"):
        compact.mixture(make_samples(), np.arange(7))
    for number in (0, 8):
        with pytest.raises(ValueError, match=f"between 1 and 7, the number of samples; got {number}"):
            compact.k_means(jax.random.key(0), make_samples(), number)


def test_prune_keeps_the_lowest_scores_over_all_leaves():
    mean = {"w": jnp.arange(1.0, 7.0).reshape(2, 3), "b": jnp.array([10.0, 11.0])}
    std = {"w": jnp.array([[1.0, 5.0, 2.0], [8.0, 3.0, 7.0]]), "b": jnp.array([4.0, 6.0])}
    pruned = compact.prune(mean, std, 0.5)
    np.testing.assert_array_equal(pruned["w"], [[1, 0, 3], [0, 5, 0]])
    np.testing.assert_array_equal(pruned["b"], [10, 0])


@pytest.mark.parametrize("keep", [0.0, 0.3, 1.0])
def test_prune_keeps_exactly_the_share_despite_ties(keep):
    ones = {"w": jnp.ones((5, 4))}
    assert compact.prune(ones, ones, keep)["w"].sum() == round(20 * keep)


def test_prune_refuses_what_makes_no_sense():
    ones = {"w": jnp.ones((5, 4))}
    with pytest.raises(ValueError, match="keep must be a share between 0 and 1; got 50"):
        compact.prune(ones, ones, 50.0)
    with pytest.raises(ValueError, match=r"std: leaf 'w' has shape \(4, 5\); expected \(5, 4\)"):
        compact.prune(ones, {"w": jnp.ones((4, 5))}, 0.5)
