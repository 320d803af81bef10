"""Gauges: what they promise, and one canonical point per orbit."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbnn import symmetry
from symbnn.symmetry.spec import Factor, Group, Leaf
from tests.networks import mlp_apply, mlp_params, mlp_spec
from tests.symmetry.cases import CASES, Case, discovered, draw
from tests.symmetry.specs import experts_spec, random_params

SIZES = (5, 4, 4, 3)


def assert_close(a, b, *, rtol=1e-7, atol=1e-9):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


def double_mlp(seed, **generators):
    params = mlp_params(SIZES, jax.random.key(seed), dtype=jnp.float64)
    return mlp_spec(SIZES, params, **generators), params


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
@pytest.mark.parametrize(
    ("generators", "activation"),
    [({"scales": True}, jax.nn.relu), ({"signs": True}, jnp.tanh), ({}, jax.nn.gelu)],
)
def test_canonical_point_is_the_same_all_over_the_orbit(generators, activation, seed):
    with jax.enable_x64(True):
        spec, params = double_mlp(seed, **generators)
        element = symmetry.random_element(spec, jax.random.key(seed + 1), log_scale=2.0)
        canonical = symmetry.canonicalise(spec, params)
        assert_close(symmetry.canonicalise(spec, symmetry.act(spec, element, params)), canonical)
        assert_close(symmetry.canonicalise(spec, canonical), canonical)
        inputs = jax.random.normal(jax.random.key(seed), (6, SIZES[0]))
        assert_close(mlp_apply(canonical, inputs, activation), mlp_apply(params, inputs, activation))


def test_canonical_point_with_ties():
    """Two units of equal mass are told apart by their weights; equal units need not be."""
    kernel = jnp.array([[3.0, 4.0, 1.0, 1.0], [4.0, 3.0, 2.0, 2.0]])
    params = {"hidden0": {"kernel": kernel}, "out": {"kernel": jnp.array([[1.0], [1.0], [2.0], [2.0]])}}
    spec = mlp_spec((2, 4, 1), params)
    canonical = symmetry.canonicalise(spec, params)
    np.testing.assert_array_equal(canonical["hidden0"]["kernel"][0], [4.0, 3.0, 1.0, 1.0])
    for seed in range(5):
        element = symmetry.random_element(spec, jax.random.key(seed))
        assert_close(symmetry.canonicalise(spec, symmetry.act(spec, element, params)), canonical)


def test_canonical_point_of_units_inside_others():
    """Hidden units of each expert, then the experts."""
    spec = experts_spec()
    params = random_params(spec, 0)
    canonical = symmetry.canonicalise(spec, params)
    for seed in range(3):
        moved = symmetry.act(spec, symmetry.random_element(spec, jax.random.key(seed)), params)
        assert_close(symmetry.canonicalise(spec, moved), canonical)


@pytest.mark.slow
def test_normalised_units_have_incoming_weights_of_that_length():
    with jax.enable_x64(True):
        spec, params = double_mlp(0, scales=True)
        inputs = jax.random.normal(jax.random.key(1), (6, SIZES[0]))
        for scale, statistic, measure in (
            (1.0, "norm", lambda kernel: jnp.linalg.norm(kernel, axis=0)),
            (3.0, "norm", lambda kernel: jnp.linalg.norm(kernel, axis=0)),
            (1.0, "std", lambda kernel: jnp.std(kernel, axis=0)),
        ):
            result = symmetry.normalise(spec, params, scale=scale, statistic=statistic)
            for layer in ("hidden0", "hidden1"):
                np.testing.assert_allclose(measure(result[layer]["kernel"]), scale, rtol=1e-12)
            assert_close(mlp_apply(result, inputs), mlp_apply(params, inputs))


def test_normalise_does_not_depend_on_the_scales_it_starts_from():
    with jax.enable_x64(True):
        spec, params = double_mlp(2, scales=True)
        element = symmetry.random_element(spec, jax.random.key(3), log_scale=2.0)
        scaled = symmetry.act(spec, symmetry.identity(spec)._replace(scales=element.scales), params)
        assert_close(symmetry.normalise(spec, scaled), symmetry.normalise(spec, params))


def wide_params(case, seed=0):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), draw(case.shapes, seed))


def check_orbit(spec, params):
    """One point per orbit by `normalise` of rescaled networks and by `canonicalise` of any.

    Lengths fix no point among all invertible mixtures, as `canonicalise` says; `"mass"` does (test_mixing).
    """
    element = symmetry.random_element(spec, jax.random.key(0))
    rotations = {
        name: matrix for name, matrix in element.matrices.items() if spec.group(name).kind != "invertible"
    }
    element = element._replace(matrices=rotations)
    scaled = symmetry.act(spec, symmetry.Element({}, element.scales, {}), params)
    assert_close(symmetry.normalise(spec, scaled), symmetry.normalise(spec, params))
    canonical = symmetry.canonicalise(spec, params, scale_gauge="norm")
    moved = symmetry.act(spec, element, params)
    assert_close(symmetry.canonicalise(spec, moved, scale_gauge="norm"), canonical)


SCALED = [name for name in CASES if any(scales for _, _, scales, _ in CASES[name]().groups)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCALED)
def test_lengths_fix_one_point_of_the_orbit(name):
    with jax.enable_x64(True):
        case = CASES[name]()
        check_orbit(discovered(case), wide_params(case))


def products(p, x):
    return (jax.nn.relu(x @ p["w"]) * jax.nn.relu(x @ p["u"]) + x @ p["z"]) @ p["v"]


PRODUCTS = Case(products, {"w": (3, 4), "u": (3, 4), "z": (3, 4), "v": (4, 2)}, (5, 3), [])


def test_a_leaf_with_two_scales_is_measured_for_the_later_one():
    with jax.enable_x64(True):
        check_orbit(discovered(PRODUCTS), wide_params(PRODUCTS))


def gains(p, x):
    """Hidden units times 1 + gain, as in Gemma's norms."""
    return jax.nn.relu(jax.nn.relu(x @ p["w"]) * (1 + p["gain"])) @ p["v"]


GAINS = Case(gains, {"w": (3, 4), "gain": (4,), "v": (4, 2)}, (5, 3), [])


def test_a_gain_around_one_has_one_point_per_orbit():
    with jax.enable_x64(True):
        spec, params = discovered(GAINS), wide_params(GAINS)
        assert [leaf.name for leaf in spec.leaves if leaf.shift] == ["gain"]
        check_orbit(spec, params)
        np.testing.assert_allclose(1 + symmetry.normalise(spec, params)["gain"], 1.0)


def test_balance_names_a_gain_around_one():
    with pytest.raises(ValueError, match=r"leaf 'gain' is used as 1 [+] leaf.*use normalise"):
        symmetry.balance(discovered(GAINS), draw(GAINS.shapes))


def test_weights_without_a_length_of_their_own_are_named():
    """Each of two sums is scaled by both generators: whichever is fixed last undoes the other."""
    both = Factor(4, "h", scales=(Fraction(1), Fraction(1)))
    spec = symmetry.SymmetrySpec(
        (Group("h", 4, num_scales=2),), (Leaf("w", (3, 4), ((Factor(3),), (both,))),)
    )
    with pytest.raises(ValueError, match=r"'h' grow with the scales of other units too.*use balance instead"):
        symmetry.normalise(spec, {"w": jnp.ones((3, 4))})


def test_bad_input_is_named():
    params = mlp_params(SIZES, jax.random.key(0))
    spec = mlp_spec(SIZES, params, scales=True)
    with pytest.raises(ValueError, match="unknown statistic"):
        symmetry.normalise(spec, params, statistic="variance")
    with pytest.raises(ValueError, match="scale must be positive; got 0"):
        symmetry.normalise(spec, params, scale=0.0)
    with pytest.raises(ValueError, match="missing leaves"):
        symmetry.canonicalise(spec, {"out": params["out"]})


def test_recurrent_units_have_one_canonical_sign():
    """A recurrent matrix flips on both axes, so a unit's sign may not be read from it."""

    def apply(params, sequence):
        def step(state, x):
            return jnp.tanh(x @ params["w"] + state @ params["u"] + params["bias"]), None

        return jax.lax.scan(step, jnp.zeros((sequence.shape[1], 4)), sequence)[0] @ params["out"]

    keys = jax.random.split(jax.random.key(0), 5)
    shapes = {"w": (2, 4), "u": (4, 4), "bias": (4,), "out": (4, 3)}
    params = {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=False)}
    spec = symmetry.discover(apply, params, jnp.zeros((5, 3, 2)))
    assert [group.num_signs for group in spec.groups] == [1]
    canonical = symmetry.canonicalise(spec, params)
    for seed in range(5):
        moved = symmetry.act(spec, symmetry.random_element(spec, jax.random.key(seed)), params)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
            symmetry.canonicalise(spec, moved),
            canonical,
        )


def test_weights_that_cancel_still_have_a_sign():
    params = {
        "w": jnp.array([[1.0, 2.0], [-1.0, 1.0], [-2.0, 3.0], [2.0, 1.0]]),
        "v": jnp.array([[1.0, 2.0], [3.0, 5.0]]),
    }
    spec = symmetry.discover(lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"], params, jnp.zeros((1, 4)))
    params["w"] = params["w"].at[:, 0].set(jnp.array([3.0, -1.0, -2.0, 0.0]))
    flipped = {"w": params["w"].at[:, 0].multiply(-1), "v": params["v"].at[0].multiply(-1)}
    jax.tree.map(
        np.testing.assert_array_equal,
        symmetry.canonicalise(spec, params),
        symmetry.canonicalise(spec, flipped),
    )


def test_a_matrix_named_b_is_no_bias():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = {"a": (3, 4), "b": (4, 5), "c": (5, 2)}
    params = {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}

    def apply(p, x):
        return jax.nn.relu(jax.nn.relu(x @ p["a"]) @ p["b"]) @ p["c"]

    spec = symmetry.discover(apply, params, jnp.zeros((1, 3)))
    unit = symmetry.normalise(spec, params)
    np.testing.assert_allclose(jnp.linalg.norm(unit["b"], axis=0), jnp.ones(5), rtol=1e-5)
