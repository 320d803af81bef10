"""The measured placement: which candidates there are, that the least time wins, and a real measurement."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, inference
from symbnn.inference import fastest, placement
from symbnn.inference.chains import distributed
from tests.inference.cases import small_network

TWO = inference.Placement(devices=jax.devices()[:2], lanes=7)


@dataclass(frozen=True)
class Device:
    process_index: int


@pytest.fixture(scope="module")
def target() -> density.Target:
    return density.target(*small_network())


@pytest.mark.parametrize(
    ("num_chains", "candidates"), [(1, [1]), (2, [1]), (4, [1, 2]), (10, [1, 2, 4, 5]), (16, [1, 2, 4, 8])]
)
def test_candidates_are_powers_of_two_and_all_chains_of_a_device(monkeypatch, target, num_chains, candidates):
    """After one lane without `vmap`."""
    seen = []

    def seconds(target, num_chains, placement, *, initial):
        seen.append((placement.lanes, placement.vmaps_one))
        return 1.0

    monkeypatch.setattr(fastest, "seconds_per_gradient", seconds)
    inference.fastest_placement(target, num_chains=num_chains, placement=TWO)
    assert seen == [(1, False), *((lanes, True) for lanes in candidates)]


def test_the_least_time_wins_and_the_rest_of_the_placement_stays(monkeypatch, target):
    times = {1: 3.0, 2: 1.0, 4: 2.0, 5: 4.0}
    monkeypatch.setattr(fastest, "seconds_per_gradient", lambda *given, initial: times[given[2].lanes])
    found = inference.fastest_placement(target, num_chains=10, placement=TWO)
    assert found == TWO._replace(lanes=2, vmaps_one=True)
    monkeypatch.setattr(fastest, "seconds_per_gradient", lambda *given, initial: 1.0 + given[2].vmaps_one)
    found = inference.fastest_placement(target, num_chains=10, placement=TWO)
    assert found == TWO._replace(lanes=1, vmaps_one=False)


def test_a_real_measurement(monkeypatch, target):
    monkeypatch.setattr(fastest, "OPERATIONS", 1e5)
    found = inference.fastest_placement(target, num_chains=4, placement=TWO)
    assert found.lanes in (1, 2)
    assert 0 < fastest.seconds_per_gradient(target, 4, found) < 1


def test_processes_choose_alike_by_the_slowest_of_them(monkeypatch, target):
    """Alone, the first process would take one lane, the second four."""
    times, chosen = [{1: 1.0, 2: 2.0, 4: 4.0, 5: 9.0}, {1: 5.0, 2: 3.0, 4: 2.0, 5: 9.0}], []

    for own, other in (times, times[::-1]):
        asked = []

        def seconds(target, num_chains, placement, *, initial, own=own, asked=asked):
            asked.append(placement.lanes)
            return own[placement.lanes]

        def exchange(array, other=other, asked=asked):
            return np.stack([array, other[asked[-1]]])

        with monkeypatch.context() as patch:
            patch.setattr(fastest, "seconds_per_gradient", seconds)
            patch.setattr(distributed.multihost_utils, "process_allgather", exchange)
            patch.setattr(jax, "process_count", lambda: 2)
            chosen.append(inference.fastest_placement(target, num_chains=10, placement=TWO).lanes)
    assert chosen == [2, 2]


def test_lanes_that_leave_a_process_without_a_chain_are_no_candidates(monkeypatch, target):
    """Four chains on three devices, as if each were a process of its own: two blocks are too few."""
    require_busy, seen = placement._require_busy, []

    def of_processes(grid, num_blocks, words):
        busy = np.array([[Device(row) for _ in devices] for row, devices in enumerate(grid)])
        require_busy(busy, num_blocks, words)

    def seconds(target, num_chains, placement, *, initial):
        seen.append(placement.lanes)
        return 1.0

    monkeypatch.setattr(placement, "_require_busy", of_processes)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(distributed.multihost_utils, "process_allgather", lambda array: array)
    monkeypatch.setattr(fastest, "seconds_per_gradient", seconds)
    three = inference.Placement(devices=jax.devices()[:3])
    assert inference.fastest_placement(target, num_chains=4, placement=three).lanes == 1
    assert seen == [1, 1]
    with pytest.raises(ValueError, match="leave 1 of 3 processes without a chain"):
        inference.fastest_placement(target, num_chains=2, placement=three)


def test_chains_are_timed_from_given_starts(monkeypatch):
    """A density that is finite near 5 only, far from where `init` begins."""
    near = density.Target(
        init=lambda key: {"w": jnp.zeros(3)},
        log_density=lambda params: jnp.where(params["w"] > 4, -jnp.square(params["w"] - 5), jnp.nan).sum(),
    )
    monkeypatch.setattr(fastest, "MOST_STEPS", 1)
    with pytest.raises(ValueError, match="not finite; give other starts"):
        inference.fastest_placement(near, num_chains=2, placement=TWO)
    starts = {"w": jnp.full((2, 3), 5.0)}
    assert inference.fastest_placement(near, num_chains=2, placement=TWO, initial=starts).lanes == 1


def test_no_chains_are_refused(target):
    with pytest.raises(ValueError, match="num_chains must be a whole number of at least 1; got 0"):
        inference.fastest_placement(target, num_chains=0)


def test_the_steepest_density_gives_no_warning(monkeypatch, caplog):
    """As with noise near zero at draws of the prior, where a step of 1e-6 diverged, and the log said so."""
    monkeypatch.setattr(fastest, "OPERATIONS", 1e5)
    steep = density.Target(
        init=lambda key: jax.random.normal(key, (3,)), log_density=lambda w: -1e18 * jnp.sum(jnp.square(w))
    )
    # Warnings are errors in tests.
    assert fastest.seconds_per_gradient(steep, 2, TWO._replace(lanes=1)) > 0
    assert not caplog.records
