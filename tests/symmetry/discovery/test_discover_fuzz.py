"""Random programs: whatever is found must be a symmetry.

The operations under test sit on a free hidden axis between two dense layers, so that a group runs through
them, or on the axis of experts, heads or layers that hidden units vary over. Programs are traced with
`jax.numpy` and evaluated with NumPy in double precision: nothing is compiled.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from tests.symmetry.discovery.fuzz_elements import find_and_try
from tests.symmetry.discovery.fuzz_programs import (
    BLOCKS,
    OPS,
    OVER,
    PLACES,
    linear_names,
    nearly_linear_names,
    random_names,
)


class Count(NamedTuple):
    """What was found in many programs."""

    groups: int = 0
    scales: int = 0
    signs: int = 0
    translated: int = 0
    """Programs with a translation."""
    linear: int = 0
    """Programs with an invertible or orthogonal class."""
    near_misses: int = 0
    misled: int = 0
    """Near misses in which matrices were found nevertheless, beyond those that fix the vector of ones."""


def has_matrices(spec, *, centred=True):
    return any(group.is_linear and (centred or not group.centred) for group in spec.groups)


def check(count: int, seed: int) -> Count:
    """Half of the programs are any, a quarter linear, a quarter linear but for one step."""
    random = np.random.default_rng(seed)
    total = Count()
    for number in range(count):
        draw = (random_names, linear_names, random_names, nearly_linear_names)[number % 4]
        names = draw(random)
        spec, error = find_and_try(names, random)
        assert error < 1e-9, (names, error, spec.explain())
        is_near = draw is nearly_linear_names
        found = Count(
            len(spec.groups),
            sum(group.num_scales for group in spec.groups),
            sum(group.num_signs for group in spec.groups),
            bool(spec.translations),
            has_matrices(spec),
            is_near,
            is_near and has_matrices(spec, centred=False),
        )
        assert draw is not linear_names or has_matrices(spec, centred=False), names
        total = Count(*(a + b for a, b in zip(total, found, strict=True)))
    return total


def test_nothing_is_invented():
    found = check(100, seed=0)
    # The programs must have something to find, or the test has no teeth.
    assert found.groups > 50
    assert found.scales > 20
    assert found.signs > 20
    assert found.translated > 10
    assert found.linear > 25
    assert found.near_misses == 25
    assert not found.misled


@pytest.mark.slow
def test_nothing_is_invented_in_two_thousand_programs():
    found = check(2000, seed=1)
    assert found.near_misses == 500
    assert not found.misled


@pytest.mark.parametrize("name", OPS)
def test_each_operation_alone(name):
    _, error = find_and_try([name], np.random.default_rng(2))
    assert error < 1e-9


@pytest.mark.parametrize("name", OVER)
def test_each_operation_on_an_axis_that_units_vary_over(name):
    _, error = find_and_try([f"experts/hidden/{name}"], np.random.default_rng(2))
    assert error < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_each_operation_at_each_place(block):
    random = np.random.default_rng(5)
    for place, name in itertools.product(PLACES, OVER):
        _, error = find_and_try([f"{block}/{place}/{name}"], random)
        assert error < 1e-9, (place, name)
