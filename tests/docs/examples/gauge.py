"""A gauge: units in the order of their first outgoing weight. And its law: labels before it do not matter."""

import jax
import numpy as np

from symbnn import models, symmetry


def by_outgoing(spec, params):
    """The network with its hidden units in descending order of their weight to the first output."""
    order = jax.numpy.argsort(-params["out"]["kernel"][:, 0])
    element = symmetry.identity(spec)._replace(permutations={"hidden": order})
    return symmetry.act(spec, element, params)


model = models.mlp((3,), 2, hidden=(5,))
params = model.init(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (4, 3))
sorted_units = by_outgoing(model.spec, params)
np.testing.assert_allclose(model.apply(sorted_units, x), model.apply(params, x), atol=1e-5)

element = symmetry.random_element(model.spec, jax.random.key(2))
only_labels = symmetry.identity(model.spec)._replace(permutations=element.permutations)
moved = symmetry.act(model.spec, only_labels, params)
jax.tree.map(np.testing.assert_array_equal, by_outgoing(model.spec, moved), sorted_units)
