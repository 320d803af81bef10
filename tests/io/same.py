"""Whether two trees are the same, bit for bit."""

import jax
import numpy as np


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(x) == jax.random.key_impl(y)
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        if not isinstance(x, int | float | str):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        else:
            assert x == y
