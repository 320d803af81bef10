"""A spec as text."""

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import symmetry
from tests.symmetry.cases import CASES, discovered, hidden


def masked(h, params):
    return h * np.float32([1, 2, 3, 4, 5, 6])


def test_unexpected_pins_are_told_with_their_line():
    text = discovered(hidden(masked)).explain()
    reason = "meets a constant that differs along it in `broadcast_in_dim` at test_explain.py:"
    assert f"pinned axes, perhaps without need:\n  in axis 1 (size 6): {reason}" in text


def test_expected_pins_are_told_by_cause():
    text = discovered(hidden(masked)).explain()
    assert "pinned axes (their order matters), as expected:\n  order of the inputs: in axis 0\n" in text


def test_primitives_without_a_rule_are_named():
    text = discovered(hidden(lambda h, params: jax.lax.igamma(jnp.abs(h), jnp.abs(h)))).explain()
    assert text.startswith("no symmetries found")
    assert "no rule for igamma" in text


def test_groups_are_shown_with_roles_and_exponents():
    text = discovered(CASES["mlp_relu"]()).explain()
    assert "layer0: 4 units; 1 scale, no signs" in text
    assert "layer1/kernel axis 0 consumes scale -1" in text


def test_a_missing_scale_or_sign_has_a_reason():
    text = discovered(hidden(lambda h, params: jax.nn.relu6(h))).explain()
    assert "no scale: `min` does not pass a factor on, at test_explain.py:" in text
    assert "no sign: `max` is not odd, at test_explain.py:" in text
    odd = discovered(hidden(lambda h, params: jnp.tanh(h))).explain()
    assert "no scale: `tanh`" in odd
    assert "no sign" not in odd


def test_blocks_leave_scales_to_their_units():
    text = discovered(CASES["transformer"]()).explain()
    assert "no scale: that of the units that vary over it says the same" in text


def test_lines_are_found_behind_cached_functions():
    functions = {
        "fft": lambda h, params: jnp.fft.fft(h).real,
        "argmax": lambda h, params: jax.nn.one_hot(jnp.argmax(h, -1), 6),
    }
    for primitive, function in functions.items():
        assert f"in `{primitive}` at test_explain.py:" in discovered(hidden(function)).explain()


def causal(p, tokens):
    """One head with rotary positions, in halves, and a causal mask."""
    x = p["tokens"][tokens] + p["positions"]
    angles = jnp.arange(5)[:, None] / 10 ** jnp.arange(2)
    q, k = (turned(x @ p[name], jnp.cos(angles), jnp.sin(angles)) for name in ("q", "k"))
    scores = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), q @ k.T, -1e9)
    return jax.nn.softmax(scores) @ (x @ p["v"]) @ p["out"]


def turned(h, cosine, sine):
    first, second = jnp.split(h, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def test_what_a_network_means_to_do_is_no_loss():
    shapes = {"tokens": (7, 6), "positions": (5, 6), "q": (6, 4), "k": (6, 4), "v": (6, 3), "out": (3, 7)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    text = symmetry.discover(causal, params, jax.ShapeDtypeStruct((5,), jnp.int32)).explain()
    assert "perhaps without need" not in text
    assert "a code of positions is mixed into it: k axis 1, q axis 1" in text
    dropped = discovered(
        hidden(lambda h, params: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, h.shape), h, 0))
    ).explain()
    assert "perhaps without need" not in dropped
    assert "random numbers drawn along it: in axis 1, out axis 0" in dropped
