"""Group laws: act is an action, compose is associative, inverse inverts; for plain and for fibred groups."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Group, Index, Leaf, Segments, SymmetrySpec, join, split

ONE, MINUS = (Fraction(1),), (Fraction(-1),)


def experts_spec() -> SymmetrySpec:
    """Hidden units over experts; experts permute with the gate; a packed axis; a sum."""
    expert = Factor(3, "expert")
    hidden = Factor(4, "hidden", scales=ONE, signs=(1,))
    reading = Factor(4, "hidden", scales=MINUS, signs=(1,))
    other = Factor(2, "other", scales=(Fraction(1, 2), Fraction(-2)))
    return SymmetrySpec(
        groups=(
            Group("expert", 3),
            Group("hidden", 4, over=("expert",), num_scales=1, num_signs=1),
            Group("other", 2, over=("layer", "expert"), num_scales=2),
        ),
        indices=(Index("layer", 5),),
        leaves=(
            Leaf("gate", (7, 3), ((Factor(7),), (expert,))),
            Leaf("up", (3, 6, 4), ((expert,), (Factor(6),), (hidden,))),
            Leaf("packed", (12, 5), ((expert, reading), (Factor(5, "layer"),))),
            Leaf("square", (3, 5, 2, 2), ((expert,), (Factor(5, "layer"),), (other,), (other,))),
            Leaf("sum", (3, 4 + 6), ((expert,), (Segments(((hidden,), (Factor(6),))),))),
            Leaf("scalar", (), ()),
        ),
    )


def random_params(spec: SymmetrySpec, seed: int):
    random = np.random.default_rng(seed)
    return {leaf.name: jnp.asarray(random.normal(size=leaf.shape), jnp.float32) for leaf in spec.leaves}


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5), a, b)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_group_laws(seed):
    spec = experts_spec()
    params = random_params(spec, seed)
    g, h, k = (symmetry.random_element(spec, key) for key in jax.random.split(jax.random.key(seed), 3))
    act, compose = symmetry.act, symmetry.compose
    assert_close(act(spec, compose(spec, g, h), params), act(spec, g, act(spec, h, params)))
    assert_close(compose(spec, g, compose(spec, h, k)), compose(spec, compose(spec, g, h), k))
    assert_close(compose(spec, g, symmetry.inverse(spec, g)), symmetry.identity(spec))
    assert_close(compose(spec, symmetry.inverse(spec, g), g), symmetry.identity(spec))
    assert_close(act(spec, symmetry.identity(spec), params), params)


def test_action_on_a_fibred_leaf_is_the_formula():
    spec = experts_spec()
    params = random_params(spec, 0)
    g = symmetry.random_element(spec, jax.random.key(1))
    moved = symmetry.act(spec, g, params)
    rho, pi = np.asarray(g.permutations["expert"]), np.asarray(g.permutations["hidden"])
    factor = np.asarray(g.scales["hidden"][0] * g.signs["hidden"][0])
    for i in range(3):
        for j in range(4):
            expected = factor[i, j] * params["up"][rho[i], :, pi[i, j]]
            np.testing.assert_allclose(moved["up"][i, :, j], expected, rtol=1e-5)


@pytest.mark.slow
def test_elements_and_params_stack():
    spec = experts_spec()
    params = jax.vmap(lambda seed: jax.tree.map(lambda leaf: leaf * seed, random_params(spec, 0)))(
        jnp.arange(1.0, 4.0)
    )
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(0), 3)
    )
    stacked = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, elements, params)
    one = symmetry.act(spec, jax.tree.map(lambda a: a[1], elements), jax.tree.map(lambda a: a[1], params))
    assert_close(jax.tree.map(lambda a: a[1], stacked), one)


def test_spec_is_static():
    spec = experts_spec()
    traces = []

    def moved(spec, g, params):
        traces.append(1)
        return symmetry.act(spec, g, params)

    jitted = jax.jit(moved, static_argnums=0)
    g = symmetry.random_element(spec, jax.random.key(0))
    jitted(spec, g, random_params(spec, 0))
    jitted(experts_spec(), g, random_params(spec, 1))
    assert len(traces) == 1


def test_split_and_join_are_inverse():
    spec = experts_spec()
    for leaf in spec.leaves:
        array = jnp.arange(float(np.prod(leaf.shape, dtype=int))).reshape(leaf.shape)
        pieces = split(leaf.axes, array)
        np.testing.assert_array_equal(join(leaf.axes, [piece.array for piece in pieces]), array)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"hiden/kernel": (None, "h")}, "hidden/kernel"),
        ({"hidden/kernel": (None, "h"), "out/kernel": ("h", None)}, "group 'h' has 5 units"),
        ({"hidden/kernel": ("h",)}, "has 2 axes"),
    ],
)
def test_wrong_hand_written_specs_are_named(axes, message):
    params = {"hidden": {"kernel": jnp.zeros((3, 5))}, "out": {"kernel": jnp.zeros((4, 2))}}
    with pytest.raises(ValueError, match=message):
        symmetry.from_axes(axes, params)


def test_act_refuses_foreign_params():
    spec = experts_spec()
    params = random_params(spec, 0)
    with pytest.raises(ValueError, match="'up' has shape"):
        symmetry.act(spec, symmetry.identity(spec), params | {"up": params["up"][..., :2]})
    with pytest.raises(ValueError, match="missing leaves"):
        symmetry.act(spec, symmetry.identity(spec), {"gate": params["gate"]})
