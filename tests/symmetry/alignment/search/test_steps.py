"""Alignment of groups inside groups, of groups that one array has twice, and of concatenated axes."""

import jax
import numpy as np
import pytest

from symbnn import symmetry
from tests.networks import noisy_copies
from tests.symmetry.specs import concatenated_spec, experts_spec, recurrent_spec


@pytest.mark.slow
@pytest.mark.parametrize("make", [experts_spec, recurrent_spec, concatenated_spec])
@pytest.mark.parametrize("method", ["weights", "frank_wolfe"])
def test_planted_permutations_are_undone(make, method):
    spec = make()
    params = {
        leaf.name: jax.random.normal(jax.random.fold_in(jax.random.key(3), i), leaf.shape)
        for i, leaf in enumerate(spec.leaves)
    }
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 5, noise=0.2)
    result = symmetry.align(spec, samples, reference=params, method=method, restarts=2)
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)
    assert np.all(np.diff(result.objective, axis=0) >= -1e-5)
    moved = jax.vmap(lambda g, p: symmetry.act(spec, g, p))(result.elements, samples)
    jax.tree.map(np.testing.assert_array_equal, moved, result.samples)
