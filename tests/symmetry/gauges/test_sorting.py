"""Sorting of units: by the key that is asked for, whatever their labels were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from tests.networks import mlp_apply, mlp_params, mlp_spec
from tests.symmetry.specs import everything_spec, random_params

SIZES = (5, 4, 4, 3)


def assert_close(a, b, *, rtol=1e-7, atol=1e-9):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


@pytest.mark.parametrize(
    ("key", "statistic"),
    [
        ("first", lambda kernel: kernel[0]),
        ("max", lambda kernel: kernel.max(axis=0)),
        ("mean", lambda kernel: kernel.mean(axis=0)),
        ("median", lambda kernel: jnp.median(kernel, axis=0)),
        ("mass", lambda kernel: jnp.sum(kernel**2, axis=0)),
    ],
)
def test_sorted_units_descend_and_do_not_depend_on_the_labels(key, statistic):
    params = mlp_params(SIZES, jax.random.key(0))
    spec = mlp_spec(SIZES, params)
    ordered = symmetry.sort_units(spec, params, key=key)
    for layer in ("hidden0", "hidden1"):
        assert np.all(np.diff(statistic(ordered[layer]["kernel"])) <= 0)
    moved = symmetry.act(spec, symmetry.random_element(spec, jax.random.key(1)), params)
    assert_close(symmetry.sort_units(spec, moved, key=key), ordered, rtol=1e-6)
    inputs = jax.random.normal(jax.random.key(2), (6, SIZES[0]))
    assert_close(mlp_apply(ordered, inputs), mlp_apply(params, inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sorting_goes_through_fibred_groups():
    spec = everything_spec()
    params = random_params(spec, 0)
    element = symmetry.random_element(spec, jax.random.key(1))
    moved = symmetry.act(spec, symmetry.identity(spec)._replace(permutations=element.permutations), params)
    ordered = symmetry.sort_units(spec, params, key="mass")
    assert_close(symmetry.sort_units(spec, moved, key="mass"), ordered, rtol=1e-6)


def test_an_unknown_key_is_answered_with_the_nearest():
    params = mlp_params(SIZES, jax.random.key(0))
    with pytest.raises(ValueError, match="unknown sort key 'means'; did you mean 'mean'"):
        symmetry.sort_units(mlp_spec(SIZES, params), params, key="means")
