"""What is asked of the program of a function."""

import jax
import jax.numpy as jnp

from symbnn.programs import is_tall_product, operations

X, W = jnp.ones((5, 3)), jnp.ones((3, 7))


def count(function, *arguments):
    return operations(jax.make_jaxpr(function)(*arguments))


def test_operations_are_those_of_matrix_products():
    assert count(jnp.matmul, X, W) == 2 * 5 * 3 * 7
    assert count(lambda x: x + 1, X) == 0
    assert count(jax.vmap(jnp.matmul, in_axes=(0, None)), jnp.ones((4, 5, 3)), W) == 4 * 2 * 5 * 3 * 7
    # The gradient of both factors is a product more for each.
    assert count(jax.grad(lambda x, w: jnp.sum((x @ w) ** 2), (0, 1)), X, W) == 3 * 2 * 5 * 3 * 7


def test_operations_are_those_of_convolutions():
    images, kernel = jnp.ones((4, 8, 8, 6)), jnp.ones((3, 3, 6, 10))
    names = ("NHWC", "HWIO", "NHWC")

    def convolve(images, kernel, **settings):
        return jax.lax.conv_general_dilated(
            images, kernel, padding="VALID", dimension_numbers=names, **settings
        )

    # Six by six places, each a product of 3 x 3 x 6 numbers for ten features.
    each = 2 * 4 * 6 * 6 * 10 * 3 * 3 * 6
    assert count(lambda x, w: convolve(x, w, window_strides=(1, 1)), images, kernel) == each
    assert count(lambda x, w: convolve(x, w, window_strides=(2, 2)), images, kernel) == each / 4
    # In two groups a feature sees three of the six inputs.
    grouped = count(
        lambda x, w: convolve(x, w, window_strides=(1, 1), feature_group_count=2), images, kernel[:, :, :3]
    )
    assert grouped == each / 2
    # Side by side, networks are groups of one convolution.
    networks = jax.vmap(lambda w: convolve(images, w, window_strides=(1, 1)))
    assert count(networks, jnp.stack([kernel] * 3)) == 3 * each


def test_operations_of_called_programs_count_as_often_as_they_run():
    assert count(jax.jit(jnp.matmul), X, W) == 2 * 5 * 3 * 7

    def loop(square):
        return jax.lax.scan(lambda carry, _: (carry @ square, None), square, length=6)[0]

    assert count(loop, jnp.ones((4, 4))) == 6 * 2 * 4**3


def test_tall_products_have_more_rows_than_columns():
    def in_tall(function, *arguments):
        return operations(jax.make_jaxpr(function)(*arguments), is_tall_product)

    assert in_tall(jnp.matmul, X.T, X) == 0
    assert in_tall(jnp.matmul, X, W) == 0
    assert in_tall(jnp.matmul, W.T, X.T) == 2 * 5 * 3 * 7
    assert in_tall(lambda x, w: jnp.matmul(w.T, x.T) @ jnp.matmul(x, w), X, W) == 2 * 5 * 3 * 7
    # Batches of products are none.
    assert in_tall(jax.vmap(jnp.matmul, in_axes=(0, None)), jnp.ones((4, 9, 3)), W) == 0
