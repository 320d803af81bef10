"""Alignment of groups inside groups, of groups that one array has twice, and of concatenated axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Group, Index, Leaf, Segments, SymmetrySpec
from tests.networks import noisy_copies
from tests.symmetry.cases import CASES, draw


def experts_spec() -> SymmetrySpec:
    """Experts that permute with their gate, hidden units inside each."""
    expert, hidden = Factor(3, "expert"), Factor(5, "hidden")
    return SymmetrySpec(
        groups=(Group("expert", 3), Group("hidden", 5, over=("expert",))),
        leaves=(
            Leaf("down", (15, 2), ((expert, hidden), (Factor(2),))),
            Leaf("gate", (4, 3), ((Factor(4),), (expert,))),
            Leaf("up", (3, 4, 5), ((expert,), (Factor(4),), (hidden,))),
        ),
    )


def recurrent_spec() -> SymmetrySpec:
    """A state that its own weights carry twice."""
    state = Factor(6, "state")
    return SymmetrySpec(
        groups=(Group("state", 6),),
        leaves=(
            Leaf("enter", (4, 6), ((Factor(4),), (state,))),
            Leaf("leave", (6, 2), ((state,), (Factor(2),))),
            Leaf("recur", (6, 6), ((state,), (state,))),
        ),
    )


def concatenated_spec() -> SymmetrySpec:
    """A reader of two layers laid end to end, and layers that each index of a scan has its own labels for."""
    left, right, deep = Factor(4, "left"), Factor(5, "right"), Factor(3, "deep")
    return SymmetrySpec(
        groups=(Group("left", 4), Group("right", 5), Group("deep", 3, over=("layer",))),
        indices=(Index("layer", 2),),
        leaves=(
            Leaf("a", (6, 4), ((Factor(6),), (left,))),
            Leaf("b", (4, 5), ((left,), (right,))),
            Leaf("both", (9, 2), ((Segments(((left,), (right,))),), (Factor(2),))),
            Leaf("stack", (2, 7, 3), ((Factor(2, "layer"),), (Factor(7),), (deep,))),
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", [experts_spec, recurrent_spec, concatenated_spec])
@pytest.mark.parametrize("method", ["weights", "frank_wolfe"])
def test_planted_permutations_are_undone(make, method):
    spec = make()
    params = {
        leaf.name: jax.random.normal(jax.random.fold_in(jax.random.key(3), i), leaf.shape)
        for i, leaf in enumerate(spec.leaves)
    }
    samples, planted = noisy_copies(spec, params, jax.random.key(1), 5, noise=0.2)
    result = symmetry.align(spec, samples, reference=params, method=method, restarts=2)
    expected = jax.vmap(lambda g: symmetry.inverse(spec, g))(planted).permutations
    jax.tree.map(np.testing.assert_array_equal, result.elements.permutations, expected)
    assert np.all(np.diff(result.objective, axis=0) >= -1e-5)
    moved = jax.vmap(lambda g, p: symmetry.act(spec, g, p))(result.elements, samples)
    jax.tree.map(np.testing.assert_array_equal, moved, result.samples)


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
    spec = symmetry.discover(case.apply, params, inputs)
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
