"""The measured placement: which candidates there are, that the least time wins, and a real measurement."""

import jax
import pytest

from symbnn import density, inference
from symbnn.inference import fastest
from tests.inference.cases import small_network

TWO = inference.Placement(devices=jax.devices()[:2], lanes=7)


@pytest.fixture(scope="module")
def target() -> density.Target:
    return density.target(*small_network())


@pytest.mark.parametrize(
    ("num_chains", "candidates"), [(1, [1]), (2, [1]), (4, [1, 2]), (10, [1, 2, 4, 5]), (16, [1, 2, 4, 8])]
)
def test_candidates_are_powers_of_two_and_all_chains_of_a_device(monkeypatch, target, num_chains, candidates):
    seen = []

    def seconds(target, num_chains, placement):
        seen.append(placement.lanes)
        return 1.0

    monkeypatch.setattr(fastest, "seconds_per_gradient", seconds)
    inference.fastest_placement(target, num_chains=num_chains, placement=TWO)
    assert seen == candidates


def test_the_least_time_wins_and_the_rest_of_the_placement_stays(monkeypatch, target):
    times = {1: 3.0, 2: 1.0, 4: 2.0, 5: 4.0}
    monkeypatch.setattr(fastest, "seconds_per_gradient", lambda *given: times[given[2].lanes])
    found = inference.fastest_placement(target, num_chains=10, placement=TWO)
    assert found == TWO._replace(lanes=2)


def test_a_real_measurement(monkeypatch, target):
    monkeypatch.setattr(fastest, "OPERATIONS", 1e5)
    found = inference.fastest_placement(target, num_chains=4, placement=TWO)
    assert found.lanes in (1, 2)
    assert 0 < fastest.seconds_per_gradient(target, 4, found) < 1


def test_no_chains_are_refused(target):
    with pytest.raises(ValueError, match="num_chains must be a whole number of at least 1; got 0"):
        inference.fastest_placement(target, num_chains=0)
