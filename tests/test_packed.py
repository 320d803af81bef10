"""Convolutions of several pixels at a time are the plain ones, and which are computed so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import models
from symbnn.packed import packed
from symbnn.programs import has_convolution

KEY = jax.random.key(0)
AXES = ("NHWC", "HWIO", "NHWC")
# Channels in and out: images; half-filled vectors; few of both; full vectors, which stay plain.
PACKED, UNPACKED = [(3, 16), (16, 16), (1, 5), (5, 8)], (16, 32)
EVERYWHERE = pytest.mark.parametrize(("ins", "outs"), [*PACKED, UNPACKED])


@pytest.fixture(autouse=True)
def in_double_precision():
    """Where rounding hides nothing."""
    with jax.enable_x64(True):
        yield


def plain(inputs, kernel, strides=(1, 1), padding=((1, 1), (1, 1)), axes=AXES):
    return lax.conv_general_dilated(inputs, kernel, strides, padding, dimension_numbers=axes)


def arrays(ins, outs, width=12, side=3):
    keys = jax.random.split(KEY, 2)
    shapes = (2, 5, width, ins), (side, side, ins, outs)
    return tuple(jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, expected)


def is_packed(function, *given):
    return "custom_vjp_call" in str(jax.make_jaxpr(packed(function))(*given))


@EVERYWHERE
def test_values_and_both_gradients_are_those_of_the_plain_one(ins, outs):
    given = arrays(ins, outs)
    close(packed(plain)(*given), plain(*given))
    value = lambda inputs, kernel: jnp.sum(jnp.sin(plain(inputs, kernel)))  # noqa: E731
    close(jax.grad(packed(value), (0, 1))(*given), jax.grad(value, (0, 1))(*given))
    assert is_packed(plain, *given) == ((ins, outs) != UNPACKED)


def test_kernels_side_by_side_are_convolved_each_for_itself():
    inputs, kernel = arrays(16, 16)
    kernels = jnp.stack([kernel, 2 * kernel])
    found = jax.vmap(packed(plain), in_axes=(None, 0))(inputs, kernels)
    close(found, jnp.stack([plain(inputs, each) for each in kernels]))


@pytest.mark.parametrize(
    ("width", "side", "settings"),
    [
        (13, 3, {}),
        (12, 3, {"strides": (2, 2)}),
        (12, 3, {"padding": ((0, 0), (0, 0))}),
        (12, 1, {"padding": ((0, 0), (0, 0))}),
        (12, 5, {}),
        (12, 3, {"axes": ("NWHC", "HWIO", "NHWC")}),
    ],
)
def test_what_cannot_be_packed_is_plain(width, side, settings):
    given = arrays(16, 16, width, side)
    function = lambda *arrays: plain(*arrays, **settings)  # noqa: E731
    close(packed(function)(*given), function(*given))
    assert not is_packed(function, *given)


def test_images_of_one_and_three_dimensions_and_groups_stay_plain():
    line, cube = (jax.random.normal(KEY, (2, *sides, 4)) for sides in ((8,), (4, 4, 4)))
    for inputs, axes in ((line, ("NWC", "WIO", "NWC")), (cube, ("NDHWC", "DHWIO", "NDHWC"))):
        kernel = jax.random.normal(KEY, (3,) * (inputs.ndim - 2) + (4, 4))
        function = lambda x, k: lax.conv_general_dilated(x, k, (1,) * (x.ndim - 2), "SAME",  # noqa: E731
                                                         dimension_numbers=axes)  # fmt: skip # noqa: B023
        close(packed(function)(inputs, kernel), function(inputs, kernel))
    inputs, kernel = jax.random.normal(KEY, (2, 4, 4, 4)), jax.random.normal(KEY, (3, 3, 1, 4))
    grouped = lambda x, k: lax.conv_general_dilated(x, k, (1, 1), ((1, 1), (1, 1)), feature_group_count=4,  # noqa: E731
                                                    dimension_numbers=AXES)  # fmt: skip
    close(packed(grouped)(inputs, kernel), grouped(inputs, kernel))
    assert not is_packed(grouped, inputs, kernel)


def test_a_call_by_name_is_packed_and_a_loop_is_not():
    inputs, kernel = arrays(16, 16)
    called = lambda x, k: {"found": (jax.jit(plain)(x, k), None), "of": k}  # noqa: E731
    close(packed(called)(inputs, kernel), called(inputs, kernel))
    assert is_packed(called, inputs, kernel)
    looped = lambda x, k: lax.fori_loop(0, 3, lambda _, y: jnp.tanh(plain(y, k)), x)  # noqa: E731
    close(packed(looped)(inputs, kernel), looped(inputs, kernel))
    assert not is_packed(looped, inputs, kernel)


def test_functions_without_convolutions_are_called_as_they_are():
    seen = []

    def function(x):
        seen.append(type(x))
        return x

    assert packed(function)(2.0) == 2.0
    assert seen[-1] is float


def test_on_accelerators_nothing_is_packed(monkeypatch):
    given = arrays(16, 16)
    assert is_packed(plain, *given)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not is_packed(plain, *given)


def test_on_a_single_device_nothing_is_packed(monkeypatch):
    """It has all threads to itself, between which XLA shares the plain convolution better."""
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    assert not is_packed(plain, *arrays(16, 16))


@pytest.mark.parametrize("train", [False, True])
def test_a_residual_network_is_the_same(train):
    """Its batch statistics too, and the gradient of every weight."""
    model = models.resnet20((8, 8, 3), 10)
    inputs = jax.random.normal(KEY, (4, 8, 8, 3))
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model.init(KEY))

    def loss(params):
        return jnp.sum(jnp.sin(model.apply(params, inputs)))

    def trained(params):
        outputs, statistics = model.train(params, inputs, KEY)
        return jnp.sum(jnp.sin(outputs)), statistics

    function = trained if train else loss
    found, expected = (
        jax.value_and_grad(each, has_aux=train)(params) for each in (packed(function), function)
    )
    close(found, expected)
    assert has_convolution(jax.make_jaxpr(packed(function))(params).jaxpr)
    assert str(jax.make_jaxpr(packed(function))(params)).count("custom_vjp_call") == 7
