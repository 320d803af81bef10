"""Lengths, units and finite numbers at the ends of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn.symmetry.numerics import check_finite, length, unit_of


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_a_length_is_as_large_as_its_numbers(unit):
    np.testing.assert_allclose(length(jnp.array([3.0, 4.0]) * jnp.float32(unit)), 5 * unit, rtol=1e-6)


def test_ordinary_numbers_are_measured_in_one():
    assert unit_of(1e-10) == unit_of(1e10) == unit_of(0.0) == 1.0
    assert 1e30 / 2 <= unit_of(1e30) <= 2e30


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_the_first_leaf_that_is_not_finite_is_named(value):
    params = {"a": jnp.ones(2), "b": {"c": jnp.array([1.0, value])}, "d": jnp.full(2, value)}
    with pytest.raises(ValueError, match="leaf 'b/c' of the reference has values that are not finite; stop"):
        check_finite(params, "stop", whose=" of the reference")


def test_large_numbers_of_double_precision_are_finite():
    check_finite({"a": np.full(2, 1e300), "count": np.arange(3)}, "stop")


def test_traced_values_pass():
    def checked(x):
        check_finite(x, "stop")
        return x

    assert np.isinf(jax.jit(checked)(jnp.inf))
