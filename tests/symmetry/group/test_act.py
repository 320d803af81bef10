"""Group laws: act is an action, compose is associative, inverse inverts; for plain and for fibred groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn import symmetry
from tests.symmetry.specs import everything_spec, linear_spec, random_params

SPECS = {"permutations": everything_spec, "matrices": linear_spec}


def assert_close(a, b, tolerance=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


@pytest.mark.parametrize("kind", SPECS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_group_laws(kind, seed):
    spec = SPECS[kind]()
    params = random_params(spec, seed)
    g, h, k = (symmetry.random_element(spec, key) for key in jax.random.split(jax.random.key(seed), 3))
    act, compose = symmetry.act, symmetry.compose
    # Matrices of condition ten and scales of another ten: sums of hundreds that cancel.
    tolerance = 2e-3 if kind == "matrices" else 2e-5
    assert_close(act(spec, compose(spec, g, h), params), act(spec, g, act(spec, h, params)), tolerance)
    assert_close(compose(spec, g, compose(spec, h, k)), compose(spec, compose(spec, g, h), k), tolerance)
    assert_close(compose(spec, g, symmetry.inverse(spec, g)), symmetry.identity(spec), tolerance)
    assert_close(compose(spec, symmetry.inverse(spec, g), g), symmetry.identity(spec), tolerance)
    jax.tree.map(np.testing.assert_array_equal, act(spec, symmetry.identity(spec), params), params)


@pytest.mark.parametrize("kind", SPECS)
def test_group_laws_are_exact_in_double_precision(kind):
    with jax.enable_x64(True):
        spec = SPECS[kind]()
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), random_params(spec, 0))
        g, h = (symmetry.random_element(spec, key) for key in jax.random.split(jax.random.key(1)))
        both = symmetry.act(spec, symmetry.compose(spec, g, h), params)
        assert_close(both, symmetry.act(spec, g, symmetry.act(spec, h, params)), 1e-10)
        back = symmetry.act(spec, symmetry.inverse(spec, g), symmetry.act(spec, g, params))
        assert_close(back, params, 1e-10)


def test_matrices_act_on_vectors_and_duals_of_every_fibre():
    spec = linear_spec()
    params = random_params(spec, 0)
    g = symmetry.random_element(spec, jax.random.key(1))
    moved = symmetry.act(spec, symmetry.Element({}, {}, {}, g.matrices), params)
    channel, stream = np.float64(g.matrices["channel"]), np.float64(g.matrices["stream"])
    query = np.einsum("hij,ab,bhj->ahi", channel, stream, params["query"])
    np.testing.assert_allclose(moved["query"], query, rtol=2e-4, atol=2e-5)
    dual = np.linalg.inv(channel).swapaxes(-1, -2)
    key = np.einsum("hij,ab,hjb->hia", dual, stream, np.reshape(params["key"], (3, 4, 5)))
    np.testing.assert_allclose(moved["key"], key.reshape(12, 5), rtol=2e-4, atol=2e-5)
    # What the network computes from both: queries times keys, rotated with the stream.
    scores = np.einsum("ahi,hib->hab", moved["query"], np.reshape(moved["key"], (3, 4, 5)))
    before = np.einsum("ahi,hib->hab", params["query"], np.reshape(params["key"], (3, 4, 5)))
    expected = np.einsum("ab,cd,hbd->hac", stream, stream, before)
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)


def test_random_matrices_are_of_their_kind():
    spec = linear_spec()
    drawn = jax.vmap(lambda key: symmetry.random_element(spec, key).matrices)(
        jax.random.split(jax.random.key(0), 200)
    )
    assert drawn["channel"].shape == (200, 3, 4, 4)
    assert np.linalg.cond(np.float64(drawn["channel"])).max() < 10.01
    for name, size in (("stream", 5), ("centred", 6)):
        gram = np.einsum("sij,skj->sik", drawn[name], drawn[name])
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(size), gram.shape), atol=1e-5)
    np.testing.assert_allclose(drawn["centred"].sum(-1), np.ones((200, 6)), atol=1e-5)
    # Haar: entries have mean 0 and variance 1/n, whatever the rotation before; five deviations.
    entries = np.asarray(drawn["stream"]).reshape(200, -1)
    assert np.abs(entries.mean(0)).max() < 5 * np.sqrt(1 / 5 / 200)
    assert np.abs((entries**2).mean(0) - 1 / 5).max() < 5 * np.sqrt(2 / 25 / 200)
    # Both components of O(n).
    assert 60 < (np.linalg.det(np.float64(drawn["stream"])) > 0).sum() < 140


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
    *(("permutations", name) for name in ("expert", "hidden", "other", "head", "channel", "stream")),
    *(("scales", name) for name in ("hidden", "other", "channel")),
    *(("signs", name) for name in ("hidden", "stream")),
    *(("matrices", name) for name in ("channel", "stream", "centred")),
]


@pytest.fixture(params=PARTS, ids=" of ".join)
def partial_and_whole(request):
    """A spec, an element of one kind for one group, and the same with the identity written out."""
    kind, name = request.param
    spec = next(spec for spec in (everything_spec(), linear_spec()) if name in [g.name for g in spec.groups])
    drawn = getattr(symmetry.random_element(spec, jax.random.key(2)), kind)[name]
    none = symmetry.identity(spec)
    partly = symmetry.Element({}, {}, {})._replace(**{kind: {name: drawn}})
    return spec, partly, none._replace(**{kind: getattr(none, kind) | {name: drawn}})


def test_what_an_element_does_not_name_stays(partial_and_whole):
    spec, *elements = partial_and_whole
    params = random_params(spec, 0)
    moved, expected = (symmetry.act(spec, element, params) for element in elements)
    jax.tree.map(np.testing.assert_array_equal, moved, expected)
    assert any(not np.array_equal(moved[name], params[name]) for name in params)


def test_products_and_inverses_of_partial_elements(partial_and_whole):
    spec, partly, whole = partial_and_whole
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
        ("matrices", "hidden", "the spec has no matrices for group 'hidden'"),
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
@pytest.mark.parametrize("kind", SPECS)
def test_elements_and_params_stack(kind):
    spec = SPECS[kind]()
    params = jax.vmap(lambda seed: jax.tree.map(lambda leaf: leaf * seed, random_params(spec, 0)))(
        jnp.arange(1.0, 4.0)
    )
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(0), 3)
    )
    stacked = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, elements, params)
    one = symmetry.act(spec, jax.tree.map(lambda a: a[1], elements), jax.tree.map(lambda a: a[1], params))
    assert_close(jax.tree.map(lambda a: a[1], stacked), one, 1e-3)


def test_act_refuses_foreign_params():
    spec = everything_spec()
    params = random_params(spec, 0)
    with pytest.raises(ValueError, match="'up' has shape"):
        symmetry.act(spec, symmetry.identity(spec), params | {"up": params["up"][..., :2]})
    with pytest.raises(ValueError, match="missing leaves"):
        symmetry.act(spec, symmetry.identity(spec), {"gate": params["gate"]})
