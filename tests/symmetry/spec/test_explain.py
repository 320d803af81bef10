"""A spec as text."""

import jax
import jax.numpy as jnp
import numpy as np

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
