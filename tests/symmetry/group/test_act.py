"""Group laws: act is an action, compose is associative, inverse inverts; for plain and for fibred groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn import symmetry
from tests.symmetry.specs import everything_spec, random_params


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5), a, b)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_group_laws(seed):
    spec = everything_spec()
    params = random_params(spec, seed)
    g, h, k = (symmetry.random_element(spec, key) for key in jax.random.split(jax.random.key(seed), 3))
    act, compose = symmetry.act, symmetry.compose
    assert_close(act(spec, compose(spec, g, h), params), act(spec, g, act(spec, h, params)))
    assert_close(compose(spec, g, compose(spec, h, k)), compose(spec, compose(spec, g, h), k))
    assert_close(compose(spec, g, symmetry.inverse(spec, g)), symmetry.identity(spec))
    assert_close(compose(spec, symmetry.inverse(spec, g), g), symmetry.identity(spec))
    assert_close(act(spec, symmetry.identity(spec), params), params)


def test_action_on_a_fibred_leaf_is_the_formula():
    spec = everything_spec()
    params = random_params(spec, 0)
    g = symmetry.random_element(spec, jax.random.key(1))
    moved = symmetry.act(spec, g, params)
    rho, pi = np.asarray(g.permutations["expert"]), np.asarray(g.permutations["hidden"])
    factor = np.asarray(g.scales["hidden"][0] * g.signs["hidden"][0])
    for i in range(3):
        for j in range(4):
            expected = factor[i, j] * params["up"][rho[i], :, pi[i, j]]
            np.testing.assert_allclose(moved["up"][i, :, j], expected, rtol=1e-5)


PARTS = [
    *(("permutations", name) for name in ("expert", "hidden", "other")),
    *(("scales", name) for name in ("hidden", "other")),
    ("signs", "hidden"),
]


@pytest.fixture(params=PARTS, ids=" of ".join)
def partial_and_whole(request):
    """An element of one kind for one group, and the same with the identity written out."""
    kind, name = request.param
    spec = everything_spec()
    drawn = getattr(symmetry.random_element(spec, jax.random.key(2)), kind)[name]
    none = symmetry.identity(spec)
    partly = symmetry.Element({}, {}, {})._replace(**{kind: {name: drawn}})
    return partly, none._replace(**{kind: getattr(none, kind) | {name: drawn}})


def test_what_an_element_does_not_name_stays(partial_and_whole):
    spec = everything_spec()
    params = random_params(spec, 0)
    moved, expected = (symmetry.act(spec, element, params) for element in partial_and_whole)
    jax.tree.map(np.testing.assert_array_equal, moved, expected)
    assert any(not np.array_equal(moved[name], params[name]) for name in params)


def test_products_and_inverses_of_partial_elements(partial_and_whole):
    spec = everything_spec()
    partly, whole = partial_and_whole
    g = symmetry.random_element(spec, jax.random.key(3))
    for found, expected in (
        (symmetry.inverse(spec, partly), symmetry.inverse(spec, whole)),
        (symmetry.compose(spec, partly, g), symmetry.compose(spec, whole, g)),
        (symmetry.compose(spec, g, partly), symmetry.compose(spec, g, whole)),
    ):
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("permutations", "hiden", "unknown group 'hiden'; did you mean 'hidden'"),
        ("scales", "hiden", "unknown group 'hiden'; did you mean 'hidden'"),
        ("scales", "expert", "the spec has no scales for group 'expert'"),
        ("signs", "other", "the spec has no signs for group 'other'"),
    ],
)
def test_groups_that_the_spec_does_not_have_are_refused(kind, name, message):
    spec = everything_spec()
    element = symmetry.Element({}, {}, {})._replace(**{kind: {name: jnp.ones(3)}})
    for use in (
        lambda: symmetry.act(spec, element, random_params(spec, 0)),
        lambda: symmetry.compose(spec, element, symmetry.identity(spec)),
        lambda: symmetry.compose(spec, symmetry.identity(spec), element),
        lambda: symmetry.inverse(spec, element),
    ):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.slow
def test_elements_and_params_stack():
    spec = everything_spec()
    params = jax.vmap(lambda seed: jax.tree.map(lambda leaf: leaf * seed, random_params(spec, 0)))(
        jnp.arange(1.0, 4.0)
    )
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(0), 3)
    )
    stacked = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, elements, params)
    one = symmetry.act(spec, jax.tree.map(lambda a: a[1], elements), jax.tree.map(lambda a: a[1], params))
    assert_close(jax.tree.map(lambda a: a[1], stacked), one)


def test_act_refuses_foreign_params():
    spec = everything_spec()
    params = random_params(spec, 0)
    with pytest.raises(ValueError, match="'up' has shape"):
        symmetry.act(spec, symmetry.identity(spec), params | {"up": params["up"][..., :2]})
    with pytest.raises(ValueError, match="missing leaves"):
        symmetry.act(spec, symmetry.identity(spec), {"gate": params["gate"]})
