"""Alignment of residual convolutional networks by every method: planted permutations under noise.

30 % on every weight; through twenty layers without training, activations then have little in common, so the
deep network is matched by activations under 10 %.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import models, symmetry
from tests.networks import noisy_copies
from tests.symmetry.cases.base import conv


def small(p, x):
    """A stream through one block, then the mean over positions."""
    x = jax.nn.relu(conv(p["stem"], x) + p["bias"])
    x = jax.nn.relu(x + conv(p["conv2"], jax.nn.relu(conv(p["conv1"], x))))
    return x.mean((1, 2)) @ p["out"]


def small_network():
    shapes = {"stem": (3, 3, 3, 6), "bias": (6,), "conv1": (3, 3, 6, 5), "conv2": (3, 3, 5, 6), "out": (6, 4)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    params = {
        name: jax.random.normal(key, shape) / np.sqrt(np.prod(shape[:-1]))
        for (name, shape), key in zip(shapes.items(), keys, strict=True)
    }
    inputs = jax.random.normal(jax.random.key(3), (8, 6, 6, 3))
    return symmetry.discover(small, params, inputs), small, params, inputs


def filter_response_network():
    """Vectors are drawn too: at initialisation they are all zeros or ones, and tell no channels apart."""
    model = models.resnet20_frn((8, 8, 3), 10)
    leaves, treedef = jax.tree.flatten(model.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(5), len(leaves))
    drawn = [
        leaf + 0.1 * jax.random.normal(key, leaf.shape) if leaf.ndim == 1 else leaf
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    inputs = jax.random.normal(jax.random.key(3), (256, 8, 8, 3))
    return model.spec, model.apply, jax.tree.unflatten(treedef, drawn), inputs


METHODS = {
    "weights": lambda apply, inputs: {},
    "activations": lambda apply, inputs: {"method": "activations", "apply": apply, "inputs": inputs},
    "frank_wolfe": lambda apply, inputs: {"method": "frank_wolfe"},
}
NETWORKS = {"small": small_network, "ResNet-20-FRN": filter_response_network}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["small", "ResNet-20-FRN"])
def test_planted_permutations_are_undone(name, method):
    spec, apply, params, inputs = NETWORKS[name]()
    noise = 0.1 if (name, method) == ("ResNet-20-FRN", "activations") else 0.3
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 2, noise=noise)
    result = symmetry.align(spec, samples, reference=params, **METHODS[method](apply, inputs))
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)
    assert all(bool(jnp.all(signs == 1)) for signs in result.elements.signs.values())
