"""MMD against double loops over the definition; its p-value and interval against sets of known laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import evaluate


def samples(seed, count, shift=0.0):
    random = np.random.default_rng(seed)
    shapes = {"hidden": {"kernel": (3, 2), "bias": (2,)}, "out": {"kernel": (2, 5)}}
    return jax.tree.map(
        lambda shape: np.float32(0.5 * random.normal(size=(count, *shape)) + shift),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def flat(nets, layers=("hidden", "out")):
    leaves = [leaf for layer in layers for leaf in jax.tree.leaves(nets[layer])]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1).astype(np.float64)


def loop_mmd(x, y, kernel):
    """The U-statistic and its bandwidths, from their definitions."""
    norm = {"laplace": lambda d: np.abs(d).sum(), "gaussian": lambda d: np.sqrt((d**2).sum())}[kernel]
    power = {"laplace": 1, "gaussian": 2}[kernel]
    cross = np.sort([norm(a - b) for a in x for b in y])
    smallest = cross[0] if cross[0] >= 0.1 else max(cross[int(0.05 * len(cross))], 0.1)
    grid = np.geomspace(smallest / 2, 2 * max(cross[-1], 0.3), 10)
    values = []
    for bandwidth in grid:
        k = lambda a, b: np.exp(-((norm(a - b) / bandwidth) ** power))  # noqa: B023, E731
        m, n = len(x), len(y)
        xx = sum(k(x[i], x[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
        yy = sum(k(y[i], y[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
        values.append(xx + yy - 2 * sum(k(a, b) for a in x for b in y) / (m * n))
    return np.array(values), grid


@pytest.mark.parametrize("on_device", [False, True])
def test_mmd_is_the_double_loop(on_device):
    a, b = samples(0, 7), samples(1, 9, shift=0.3)
    given = [jax.tree.map(jnp.asarray, nets) if on_device else nets for nets in (a, b)]
    result = evaluate.mmd(*given, equal_sizes=False, block=4)
    assert result.num_samples == (7, 9)
    everything = []
    for kernel in ("laplace", "gaussian"):
        values, grid = loop_mmd(flat(a), flat(b), kernel)
        np.testing.assert_allclose(result.total.bandwidths[kernel], grid, rtol=1e-5)
        np.testing.assert_allclose(result.total.estimates[kernel], values, atol=1e-6)
        layer, _ = loop_mmd(flat(a, ("out",)), flat(b, ("out",)), kernel)
        np.testing.assert_allclose(result.layers["out"].estimates[kernel], layer, atol=1e-6)
        everything.append(values)
    np.testing.assert_allclose(result.total.value, np.max(everything), atol=1e-6)
    mean = evaluate.mmd(*given, equal_sizes=False, aggregate="mean").total.value
    np.testing.assert_allclose(mean, np.mean(everything), atol=1e-6)
    assert list(result.layers) == ["hidden", "out"]


def test_bandwidths_of_close_sets_have_a_floor():
    cross = jnp.asarray(np.linspace(0.0, 0.2, 10_000).reshape(100, 100), jnp.float32)
    np.testing.assert_allclose(evaluate.bandwidth_grid(cross, 10), np.geomspace(0.05, 0.6, 10), rtol=1e-5)


@pytest.mark.slow
def test_mmd_sees_a_difference_and_only_that():
    settings = {"key": jax.random.key(2), "num_permutations": 99, "num_bootstrap": 50, "block": 32}
    different = evaluate.mmd(samples(0, 30), samples(1, 30, shift=0.4), **settings).total
    assert different.p_value == pytest.approx(1 / 100)
    assert 0.0 < different.interval[0] < different.value < different.interval[1]
    p_values = [evaluate.mmd(samples(s, 30), samples(s + 50, 30), **settings).total.p_value for s in range(5)]
    # Uniform under equal laws: all five below 0.5 has probability 1/32, and so has all above.
    assert min(p_values) < 0.5 < max(p_values)


def test_the_statistic_of_equal_laws_has_mean_zero():
    settings = {"kernels": ("gaussian",), "aggregate": "mean", "block": 32}
    values = [evaluate.mmd(samples(s, 20), samples(s + 100, 20), **settings).total.value for s in range(20)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(20)


def test_unequal_sets_are_thinned():
    a, b = samples(0, 12), samples(1, 5)
    with pytest.raises(ValueError, match=r"key: needed to permute, resample or thin 12 and 5 networks"):
        evaluate.mmd(a, b)
    settings = {"key": jax.random.key(0), "kernels": ("gaussian",)}
    result = evaluate.mmd(a, b, **settings)
    assert result.num_samples == (5, 5)
    assert result.total.value == evaluate.mmd(a, b, **settings).total.value


def test_mmd_says_what_is_wrong():
    a = samples(0, 4)
    with pytest.raises(ValueError, match="did you mean 'laplace'"):
        evaluate.mmd(a, a, kernels=("laplacian",))
    with pytest.raises(ValueError, match="at least two networks in each set"):
        evaluate.mmd(a, samples(0, 1))
    with pytest.raises(ValueError, match="samples_b: "):
        evaluate.mmd(a, {"out": a["out"]})


def test_arrangements_that_are_the_given_one_count():
    """Of twenty arrangements of three and three, the given one and its mirror are as far apart."""
    a, b = samples(0, 3), samples(1, 3, shift=10.0)
    values = [
        float(evaluate.mmd(a, b, key=jax.random.key(seed), num_permutations=999).total.p_value)
        for seed in range(5)
    ]
    # Five standard errors of a share of a tenth.
    assert min(values) > 0.1 - 5 * np.sqrt(0.1 * 0.9 / 999)
