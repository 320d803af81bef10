"""Posteriors: densities against scipy, samples against their moments, pytrees, and refusal of bad shapes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import linalg, stats

from symbnn import posteriors, tree
from symbnn.posteriors.dropped import draw_masks, drop

NUM_DRAWS = 40_000


def random_tree(seed: int, leading: tuple[int, ...] = ()):
    random = np.random.default_rng(seed)
    shapes = {"kernel": (2, 2), "bias": (3,), "scale": ()}
    return {name: jnp.asarray(random.normal(size=(*leading, *s)), jnp.float32) for name, s in shapes.items()}


def flat(params) -> np.ndarray:
    return np.asarray(ravel_pytree(params)[0], np.float64)


def flat_rows(samples) -> np.ndarray:
    return np.asarray(jax.vmap(lambda params: ravel_pytree(params)[0])(samples), np.float64)


MEAN, STD, FACTORS = (
    random_tree(0),
    jax.tree.map(lambda x: 0.3 + jnp.abs(x), random_tree(1)),
    random_tree(2, (3,)),
)
SQUARE = random_tree(5, (8,))


def orthogonal(seed: int, size: int) -> jnp.ndarray:
    matrix = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    return jnp.asarray(matrix, jnp.float32)


def kronecker() -> posteriors.KroneckerGaussian:
    """Second axis of the kernel in front, a bias, and a single number."""
    stds = jax.tree.map(lambda x: 0.3 + jnp.abs(x), random_tree(6))
    blocks = {
        "bias": posteriors.Block(jnp.ones((1, 1)), orthogonal(0, 3), stds["bias"][None], ()),
        "kernel": posteriors.Block(orthogonal(1, 2), orthogonal(2, 2), stds["kernel"], (1,)),
        "scale": posteriors.Block(-jnp.ones((1, 1)), jnp.ones((1, 1)), stds["scale"][None, None], ()),
    }
    return posteriors.KroneckerGaussian(MEAN, blocks)


def kronecker_covariance() -> np.ndarray:
    """Blocks on the diagonal, the kernel's with its axes put back."""
    dense = []
    for block in kronecker().blocks.values():
        basis = np.kron(np.asarray(block.left, np.float64), np.asarray(block.right, np.float64))
        dense.append(basis @ np.diag(np.asarray(block.std, np.float64).ravel() ** 2) @ basis.T)
    turned = np.arange(4).reshape(2, 2).T.ravel()
    dense[1] = dense[1][np.ix_(turned, turned)]
    return linalg.block_diag(*dense)


def covariances() -> dict[str, tuple[object, np.ndarray]]:
    """Every Gaussian with its dense covariance, formed in the plainest way."""
    diagonal, rows = np.diag(flat(STD) ** 2), flat_rows(FACTORS)
    return {
        "diagonal": (posteriors.DiagonalGaussian(MEAN, STD), diagonal),
        "low rank and diagonal": (posteriors.LowRankGaussian(MEAN, FACTORS, STD), rows.T @ rows + diagonal),
        "full rank": (posteriors.LowRankGaussian(MEAN, SQUARE), flat_rows(SQUARE).T @ flat_rows(SQUARE)),
        "low-rank precision": (
            posteriors.LowRankPrecision(MEAN, STD, FACTORS),
            np.linalg.inv(rows.T @ rows + np.diag(flat(STD) ** -2.0)),
        ),
        "kronecker": (kronecker(), kronecker_covariance()),
    }


@pytest.mark.parametrize("name", covariances())
def test_log_density_is_that_of_the_dense_gaussian(name):
    posterior, covariance = covariances()[name]
    log_prob = jax.jit(posterior.log_prob)
    for seed in range(3):
        params = random_tree(seed + 10)
        expected = stats.multivariate_normal(flat(MEAN), covariance).logpdf(flat(params))
        np.testing.assert_allclose(log_prob(params), expected, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("name", covariances())
def test_samples_have_the_mean_and_covariance(name):
    posterior, covariance = covariances()[name]
    rows = flat_rows(jax.jit(lambda p, key: p.sample(key, NUM_DRAWS))(posterior, jax.random.key(0)))
    scales = np.sqrt(np.diag(covariance))
    # Five standard errors: of a mean √(1/n), of a correlation at most √(2/n).
    assert np.max(np.abs(rows.mean(0) - flat(MEAN)) / scales) < 5 / np.sqrt(NUM_DRAWS)
    error = (np.cov(rows.T) - covariance) / np.outer(scales, scales)
    assert np.max(np.abs(error)) < 5 * np.sqrt(2 / NUM_DRAWS)


@pytest.mark.parametrize("name", covariances())
def test_loadings_are_a_root_of_the_covariance(name):
    posterior, covariance = covariances()[name]
    assert isinstance(posterior, posteriors.Gaussian)
    units = jax.vmap(ravel_pytree(MEAN)[1])(jnp.eye(len(covariance)))
    rows = np.asarray(tree.matrix(jax.jit(jax.vmap(posterior.loadings))(units)), np.float64)
    np.testing.assert_allclose(rows @ rows.T, covariance, atol=1e-5 * np.max(covariance))


def test_low_rank_without_diagonal_stays_in_its_subspace_and_has_no_density():
    posterior = posteriors.LowRankGaussian(MEAN, FACTORS)
    deviations = flat_rows(posterior.sample(jax.random.key(0), 50)) - flat(MEAN)
    assert np.linalg.matrix_rank(deviations, tol=1e-4) == posterior.rank == 3
    with pytest.raises(ValueError, match="rank 3 over 8 weights has a density only with std"):
        posterior.log_prob(MEAN)


def test_mixture_is_the_weighted_sum():
    first, second = posteriors.DiagonalGaussian(MEAN, STD), posteriors.DiagonalGaussian(random_tree(7), STD)
    mixture = posteriors.mixture([first, second], weights=[3.0, 1.0])
    params = random_tree(11)
    expected = np.log(0.75 * np.exp(first.log_prob(params)) + 0.25 * np.exp(second.log_prob(params)))
    np.testing.assert_allclose(mixture.log_prob(params), expected, rtol=1e-5)
    rows = flat_rows(jax.jit(lambda m, key: m.sample(key, 4000))(mixture, jax.random.key(0)))
    expected_mean = 0.75 * flat(first.mean) + 0.25 * flat(second.mean)
    assert np.max(np.abs(rows.mean(0) - expected_mean) / rows.std(0)) < 5 / np.sqrt(4000)


def test_empirical_draws_what_is_stored():
    samples = random_tree(3, (6,))
    posterior = posteriors.Empirical(samples, num_chains=2)
    drawn = flat_rows(posterior.sample(jax.random.key(0), 100))
    assert {tuple(row) for row in drawn} == {tuple(row) for row in flat_rows(samples)}
    np.testing.assert_allclose(posterior.log_prob(tree.take(samples, 4)), np.log(1 / 6), rtol=1e-6)
    assert posterior.log_prob(random_tree(9)) == -np.inf
    assert posterior.by_chain()["kernel"].shape == (2, 3, 2, 2)
    np.testing.assert_array_equal(posterior.by_chain()["bias"][1, 0], samples["bias"][3])


def test_fixed_leaves_move_only_what_is_free():
    free = posteriors.DiagonalGaussian({"bias": MEAN["bias"]}, {"bias": STD["bias"]})
    posterior = posteriors.FixedLeaves(MEAN, free)
    drawn = posterior.sample(jax.random.key(0), 5)
    np.testing.assert_array_equal(drawn["kernel"], np.broadcast_to(MEAN["kernel"], (5, 2, 2)))
    assert np.all(np.std(drawn["bias"], axis=0) > 0)
    assert jax.tree.leaves(posterior.mean)[0] is MEAN["bias"]
    np.testing.assert_array_equal(posterior.loadings(MEAN)["bias"], STD["bias"] * MEAN["bias"])
    assert posterior.log_prob(tree.take(drawn, 0)) == free.log_prob({"bias": drawn["bias"][0]})
    assert posterior.log_prob(MEAN | {"scale": MEAN["scale"] + 1}) == -np.inf


READING = posteriors.Reading("kernel", axis=1, start=1, outer=2, inner=2)
UNITS = (posteriors.Units("h", 3, (READING,)),)


def dropped() -> posteriors.DroppedUnits:
    """Three units that are read at positions 1 to 12 of an axis of 13, two by two."""
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 13)), jnp.float32)
    return posteriors.DroppedUnits({"kernel": kernel}, UNITS, 0.25)


def test_dropping_a_unit_zeroes_what_reads_it():
    posterior = dropped()
    kernel = {"kernel": posterior.samples["kernel"][0]}
    result = drop(kernel, UNITS, {"h": jnp.array([True, False, True])}, 0.25)["kernel"]
    ones, kept, gone = [1.0], [1 / 0.75] * 2, [0.0] * 2
    factors = np.array(ones + 2 * (kept + gone + kept))
    np.testing.assert_allclose(result, kernel["kernel"] * factors, rtol=1e-6)


def test_masses_of_all_dropped_networks_sum_to_one():
    posterior = dropped()
    kernel = tree.take(posterior.samples, 0)
    masks = [{"h": jnp.array(bits)} for bits in itertools.product([True, False], repeat=3)]
    mass = jax.jit(lambda mask: jnp.exp(posterior.log_prob(drop(kernel, UNITS, mask, 0.25))))
    masses = [float(mass(mask)) for mask in masks]
    np.testing.assert_allclose(sum(masses), 1.0, rtol=1e-5)
    np.testing.assert_allclose(masses[0], 0.75**3, rtol=1e-5)
    assert posterior.log_prob(jax.tree.map(lambda leaf: leaf + 1, kernel)) == -np.inf
    drawn = jax.vmap(lambda key: draw_masks(key, UNITS, 0.25)["h"])(jax.random.split(jax.random.key(0), 300))
    assert abs(np.mean(drawn) - 0.75) < 5 * np.sqrt(0.25 * 0.75 / 900)


ALL = {
    "empirical": lambda: posteriors.Empirical(random_tree(3, (6,)), num_chains=3),
    "diagonal": lambda: posteriors.DiagonalGaussian(MEAN, STD),
    "low rank": lambda: posteriors.LowRankGaussian(MEAN, FACTORS),
    "precision": lambda: posteriors.LowRankPrecision(MEAN, STD, FACTORS),
    "mixture": lambda: posteriors.mixture([posteriors.LowRankGaussian(MEAN, FACTORS, STD)] * 2),
    "kronecker": kronecker,
    "kronecker mixture": lambda: posteriors.mixture([kronecker()] * 2),
    "fixed": lambda: posteriors.FixedLeaves(
        MEAN, posteriors.DiagonalGaussian({"bias": STD["bias"]}, {"bias": STD["bias"]})
    ),
    "dropped": dropped,
}


@pytest.mark.parametrize("name", ALL)
def test_posteriors_are_pytrees_and_compile_once(name):
    posterior = ALL[name]()
    assert isinstance(posterior, posteriors.Posterior)
    leaves, structure = jax.tree.flatten(posterior)
    rebuilt = jax.tree.unflatten(structure, leaves)
    assert type(rebuilt) is type(posterior)
    traces = []

    @jax.jit
    def sample(posterior, key):
        traces.append(1)
        return posterior.sample(key, 2)

    first, second = sample(posterior, jax.random.key(0)), sample(rebuilt, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert len(traces) == 1
    assert tree.num_samples(first) == 2
    assert jax.tree.map(jnp.shape, jax.vmap(lambda p: p)(first)) == jax.tree.map(jnp.shape, first)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: posteriors.DiagonalGaussian(MEAN, STD | {"bias": jnp.ones(4)}),
            r"std: leaf 'bias' has shape \(4,\)",
        ),
        (lambda: posteriors.DiagonalGaussian(MEAN, {"bias": MEAN["bias"]}), "missing leaves"),
        (lambda: posteriors.LowRankGaussian(MEAN, MEAN), "after 1 leading axes"),
        (lambda: posteriors.LowRankPrecision(MEAN, STD, STD), "after 1 leading axes"),
        (lambda: posteriors.Empirical(random_tree(0, (6,)), num_chains=4), "6 samples do not divide into 4"),
        (lambda: posteriors.mixture([ALL["diagonal"](), ALL["precision"]()]), "one kind"),
        (lambda: posteriors.mixture([ALL["diagonal"]()], weights=[-1.0]), "weights"),
        (lambda: posteriors.GaussianMixture(jnp.ones(3), ALL["mixture"]().components), "2 components"),
        (lambda: ALL["diagonal"]().sample(jax.random.key(0), 0), "positive number of draws; got 0"),
        (lambda: ALL["diagonal"]().log_prob({"bias": MEAN["bias"]}), "missing leaves"),
        (lambda: posteriors.KroneckerGaussian({"bias": MEAN["bias"]}, kronecker().blocks), "unknown leaves"),
        (
            lambda: posteriors.KroneckerGaussian(MEAN | {"bias": jnp.ones(4)}, kronecker().blocks),
            r"leaf 'bias' of shape \(4,\) with inputs \(\) is a matrix \(1, 4\)",
        ),
        (lambda: posteriors.DroppedUnits({"kernel": jnp.ones((1, 2, 12))}, UNITS, 0.2), "12 positions"),
        (lambda: posteriors.DroppedUnits({"kernel": jnp.ones((1, 2, 13))}, UNITS, 1.0), "rate"),
    ],
)
def test_what_does_not_fit_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_weight_that_never_varied_is_known_to_a_law_with_factors():
    law = posteriors.LowRankGaussian(
        {"w": jnp.array([0.0, 5.0])}, {"w": jnp.array([[2.0, 0.0]])}, {"w": jnp.array([1.0, 0.0])}
    )
    expected = stats.norm(0, np.sqrt(5)).logpdf(0.7)
    np.testing.assert_allclose(law.log_prob({"w": jnp.array([0.7, 5.0])}), expected, rtol=1e-5)
    assert law.log_prob({"w": jnp.array([0.7, 5.1])}) == -jnp.inf


def test_a_weight_with_factors_alone_has_a_density():
    """Nearly that of the factors, as next to nothing is added beside them."""
    law = posteriors.LowRankGaussian(
        {"w": jnp.zeros(2)}, {"w": jnp.array([[2.0, 0.0]])}, {"w": jnp.array([0.0, 1.0])}
    )
    expected = stats.norm(0, 2).logpdf(0.7) + stats.norm(0, 1).logpdf(0.2)
    np.testing.assert_allclose(law.log_prob({"w": jnp.array([0.7, 0.2])}), expected, rtol=1e-3)
