"""Activations that are found in the network's own program: in batched products, scans and packed axes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from tests.networks import noisy_copies
from tests.symmetry.cases import CASES, draw
from tests.symmetry.specs import experts_spec


@pytest.mark.slow
def test_activations_of_experts():
    """Captured through a batched product and a packed axis."""
    spec = experts_spec()

    def apply(params, inputs):
        hidden = jax.nn.relu(jnp.einsum("nk,eku->neu", inputs, params["up"]))
        weighted = hidden * jax.nn.softmax(inputs @ params["gate"])[:, :, None]
        return weighted.reshape(len(inputs), 15) @ params["down"]

    params = {
        leaf.name: jax.random.normal(jax.random.fold_in(jax.random.key(3), i), leaf.shape)
        for i, leaf in enumerate(spec.leaves)
    }
    inputs = jax.random.normal(jax.random.key(4), (200, 4))
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 4, noise=0.05)
    result = symmetry.align(spec, samples, reference=params, method="activations", apply=apply, inputs=inputs)
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "rnn", "scanned_layers", "mapped_experts"])
def test_activations_inside_a_scan(name):
    """Units of a state over time, of scanned layers, and of experts that are mapped over."""
    case = CASES[name]()
    # Smaller weights: activations of deep layers must not all follow one direction.
    params = jax.tree.map(lambda leaf: 0.3 * jnp.asarray(leaf), draw(case.shapes))
    inputs = jax.random.normal(jax.random.key(4), (100, *case.input_shape[1:]))
    # Without matrices, which say the same as labels of the units that they mix.
    spec = symmetry.discover(case.apply, params, inputs).permutations_only()
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 4, noise=0.003)
    result = symmetry.align(
        spec, samples, reference=params, method="activations", apply=case.apply, inputs=inputs
    )
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)


def test_activations_inside_a_while_loop_are_asked_for():
    def apply(p, x):
        def body(state):
            return state[0] + 1, x @ p["in"], jax.nn.relu(state[1]) @ p["out"]

        start = (0, jnp.zeros((len(x), 3)), jnp.zeros((len(x), 2)))
        return jax.lax.while_loop(lambda state: state[0] < 2, body, start)[2]

    params = draw({"in": (2, 3), "out": (3, 2)})
    inputs = jnp.ones((4, 2))
    spec = symmetry.discover(apply, params, inputs)
    samples = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    with pytest.raises(ValueError, match=r"while loop or a branch.*pass activations="):
        symmetry.align(spec, samples, method="activations", apply=apply, inputs=inputs)


def two_inputs(p, x, y):
    return jax.nn.relu(x @ p["in"] + y @ p["other"]) @ p["out"]


TWO_PARAMS = draw({"in": (2, 5), "other": (3, 5), "out": (5, 2)})
TWO_INPUTS = tuple(jax.random.normal(jax.random.key(size), (50, size)) for size in (2, 3))
TWO_SPEC = symmetry.discover(two_inputs, TWO_PARAMS, *TWO_INPUTS)


def of_a_dict(p, x):
    return two_inputs(p, x["x"], x["y"])


@pytest.mark.parametrize(
    ("spec", "apply", "inputs"),
    [
        (TWO_SPEC, two_inputs, TWO_INPUTS),
        (TWO_SPEC, of_a_dict, dict(zip("xy", TWO_INPUTS, strict=True))),
        # Leaves are found by name: a spec may list them in any order.
        (replace(TWO_SPEC, leaves=TWO_SPEC.leaves[::-1]), two_inputs, TWO_INPUTS),
    ],
    ids=["tuple", "dict", "leaves in another order"],
)
def test_activations_of_several_inputs(spec, apply, inputs):
    samples, planted = noisy_copies(spec, TWO_PARAMS, jax.random.key(1), 3, noise=0.01)
    result = symmetry.align(
        spec, samples, reference=TWO_PARAMS, method="activations", apply=apply, inputs=inputs
    )
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)


def test_units_of_scanned_layers_are_not_centred_together():
    """Of a copy whose layers differ in size: unit 1 of the first layer is another than unit 1 of the last."""
    case = CASES["scanned_layers"]()
    params = draw(case.shapes)
    inputs = jax.random.normal(jax.random.key(4), (100, *case.input_shape[1:]))
    spec = symmetry.discover(case.apply, params, inputs).permutations_only()
    element = symmetry.random_element(spec, jax.random.key(1))._replace(scales={}, signs={})
    copy = symmetry.act(spec, element, params)
    samples = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], copy)
    result = symmetry.align(
        spec, samples, reference=params, method="activations", apply=case.apply, inputs=inputs
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, atol=1e-6), result.samples, params)
