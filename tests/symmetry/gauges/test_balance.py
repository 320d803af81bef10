"""Minimum mass: against cvxpy, by its optimality conditions, and on what has no minimum."""

from fractions import Fraction

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry, tree
from symbnn.symmetry.spec import Factor, Group, Leaf, SymmetrySpec
from tests.networks import layer_name, mlp_apply, mlp_params, mlp_spec

SIZES = (6, 5, 4, 3)


def assert_close(a, b, *, rtol, atol):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


def chain(seed=0, *, bias=True, sizes=SIZES):
    params = mlp_params(sizes, jax.random.key(seed), bias=bias, spread=0.7)
    return mlp_spec(sizes, params, scales=True), params


def cvxpy_minimum(params, sizes, *, count_bias=True):
    """The same geometric program, solved by an interior point method."""
    hidden = [cvxpy.Variable(size) for size in sizes[1:-1]]
    logs = [np.zeros(sizes[0]), *hidden, np.zeros(sizes[-1])]
    total = 0
    for layer in range(len(sizes) - 1):
        weights = params[layer_name(layer, sizes)]
        rows = cvxpy.reshape(logs[layer], (sizes[layer], 1), order="C")
        columns = cvxpy.reshape(logs[layer + 1], (1, sizes[layer + 1]), order="C")
        squares = np.asarray(weights["kernel"], np.float64) ** 2
        total += cvxpy.sum(cvxpy.multiply(squares, cvxpy.exp(2 * (columns - rows))))
        if count_bias and "bias" in weights:
            squares = np.asarray(weights["bias"], np.float64) ** 2
            total += cvxpy.sum(cvxpy.multiply(squares, cvxpy.exp(2 * logs[layer + 1])))
    problem = cvxpy.Problem(cvxpy.Minimize(total))
    problem.solve(solver=cvxpy.CLARABEL)
    return problem.value


@pytest.mark.parametrize("bias", [True, False])
def test_mass_is_the_minimum_that_cvxpy_finds(bias):
    spec, params = chain(bias=bias)
    result = symmetry.balance(spec, params)
    np.testing.assert_allclose(result.mass_after, cvxpy_minimum(params, SIZES), rtol=1e-6)
    np.testing.assert_allclose(
        result.mass_before, sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), rtol=1e-6
    )
    assert result.residual < 1e-8


def test_uncounted_biases_are_scaled_along():
    spec, params = chain()
    result = symmetry.balance(spec, params, count_bias=False)
    np.testing.assert_allclose(result.mass_after, cvxpy_minimum(params, SIZES, count_bias=False), rtol=1e-6)
    inputs = jax.random.normal(jax.random.key(1), (7, SIZES[0]))
    np.testing.assert_allclose(
        mlp_apply(result.params, inputs), mlp_apply(params, inputs), rtol=1e-4, atol=1e-5
    )


def test_layers_of_a_chain_without_biases_have_equal_mass():
    spec, params = chain(bias=False)
    balanced = symmetry.balance(spec, params).params
    masses = [float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(balanced)]
    np.testing.assert_allclose(masses, masses[0], rtol=1e-5)


def test_result_does_not_depend_on_where_in_the_orbit_it_starts():
    with jax.enable_x64(True):
        params = mlp_params(SIZES, jax.random.key(3), dtype=jnp.float64)
        spec = mlp_spec(SIZES, params, scales=True)
        scaled = symmetry.random_element(spec, jax.random.key(4), log_scale=2.0)
        scaled = symmetry.identity(spec)._replace(scales=scaled.scales)
        one = symmetry.balance(spec, params)
        other = symmetry.balance(spec, symmetry.act(spec, scaled, params))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), one.params, other.params
        )
        moved = symmetry.act(spec, one.element, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one.params, moved)


def residual_net():
    """x + relu(x W1) W2 twice, with one shared stream; a single-layer block maps the stream to itself."""
    shapes = {"enter": (3, 4), "up": (4, 5), "down": (5, 4), "self": (4, 4), "leave": (4, 2)}
    params = {
        name: jax.random.normal(jax.random.fold_in(jax.random.key(5), i), shape)
        for i, (name, shape) in enumerate(shapes.items())
    }
    axes = {
        "enter": (None, "stream"),
        "up": ("stream", "inner"),
        "down": ("inner", "stream"),
        "self": ("stream", "stream"),
        "leave": ("stream", None),
    }
    scales = {
        "enter": (None, "+"),
        "up": ("-", "+"),
        "down": ("-", "+"),
        "self": ("-", "+"),
        "leave": ("-", None),
    }

    def apply(params, inputs):
        stream = inputs @ params["enter"]
        stream = stream + jax.nn.relu(stream @ params["up"]) @ params["down"]
        return jax.nn.relu(stream + jax.nn.relu(stream @ params["self"])) @ params["leave"]

    return symmetry.from_axes(axes, params, scales=scales), params, apply


def test_tied_residual_stream():
    spec, params, apply = residual_net()
    result = symmetry.balance(spec, params)
    assert result.residual < 1e-8
    assert result.mass_after < result.mass_before
    inputs = jax.random.normal(jax.random.key(6), (9, 3))
    np.testing.assert_allclose(apply(result.params, inputs), apply(params, inputs), rtol=1e-3, atol=1e-4)
    for seed in range(20):
        nearby = symmetry.random_element(spec, jax.random.key(seed), log_scale=0.05)
        nearby = symmetry.identity(spec)._replace(scales=nearby.scales)
        worse = symmetry.act(spec, nearby, result.params)
        assert sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(worse)) > result.mass_after


def test_rational_exponents_and_two_generators():
    """relu² needs exponents (½, −1); a gated unit a·relu(b) has two generators that share the reader."""
    half, minus, zero, one = Fraction(1, 2), Fraction(-1), Fraction(0), Fraction(1)

    def leaf(name, shape, *words):
        return Leaf(name, shape, tuple((word,) for word in words))

    spec = SymmetrySpec(
        groups=(Group("square", 3, num_scales=1), Group("gated", 4, num_scales=2)),
        leaves=(
            leaf("enter", (2, 3), Factor(2), Factor(3, "square", (half,))),
            leaf("a", (3, 4), Factor(3, "square", (minus,)), Factor(4, "gated", (one, zero))),
            leaf("b", (3, 4), Factor(3, "square", (minus,)), Factor(4, "gated", (zero, one))),
            leaf("leave", (4, 2), Factor(4, "gated", (minus, minus)), Factor(2)),
        ),
    )
    params = {
        part.name: jax.random.normal(jax.random.fold_in(jax.random.key(8), i), part.shape)
        for i, part in enumerate(spec.leaves)
    }

    def apply(params, inputs):
        hidden = jax.nn.relu(inputs @ params["enter"]) ** 2
        return (hidden @ params["a"] * jax.nn.relu(hidden @ params["b"])) @ params["leave"]

    result = symmetry.balance(spec, params)
    assert result.residual < 1e-8
    inputs = jax.random.normal(jax.random.key(9), (5, 2))
    np.testing.assert_allclose(apply(result.params, inputs), apply(params, inputs), rtol=1e-3, atol=1e-4)


def test_dead_units_are_counted_and_cleared():
    """Unit 0 is read by nobody; unit 1 of the next layer is then fed by unit 0 alone, so it is dead too."""
    spec, params = chain(bias=False)
    params["hidden1"]["kernel"] = params["hidden1"]["kernel"].at[1:, 1].set(0.0)
    params["hidden1"]["kernel"] = params["hidden1"]["kernel"].at[0, jnp.array([0, 2, 3])].set(0.0)
    params["out"]["kernel"] = params["out"]["kernel"].at[1].set(0.0)
    result = symmetry.balance(spec, params)
    assert (result.dead_units["h0"], result.dead_units["h1"]) == (1, 1)
    assert result.residual < 1e-8
    assert not result.params["hidden0"]["kernel"][:, 0].any()
    inputs = jax.random.normal(jax.random.key(1), (7, SIZES[0]))
    np.testing.assert_allclose(
        mlp_apply(result.params, inputs), mlp_apply(params, inputs), rtol=1e-4, atol=1e-5
    )


def test_many_networks_at_once():
    spec, params = chain()
    many = tree.stack([params, chain(1)[1], chain(2)[1]])
    together = jax.vmap(lambda one: symmetry.balance(spec, one))(many)
    for index in range(3):
        alone = symmetry.balance(spec, tree.take(many, index))
        np.testing.assert_allclose(together.mass_after[index], alone.mass_after, rtol=1e-6)
    assert together.residual.max() < 1e-8


def test_wide_nets_use_conjugate_gradients():
    sizes = (8, 200, 150, 4)
    spec, params = chain(sizes=sizes)
    result = symmetry.balance(spec, params)
    assert result.residual < 1e-8


def test_mass_without_minimum_is_refused_by_name():
    """A normalised layer: its scale divides nothing."""
    params = {"kernel": jnp.ones((2, 3)), "scale": jnp.ones(3), "out": jnp.ones((3, 1))}
    spec = symmetry.from_axes(
        {"kernel": (None, "conv"), "scale": ("conv",), "out": ("conv", None)},
        params,
        scales={"kernel": (None, "+")},
    )
    with pytest.raises(ValueError, match=r"group 'conv'.*use normalise"):
        symmetry.balance(spec, params)


def test_bad_input_is_named():
    spec, params = chain()
    with pytest.raises(ValueError, match="'hidden1/kernel' has shape"):
        symmetry.balance(spec, params | {"hidden1": {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(4)}})
    broken = params | {"out": params["out"] | {"kernel": params["out"]["kernel"].at[0, 0].set(jnp.nan)}}
    with pytest.raises(ValueError, match="'out/kernel' has values that are not finite"):
        symmetry.balance(spec, broken)
    with pytest.raises(ValueError, match="no group of the spec can be rescaled"):
        symmetry.balance(mlp_spec(SIZES, params), params)
