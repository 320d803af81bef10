"""The code of the site's first page: the mean of twenty networks, as trained and aligned."""

# --8<-- [start:code]
import jax

from symbnn import data, density, evaluate, inference, models, symmetry

digits = data.load("digits", flatten=True)
model = models.mlp(digits.input_shape, digits.num_classes, hidden=(16,))
train = inference.ensemble(num_members=20, epochs=30)
networks = train(jax.random.key(0), density.target(model, digits.train)).posterior

aligned = symmetry.align(model.spec, networks, reference="mean")
for name, kept in (("as trained", networks), ("aligned", aligned)):
    mean = jax.tree.map(lambda leaf: leaf.mean(0), kept.samples)
    probs = jax.nn.softmax(model.apply(mean, digits.test.inputs))
    print("mean network,", name, f"{evaluate.accuracy(probs, digits.test.targets):.2f}")
# --8<-- [end:code]
