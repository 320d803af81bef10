"""What depends on no weight is computed before all chunks: same sums and gradients, less inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, models
from symbnn.density.still import prepared

random = np.random.default_rng(0)
PARAMS = {"w": jnp.asarray(random.normal(size=(3, 2)))}
CHUNKS = jnp.asarray(random.normal(size=(4, 5, 3))), jnp.arange(20).reshape(4, 5)


def turned(params, data):
    """Inputs are turned round, which no weight changes."""
    return params["w"].T @ jnp.sin(data[0]).T + data[1]


def each(function, data):
    return jax.vmap(lambda chunk: function(PARAMS, chunk))(data)


def names(function, data):
    program = jax.make_jaxpr(function)(PARAMS, jax.tree.map(lambda a: a[0], data)).jaxpr
    return [equation.primitive.name for equation in program.eqns]


def test_what_is_still_is_computed_before_and_the_rest_is_the_same():
    function, data = prepared(turned, PARAMS, CHUNKS)
    np.testing.assert_array_equal(each(function, data), each(turned, CHUNKS))
    assert "sin" in names(turned, CHUNKS)
    assert "sin" not in names(function, data)
    np.testing.assert_allclose(data[1][0], np.sin(CHUNKS[0]).swapaxes(1, 2), rtol=1e-6)


def test_gradients_are_the_same():
    function, data = prepared(turned, PARAMS, CHUNKS)

    def slope(function, data):
        one = jax.tree.map(lambda a: a[1], data)
        return jax.grad(lambda params: jnp.sum(function(params, one) ** 2))(PARAMS)

    np.testing.assert_allclose(slope(function, data)["w"], slope(turned, CHUNKS)["w"], rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda params, data: data[0] @ params["w"],
        lambda params, data: (data[0] @ params["w"])[:, :1] * (data[1] > 3)[:, None],
        lambda params, data: jnp.tile(data[0], (1, 9)) @ jnp.tile(params["w"], (9, 1)),
    ],
    ids=["nothing is still", "little is still", "what is still is large"],
)
def test_functions_stay_as_they_are_where_that_is_better(function):
    found, data = prepared(function, PARAMS, CHUNKS)
    assert found is function
    assert data is CHUNKS


def test_a_function_that_reads_no_data_and_one_that_reads_no_weight():
    for function in (lambda params, data: params["w"], lambda params, data: jnp.sin(data[0]) + 1.0):
        found, data = prepared(function, PARAMS, CHUNKS)
        np.testing.assert_allclose(each(found, data), each(function, CHUNKS), rtol=1e-6)


def test_arrays_that_a_function_closes_over_are_kept_even_while_they_are_traced():
    @jax.jit
    def run(shift):
        function, data = prepared(lambda p, d: jnp.cos(d[0] + shift) @ p["w"] + shift, PARAMS, CHUNKS)
        return each(function, data)

    np.testing.assert_allclose(run(2.0), np.cos(CHUNKS[0] + 2.0) @ PARAMS["w"] + 2.0, rtol=1e-5)


@pytest.mark.parametrize("num", [600, 599])
@pytest.mark.parametrize("rows", ["first", "last"])
def test_a_network_in_chunks_has_the_log_likelihood_and_gradient_of_one_piece(rows, num):
    batch = density.Batch(
        random.normal(size=(num, 6)).astype(np.float32), random.integers(3, size=num).astype(np.int32)
    )
    model = models.mlp((6,), 3, hidden=(8,), rows=rows)
    params = model.init(jax.random.key(0))
    whole, pieces = (
        jax.value_and_grad(density.target(model, batch, chunk_size=size).log_likelihood)(params)
        for size in (num, 100)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-4), pieces, whole)
