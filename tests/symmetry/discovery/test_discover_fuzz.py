"""Random programs: whatever is found must be a symmetry.

The operations under test sit on a free hidden axis between two dense layers, so that a group runs through
them, or on the axis of experts, heads or layers that hidden units vary over. Programs are traced with
`jax.numpy` and evaluated with NumPy in double precision: nothing is compiled.
"""

import itertools

import numpy as np
import pytest

from tests.symmetry.discovery.fuzz_elements import find_and_try
from tests.symmetry.discovery.fuzz_programs import BLOCKS, OPS, OVER, PLACES, random_names


def check(count: int, seed: int):
    random = np.random.default_rng(seed)
    groups = scales = signs = 0
    for _ in range(count):
        names = random_names(random)
        spec, error = find_and_try(names, random)
        assert error < 1e-9, (names, error, spec.explain())
        groups += len(spec.groups)
        scales += sum(group.num_scales for group in spec.groups)
        signs += sum(group.num_signs for group in spec.groups)
    return groups, scales, signs


def test_nothing_is_invented():
    groups, scales, signs = check(100, seed=0)
    # The programs must have something to find, or the test has no teeth.
    assert groups > 50
    assert scales > 20
    assert signs > 20


@pytest.mark.slow
def test_nothing_is_invented_in_two_thousand_programs():
    check(2000, seed=1)


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
