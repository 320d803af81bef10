"""R-hat and ESS against ArviZ, and their value where there is no variance."""

import importlib.util

import arviz
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import diagnostics
from symbnn.diagnostics import convergence


def autoregressive(chains: int, draws: int, quantities: int, rho: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    noise = random.normal(size=(chains, draws, quantities))
    values = np.zeros_like(noise)
    for t in range(1, draws):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return values


CASES = {
    "independent": autoregressive(4, 200, 3, 0.0, 0),
    "slow": autoregressive(4, 301, 3, 0.95, 1),
    "antithetic": autoregressive(3, 100, 3, -0.7, 2),
    "apart": autoregressive(4, 150, 3, 0.3, 3) + np.arange(4)[:, None, None],
    "heavy tail": np.random.default_rng(4).standard_cauchy((4, 200, 3)),
    "clipped": np.minimum(autoregressive(4, 200, 3, 0.0, 6), 1.0),
    "ties": np.round(autoregressive(4, 100, 3, 0.5, 5)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (diagnostics.split_rhat, lambda x: arviz.rhat(x, method="split")),
        (diagnostics.rank_rhat, lambda x: arviz.rhat(x, method="rank")),
        (diagnostics.bulk_ess, lambda x: arviz.ess(x, method="bulk")),
        (diagnostics.tail_ess, lambda x: arviz.ess(x, method="tail")),
    ],
)
def test_equals_arviz(case, ours, theirs):
    draws = CASES[case]
    expected = [theirs(draws[:, :, q]) for q in range(draws.shape[2])]
    np.testing.assert_allclose(ours(jnp.asarray(draws, jnp.float32)), expected, rtol=2e-3)


@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_a_quantity_that_never_moves_has_a_defined_value(unit):
    """The mean of ten times 0.1 is rounded."""
    same = jnp.full((4, 10, 1), unit)
    apart = jnp.broadcast_to(unit * jnp.arange(4.0)[:, None, None], (4, 10, 1))
    for rhat in (diagnostics.split_rhat, diagnostics.rank_rhat):
        assert rhat(same)[0] == 1
        assert rhat(apart)[0] == np.inf
    for ess in (diagnostics.bulk_ess, diagnostics.tail_ess):
        assert ess(same)[0] == 40
        assert ess(apart)[0] == 0


def test_too_few_draws_are_named():
    with pytest.raises(ValueError, match="at least 4 draws a chain, got 3"):
        diagnostics.split_rhat(jnp.zeros((2, 3, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("statistic", ["split_rhat", "rank_rhat", "bulk_ess", "tail_ess"])
def test_a_quantity_with_a_draw_that_is_not_finite_has_no_statistics(statistic, bad):
    draws = CASES["independent"].copy()
    draws[2, 7, 0] = bad
    draws[:, :, 1] = bad
    values = getattr(diagnostics, statistic)(jnp.asarray(draws, jnp.float32))
    assert np.isnan(values).tolist() == [True, True, False]


def test_draws_for_rhat_have_three_axes():
    """Loaded from its file: in tests, imported modules check all shapes by themselves."""
    spec = importlib.util.spec_from_file_location("unchecked_convergence", convergence.__file__)
    unchecked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unchecked)
    with pytest.raises(ValueError, match=r"array \(chains, draws, quantities\); got \(8, 3\)"):
        unchecked.rank_rhat(jnp.ones((8, 3)))
    with pytest.raises(ValueError, match=r"got dict: for networks use diagnostics\.weight_space"):
        unchecked.rank_rhat({"w": jnp.ones((2, 8, 3))})
