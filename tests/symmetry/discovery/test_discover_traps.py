"""Networks that look more symmetric than they are: nothing, or less, is found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import symmetry
from tests.symmetry.cases import discovered, draw, hidden, inputs, summary

MASK = np.arange(6) < 4
TRAPS = {
    "constant mask": lambda h, p: h * np.float32([1, 2, 3, 4, 5, 6]),
    "cumsum": lambda h, p: jnp.cumsum(h, -1),
    "reversed": lambda h, p: h + h[:, ::-1],
    "position": lambda h, p: h + jnp.arange(6.0),
    "argmax": lambda h, p: jax.nn.one_hot(jnp.argmax(h, -1), 6),
    "dropout": lambda h, p: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, h.shape), h, 0),
    "roll": lambda h, p: h + jnp.roll(h, 1, -1),
    "gathered": lambda h, p: h[:, np.array([5, 3, 1, 0, 2, 4])],
    "fft": lambda h, p: jnp.fft.fft(h).real,
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_find_nothing(trap):
    assert discovered(hidden(TRAPS[trap])).groups == ()


PARTIAL = {
    "mask by segments": (lambda h, p: jnp.where(MASK, h, 0), [(2, (), 1, 1), (4, (), 1, 1)]),
    "two halves": (
        lambda h, p: jnp.concatenate([h[:, :3], jnp.tanh(h[:, 3:])], -1),
        [(3, (), 0, 1), (3, (), 1, 1)],
    ),
    "relu6": (lambda h, p: jax.nn.relu6(h), [(6, (), 0, 0)]),
    "max with a half": (lambda h, p: jnp.maximum(h, 0.5), [(6, (), 0, 0)]),
    "softmax": (lambda h, p: jax.nn.softmax(h), [(6, (), 0, 0)]),
}


@pytest.mark.parametrize("trap", PARTIAL)
def test_traps_find_less(trap):
    function, expected = PARTIAL[trap]
    assert summary(discovered(hidden(function))) == expected


def test_a_returned_hidden_layer_is_an_output():
    case = hidden(lambda h, p: h)
    spec = symmetry.discover(
        lambda p, x: (case.apply(p, x), x @ p["in"]), draw(case.shapes), inputs(case.input_shape)
    )
    assert spec.groups == ()


def test_a_weight_closed_over_is_a_constant():
    params = draw({"in": (3, 6), "out": (6, 2)})
    spec = symmetry.discover(
        lambda p, x: jax.nn.relu(x @ params["in"]) @ p["out"], {"out": params["out"]}, inputs((4, 3))
    )
    assert spec.groups == ()


def test_a_condition_on_one_unit_pins_it():
    def apply(p, x):
        h = jax.nn.relu(x @ p["in"])
        return lax.cond(h[0, 0] > 0.5, lambda h: h, lambda h: 2 * h, h) @ p["out"]

    spec = symmetry.discover(apply, draw({"in": (3, 6), "out": (6, 2)}), inputs((4, 3)))
    assert summary(spec) == [(5, (), 1, 0)]


def test_a_while_condition_on_one_unit_pins_it():
    def apply(p, x):
        hidden = jax.nn.relu(x @ p["in"])
        return lax.while_loop(lambda h: h[0, 0] > 0.5, lambda h: 0.5 * h, hidden) @ p["out"]

    spec = symmetry.discover(apply, draw({"in": (3, 6), "out": (6, 2)}), inputs((4, 3)))
    assert summary(spec) == [(5, (), 1, 0)]


def test_integer_weights_move_and_never_scale():
    params = {"in": np.arange(6, dtype=np.int32).reshape(2, 3), "out": np.ones((3, 2), np.float32)}
    spec = symmetry.discover(
        lambda p, x: (x @ p["in"].astype(jnp.float32)) @ p["out"], params, inputs((4, 2))
    )
    assert summary(spec) == [(3, (), 0, 0)]


def test_integer_inputs_and_unused_leaves():
    params = draw({"table": (7, 4), "out": (4, 2), "spare": (4,)})
    tokens = jax.ShapeDtypeStruct((3,), jnp.int32)
    spec = symmetry.discover(lambda p, tokens: jax.nn.relu(p["table"][tokens]) @ p["out"], params, tokens)
    assert summary(spec) == [(4, (), 1, 0)]
    assert "leaf 'spare' is not used: the outputs do not depend on it" in spec.notes
