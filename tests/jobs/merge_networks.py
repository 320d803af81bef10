"""Somebody with several trained networks: one network out of four, without training."""

import jax
import jax.numpy as jnp

from symbnn import compact, data, density, evaluate, inference, models, tree

digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(32,))
train = inference.ensemble(num_members=4, epochs=30)
networks = train(jax.random.key(0), density.target(model, digits.train)).posterior

merged = compact.merge(model, networks, inputs=digits.train.inputs[:500])
inputs, labels = jnp.asarray(digits.test.inputs), jnp.asarray(digits.test.targets)
mean = jax.tree.map(lambda leaf: leaf.mean(0), networks.samples)
accuracies = [
    evaluate.accuracy(jax.nn.softmax(model.apply(params, inputs)), labels)
    for params in (tree.take(networks.samples, 0), mean, merged.params)
]
print("one network, plain mean, merged:", *(f"{each:.3f}" for each in accuracies))
assert accuracies[2] > accuracies[1] + 0.1
