"""Draws of a sampler of my own, (chains, draws, ...): align them, fit a Gaussian, predict."""

import jax
import jax.numpy as jnp

from symbnn import compact, data, diagnostics, evaluate, models, posteriors, symmetry

digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(8,))
keys = jax.random.split(jax.random.key(0), (2, 10))
draws = jax.vmap(jax.vmap(model.init))(keys)  # two chains of ten networks, from wherever

posterior = posteriors.Empirical.from_chains(draws)
aligned = symmetry.align(model.spec, posterior)
gaussian = compact.gaussian(aligned)
inputs = jnp.asarray(digits.test.inputs)
probs = evaluate.predict(model.apply, gaussian, inputs, key=jax.random.key(1), num_samples=20)
print(diagnostics.function_space(model.apply, posterior, inputs[:10]))
assert posterior.num_chains == 2
assert probs.shape == (len(digits.test.targets), 10)
