"""Somebody who keeps a posterior of an nnx network, and reads it back as their own class."""

import jax
import numpy as np
from flax import nnx

from symbnn import io, posteriors

network = nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(4, 2, rngs=nnx.Rngs(1)))
graph, params = nnx.split(network, nnx.Param)
samples = jax.tree.map(lambda leaf: np.stack([leaf, leaf + 1, leaf + 2]), params)

path = "posterior.safetensors"
io.save_posterior(path, posteriors.Empirical(samples), {"note": "three networks"})
posterior, metadata = io.load_posterior(path, like=params)
jax.tree.map(np.testing.assert_array_equal, posterior.samples, samples)
assert isinstance(posterior.samples, nnx.State)
assert metadata == {"note": "three networks"}
