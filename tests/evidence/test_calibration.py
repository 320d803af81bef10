"""Calibration in short: what the tests of ranks say of ranks that are known, and ranks of HMC."""

import numpy as np
import pytest

from tests.evidence.calibration import NUM_DRAWS, band, cases, judge, ranks_of
from tests.evidence.evidence_calibration import Size, hmc


@pytest.fixture(scope="module")
def uniform():
    return np.random.default_rng(0).integers(NUM_DRAWS + 1, size=(1000, 3))


def posterior_ranks(width, shift=0.0):
    """Ranks of a truth N(0, 1) among draws of N(shift, width²)."""
    random = np.random.default_rng(3)
    truth = random.normal(size=(1000, 1, 3))
    return np.sum(shift + width * random.normal(size=(1000, NUM_DRAWS, 3)) < truth, axis=1)


def test_uniform_ranks_pass(uniform):
    verdict = judge(uniform)
    assert not verdict.is_rejected
    assert verdict.spread == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("width", "shift"), [(0.8, 0.0), (1.25, 0.0), (1.0, 0.3)])
def test_a_posterior_of_the_wrong_width_or_place_is_rejected_and_the_numbers_say_how(width, shift):
    verdict = judge(posterior_ranks(width, shift))
    assert verdict.is_rejected
    if shift:
        assert verdict.shift == pytest.approx(-shift, abs=0.15)
    else:
        assert verdict.spread == pytest.approx(1 / width, rel=0.15)


def test_the_envelope_holds_the_ranks_of_a_right_sampler_19_times_in_20():
    low, high = band(300)
    ranks = np.random.default_rng(2).integers(NUM_DRAWS + 1, size=(300, 400))
    shares = (np.arange(NUM_DRAWS) + 1) / (NUM_DRAWS + 1)
    distances = np.stack([np.mean(ranks <= r, axis=0) for r in range(NUM_DRAWS)]) - shares[:, None]
    is_inside = np.all((distances >= low[:, None] - 1e-9) & (distances <= high[:, None] + 1e-9), axis=0)
    # Four standard errors of a share of 0.95 among 400.
    assert np.mean(is_inside) == pytest.approx(0.95, abs=0.045)


def test_ranks_of_hmc_are_uniform():
    regression, _ = cases()
    size = Size(num_burnin=30)
    ranks = ranks_of(regression, hmc(regression, size), 100)
    assert ranks.shape == (100, 4)
    assert not judge(ranks).is_rejected
