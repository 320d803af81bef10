"""Mean and variance of aligned networks."""

import jax
import jax.numpy as jnp
import numpy as np

from symbnn.symmetry.alignment.features import weight_features
from symbnn.symmetry.alignment.match import Matching
from symbnn.symmetry.alignment.means import mean_features, variance_of_features
from tests.networks import mlp_params, mlp_spec

SIZES = (3, 4, 2)


def test_small_variances_about_a_large_mean_do_not_cancel():
    """Weights 1 ± 1e-4: their squares differ by less than float32 resolves."""
    base = mlp_params(SIZES, jax.random.key(0))
    spec = mlp_spec(SIZES, base)
    noise = np.random.default_rng(0).normal(size=40)
    samples = jax.tree.map(
        lambda leaf: jnp.float32(1 + 1e-4 * noise).reshape(40, *[1] * leaf.ndim) * jnp.ones_like(leaf), base
    )
    matching = Matching(spec, weight_features(spec, base), samples)
    none = {"h0": np.tile(np.arange(4, dtype=np.int32), (40, 1))}
    values = np.float64(np.float32(1 + 1e-4 * noise))
    for found, expected in (
        (mean_features(matching, none), values.mean()),
        (variance_of_features(matching, none), values.var()),
    ):
        for array in found:
            np.testing.assert_allclose(array, expected, rtol=1e-3)
