"""Kronecker factors: exact where one product is enough, and the same however the weights are laid out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from symbnn import density, inference, models
from symbnn.inference import curvature, layers
from tests.inference.cases import LinearModel, conjugate

KEY = jax.random.key(0)


def blocks(apply, params, data, likelihood=None):
    """The law of every leaf under a N(0, 1) prior."""
    target = density.target(LinearModel(lambda key: params, apply, None), data, likelihood=likelihood)
    method = inference.laplace(structure="kronecker", pretrain_epochs=0, initial=params, chunk_size=4)
    return method(KEY, target).posterior.blocks


def precision(block) -> np.ndarray:
    """Of the curvature alone, for a leaf as (inputs, outputs)."""
    basis = np.kron(np.asarray(block.left, np.float64), np.asarray(block.right, np.float64))
    return basis @ np.diag(np.asarray(block.std, np.float64).ravel() ** -2.0 - 1.0) @ basis.T


def some_data(shape, num=6, num_classes=3):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(num, *shape)).astype(np.float32)
    return density.Batch(inputs, np.arange(num) % num_classes)


def test_linear_regression_with_one_output_is_exact():
    case = conjugate()
    start = {"out": {"kernel": jnp.asarray(case.mean, jnp.float32)[:, None]}}
    method = inference.laplace(structure="kronecker", pretrain_epochs=0, initial=start, chunk_size=7)
    block = method(KEY, case.target).posterior.blocks["out/kernel"]
    np.testing.assert_allclose(precision(block) + np.eye(3), np.linalg.inv(case.covariance), rtol=1e-4)


def test_one_data_point_is_exact_for_every_leaf():
    """Also behind a softmax: one activation, so A ⊗ B is the leaf's block of G."""
    model = models.mlp((4,), 3, hidden=(3,), activation="tanh")
    params, data = model.init(KEY), some_data((4,), num=1)
    weights, unravel = ravel_pytree(params)
    network = curvature.Fitted(lambda w, x: model.apply(unravel(w), x), density.categorical(), weights)
    full = jax.jit(lambda: curvature.full(network, jax.tree.map(jnp.asarray, data), chunk_size=1))()
    found = blocks(model.apply, params, data)
    start = 0
    for name in ("hidden/bias", "hidden/kernel", "out/bias", "out/kernel"):
        expected = precision(found[name])
        stop = start + len(expected)
        np.testing.assert_allclose(full[start:stop, start:stop], expected, atol=2e-5)
        start = stop


@pytest.mark.slow
def test_layouts_do_not_matter():
    """A kernel as it is, transposed, split into heads, and read from the left."""
    data = some_data((4,))
    kernel = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    head = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    written = {
        (0,): (kernel, lambda w, x: x @ w),
        (1,): (kernel.T, lambda w, x: x @ w.T),
        (2,): (
            kernel.reshape(4, 2, 3).transpose(1, 2, 0),
            lambda w, x: jnp.einsum("hdi,ni->nhd", w, x).reshape(-1, 6),
        ),
        (1, 2): (kernel.T.reshape(6, 2, 2), lambda w, x: (w.reshape(6, 4) @ x.T).T),
    }
    found = {}
    for inputs, (leaf, hidden) in written.items():
        apply = lambda params, x, hidden=hidden: jnp.tanh(hidden(params["w"], x)) @ head  # noqa: E731
        found[inputs] = blocks(apply, {"w": jnp.asarray(leaf)}, data)["w"]
        assert found[inputs].inputs == inputs
        np.testing.assert_allclose(precision(found[inputs]), precision(found[(0,)]), atol=1e-4)


def test_a_convolution_at_one_position_is_a_dense_layer():
    data = some_data((3, 2, 2))
    kernel = np.random.default_rng(1).normal(size=(3, 2, 2, 3)).astype(np.float32)

    def convolved(params, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, params["w"], (1, 1), "VALID", dimension_numbers=numbers)[
            :, 0, 0
        ]

    def flat(params, x):
        return x.reshape(len(x), -1) @ params["w"]

    one = blocks(convolved, {"w": jnp.asarray(kernel)}, data)["w"]
    other = blocks(flat, {"w": jnp.asarray(kernel.reshape(12, 3))}, data)["w"]
    assert (one.inputs, other.inputs) == ((0, 1, 2), (0,))
    np.testing.assert_allclose(precision(one), precision(other), atol=1e-4)


def test_positions_count_as_independent():
    """A kernel and a bias at several positions: means of aaᵀ, sums of ggᵀ, as in a longer data set."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(5, 3, 2)).astype(np.float32)
    params = {"b": jnp.zeros(2), "w": jnp.asarray(random.normal(size=(2, 2)), jnp.float32)}

    def apply(params, x):
        return jnp.sum(jnp.square(x @ params["w"] + params["b"]), axis=1)

    targets = np.zeros((5, 2), np.float32)
    found = blocks(apply, params, density.Batch(inputs, targets), density.gaussian(1.0))
    activations, slopes = inputs.reshape(-1, 2), 2 * (inputs @ params["w"]).reshape(-1, 2)
    mean, total = activations.T @ activations / 15, np.diag(np.sum(slopes**2, axis=0))
    np.testing.assert_allclose(precision(found["w"]), np.kron(mean, total), atol=1e-3)
    np.testing.assert_allclose(precision(found["b"]), total, rtol=1e-4)


@pytest.mark.parametrize("name", ["lenet", pytest.param("resnet20_frn", marks=pytest.mark.slow), "vit"])
def test_every_leaf_of_our_networks_has_factors(name):
    shape = (28, 28, 1) if name == "lenet" else (8, 8, 3)
    model = getattr(models, name)(shape, 10)
    params = jax.eval_shape(model.init, KEY)
    found = layers.readings(model.apply, params, jax.ShapeDtypeStruct(shape, jnp.float32))
    kernels = [reading for reading in found if reading.leaf.endswith("kernel")]
    assert kernels
    assert all(reading.inputs for reading in kernels)
    assert not any(reading.inputs for reading in found if reading.leaf.endswith("bias"))


@pytest.mark.parametrize(
    ("apply", "shape", "message"),
    [
        (lambda w, x: jnp.tanh(x @ w) @ w.T, (3, 3), "'w' is read in several ways"),
        (lambda w, x: 2 * x, (3, 3), "'w' is not read"),
        (lambda w, x: jnp.take(w, x[:, 0].astype(int), axis=0), (9000, 3), "over 8192 rows"),
    ],
)
def test_leaves_without_factors_are_refused_before_training(apply, shape, message):
    params = {"w": jnp.ones(shape)}
    target = density.target(
        LinearModel(lambda key: params, lambda params, x: apply(params["w"], x), None), some_data((3,))
    )
    with pytest.raises(ValueError, match=message):
        inference.laplace(structure="kronecker", pretrain_epochs=10**9)(KEY, target)
