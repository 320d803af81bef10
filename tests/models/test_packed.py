"""Convolutions of several pixels at a time against the plain ones: values, derivatives, symmetries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from symbnn import models, symmetry
from symbnn.models import packed

KEY = jax.random.key(0)
SETTINGS = {"dimension_numbers": packed.AXES}
# Channels in and out: images; a half-filled vector; few of both; full vectors, which stay plain.
CHANNELS = [(3, 16), (16, 16), (1, 5), (5, 8), (16, 32)]
EVERYWHERE = pytest.mark.parametrize(("ins", "outs"), CHANNELS)
BOTH = pytest.mark.parametrize("train", [True, False])


@pytest.fixture(autouse=True)
def in_double_precision():
    """Where rounding hides nothing."""
    with jax.enable_x64(True):
        yield


def plain(inputs, kernel, strides=(1, 1), padding=((1, 1), (1, 1))):
    return lax.conv_general_dilated(inputs, kernel, strides, padding, **SETTINGS)


def ours(train, strides=(1, 1), padding=((1, 1), (1, 1))):
    return lambda inputs, kernel: packed.convolution(train=train)(
        inputs, kernel, strides, padding, **SETTINGS
    )


def arrays(ins, outs, width=12, side=3):
    keys = jax.random.split(KEY, 2)
    shapes = (2, 5, width, ins), (side, side, ins, outs)
    return tuple(jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, expected)


def value(function):
    return lambda *given: jnp.sum(jnp.sin(function(*given)))


@BOTH
@EVERYWHERE
def test_values_and_both_gradients_are_those_of_the_plain_one(ins, outs, train):
    given = arrays(ins, outs)
    close(ours(train)(*given), plain(*given))
    close(jax.grad(value(ours(train)), (0, 1))(*given), jax.grad(value(plain), (0, 1))(*given))


@EVERYWHERE
def test_forward_mode_and_curvature_are_those_of_the_plain_one(ins, outs):
    given = arrays(ins, outs)
    change = jax.tree.map(jnp.cos, given)
    for function, expected in ((ours(False), plain), (jax.grad(value(ours(False)), (0, 1)),
                                                      jax.grad(value(plain), (0, 1)))):  # fmt: skip
        close(jax.jvp(function, given, change)[1], jax.jvp(expected, given, change)[1])
    for index in (0, 1):
        one = lambda function: lambda x: function(*given[:index], x, *given[index + 1 :])  # noqa: E731, B023
        found, expected = (
            jax.jvp(one(each), (given[index],), (change[index],))[1] for each in (ours(False), plain)
        )
        close(found, expected)


@BOTH
def test_kernels_side_by_side_are_convolved_each_for_itself(train):
    inputs, kernel = arrays(16, 16)
    kernels = jnp.stack([kernel, 2 * kernel])
    found = jax.vmap(ours(train), in_axes=(None, 0))(inputs, kernels)
    close(found, jnp.stack([plain(inputs, each) for each in kernels]))


@pytest.mark.parametrize(
    ("width", "side", "strides", "padding"),
    [
        (13, 3, (1, 1), ((1, 1), (1, 1))),
        (12, 3, (2, 2), ((1, 1), (1, 1))),
        (12, 3, (1, 1), ((0, 0), (0, 0))),
        (12, 1, (1, 1), ((0, 0), (0, 0))),
        (12, 5, (1, 1), ((1, 1), (1, 1))),
    ],
)
def test_what_cannot_be_packed_is_plain(width, side, strides, padding):
    given = arrays(16, 16, width, side)
    function = ours(True, strides, padding)
    close(function(*given), plain(*given, strides, padding))
    assert "custom" not in str(jax.make_jaxpr(function)(*given))


@BOTH
def test_few_channels_are_packed_and_many_are_not(train):
    def kernels(ins, outs):
        program = str(jax.make_jaxpr(ours(train))(*arrays(ins, outs)))
        return "custom" in program

    assert [kernels(*each) for each in CHANNELS] == [True, True, True, True, False]


def test_a_network_has_the_symmetries_of_its_plain_convolutions(monkeypatch):
    inputs = jax.random.normal(KEY, (2, 8, 8, 3))

    def found():
        model = models.resnet20((8, 8, 3), 10)
        program = str(jax.make_jaxpr(model.apply)(params, inputs))
        return program.count("name=_packed"), symmetry.discover(model.apply, params, inputs)

    params = models.resnet20((8, 8, 3), 10).init(KEY)
    num, spec = found()
    monkeypatch.setattr(packed, "_num_pixels", lambda inputs, kernel: 1)
    jax.clear_caches()
    assert (num, found()) == (7, (0, spec))
