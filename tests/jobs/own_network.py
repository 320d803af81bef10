"""An Equinox user: the symmetries of their network, an ensemble of it, and a module back."""

import equinox as eqx
import jax
import jax.numpy as jnp

from symbnn import data, density, evaluate, inference, models, symmetry

digits = data.load("digits", flatten=True)


def build(key):
    return eqx.nn.MLP(64, 10, width_size=8, depth=1, key=key)


model = models.wrap(build(jax.random.key(0)), digits.test.inputs[:2], init=build)
print(model.spec.explain())
fit = inference.ensemble(num_members=3, epochs=15)(jax.random.key(1), density.target(model, digits.train))
aligned = symmetry.align(model.spec, fit.posterior)
probs = evaluate.predict(model.apply, aligned.samples, jnp.asarray(digits.test.inputs))
module = model.network(jax.tree.map(lambda leaf: leaf.mean(0), aligned.samples))
assert isinstance(module, eqx.nn.MLP)
assert evaluate.accuracy(probs, jnp.asarray(digits.test.targets)) > 0.5
