"""The same networks written in Flax linen, Flax nnx, Equinox and Haiku have the same groups."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from symbnn import symmetry
from tests.symmetry.cases import draw, inputs, summary
from tests.symmetry.cases.base import is_shape

IMAGE, VECTOR = (2, 6, 6, 3), (4, 3)
MLP = [(5, (), 0, 1), (6, (), 1, 0)]
CNN = [(4, (), 2, 1), (6, (), 1, 0)]
ATTENTION = [(2, (), 0, 0), (3, (2,), 1, 1), (3, (2,), 1, 1)]


class Net(NamedTuple):
    apply: Callable[[Any, Any], Any]
    params: Any


def with_shapes(params):
    """Weights that depend on the shapes alone."""
    return draw(jax.tree.map(lambda leaf: tuple(leaf.shape), params))


class LinenMLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(6)(x))
        return nn.Dense(2)(jnp.tanh(nn.Dense(5)(x)))


class LinenCNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(4, (3, 3))(x)))
        x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(2)(nn.relu(nn.Dense(6)(x.reshape(x.shape[0], -1))))


class LinenAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6, out_features=2)(x)


def linen(module: nn.Module, shape) -> Net:
    variables = jax.eval_shape(module.init, jax.random.key(0), jax.ShapeDtypeStruct(shape, jnp.float32))
    return Net(module.apply, with_shapes(variables))


class NnxMLP(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in ((3, 6), (6, 5), (5, 2))])

    def __call__(self, x):
        x = nnx.relu(self.layers[0](x))
        return self.layers[2](jnp.tanh(self.layers[1](x)))


class NnxCNN(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
        self.hidden, self.out = nnx.Linear(36, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.out(nnx.relu(self.hidden(x.reshape(x.shape[0], -1))))


class NnxAttention(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 3, qkv_features=6, out_features=2, decode=False, rngs=rngs)

    def __call__(self, x):
        return self.attention(x)


def from_nnx(module_type) -> Net:
    definition, state = nnx.split(nnx.eval_shape(lambda: module_type(nnx.Rngs(0))))
    weights = nnx.to_pure_dict(state)

    def apply(params, x):
        full = nnx.eval_shape(lambda: module_type(nnx.Rngs(0)))
        _, blank = nnx.split(full)
        nnx.replace_by_pure_dict(blank, params)
        return nnx.merge(definition, blank)(x)

    return Net(apply, with_shapes(weights))


class EquinoxMLP(eqx.Module):
    layers: list

    def __init__(self, key):
        self.layers = [eqx.nn.Linear(a, b, key=key) for a, b in ((3, 6), (6, 5), (5, 2))]

    def __call__(self, x):
        x = jax.nn.relu(self.layers[0](x))
        return self.layers[2](jnp.tanh(self.layers[1](x)))


class EquinoxCNN(eqx.Module):
    conv: eqx.nn.Conv2d
    mean: jax.Array
    variance: jax.Array
    scale: jax.Array
    shift: jax.Array
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        self.conv = eqx.nn.Conv2d(3, 4, 3, padding=1, key=key)
        self.mean, self.variance, self.scale, self.shift = (jnp.ones((4, 1, 1)) for _ in range(4))
        self.hidden, self.out = eqx.nn.Linear(36, 6, key=key), eqx.nn.Linear(6, 2, key=key)

    def __call__(self, x):
        x = self.conv(jnp.moveaxis(x, -1, 0))
        x = (x - self.mean) / jnp.sqrt(self.variance + 1e-5) * self.scale + self.shift
        x = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(x))
        return self.out(jax.nn.relu(self.hidden(x.reshape(-1))))


class EquinoxAttention(eqx.Module):
    attention: eqx.nn.MultiheadAttention

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(2, 3, output_size=2, qk_size=3, vo_size=3, key=key)

    def __call__(self, x):
        return self.attention(x, x, x)


def equinox(module_type) -> Net:
    shapes = eqx.filter_eval_shape(module_type, jax.random.key(0))
    weights, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return Net(lambda params, x: jax.vmap(eqx.combine(params, static))(x), with_shapes(weights))


def haiku_mlp(x):
    x = jax.nn.relu(hk.Linear(6)(x))
    return hk.Linear(2)(jnp.tanh(hk.Linear(5)(x)))


def haiku_cnn(x):
    x = hk.Conv2D(4, 3)(x)
    names = ("mean", "variance", "scale", "shift")
    mean, variance, scale, shift = (hk.get_parameter(name, (4,), init=jnp.ones) for name in names)
    x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift)
    x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return hk.Linear(2)(jax.nn.relu(hk.Linear(6)(hk.Flatten()(x))))


def haiku_attention(x):
    return hk.MultiHeadAttention(2, 3, w_init=hk.initializers.Constant(1.0), model_size=2)(x, x, x)


def haiku(function, shape) -> Net:
    transformed = hk.without_apply_rng(hk.transform(function))
    shapes = jax.eval_shape(transformed.init, jax.random.key(0), jax.ShapeDtypeStruct(shape, jnp.float32))
    return Net(transformed.apply, with_shapes(shapes))


SEQUENCE = (2, 5, 3)
NETS = {
    "linen mlp": (lambda: linen(LinenMLP(), VECTOR), VECTOR, MLP),
    "nnx mlp": (lambda: from_nnx(NnxMLP), VECTOR, MLP),
    "equinox mlp": (lambda: equinox(EquinoxMLP), VECTOR, MLP),
    "haiku mlp": (lambda: haiku(haiku_mlp, VECTOR), VECTOR, MLP),
    "linen cnn": (lambda: linen(LinenCNN(), IMAGE), IMAGE, CNN),
    "nnx cnn": (lambda: from_nnx(NnxCNN), IMAGE, CNN),
    "equinox cnn": (lambda: equinox(EquinoxCNN), IMAGE, CNN),
    "haiku cnn": (lambda: haiku(haiku_cnn, IMAGE), IMAGE, CNN),
    "linen attention": (lambda: linen(LinenAttention(), SEQUENCE), SEQUENCE, ATTENTION),
    "nnx attention": (lambda: from_nnx(NnxAttention), SEQUENCE, ATTENTION),
    "equinox attention": (lambda: equinox(EquinoxAttention), SEQUENCE, ATTENTION),
    "haiku attention": (lambda: haiku(haiku_attention, SEQUENCE), SEQUENCE, ATTENTION),
}


@pytest.mark.parametrize("name", NETS)
def test_groups_in_every_framework(name):
    build, shape, expected = NETS[name]
    net = build()
    spec = symmetry.discover(net.apply, net.params, inputs(shape))
    assert summary(spec) == sorted(expected), spec.explain()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_elements_leave_outputs_alone_in_every_framework(name):
    build, shape, _ = NETS[name]
    net = build()
    spec = symmetry.discover(net.apply, net.params, inputs(shape))
    for float64 in (False, True):
        report = symmetry.verify(
            spec, net.apply, net.params, inputs(shape), jax.random.key(0), num_elements=20, float64=float64
        )
        assert report.ok, report


def test_recurrent_layers_of_linen():
    """GRU and LSTM cells scanned over time: the state's units permute and flip, and nothing rescales."""
    for cell in (nn.GRUCell(4), nn.OptimizedLSTMCell(4), nn.SimpleCell(4)):
        module = nn.Sequential([nn.RNN(cell), lambda x: x.mean(1), nn.Dense(2)])
        net = linen(module, SEQUENCE)
        spec = symmetry.discover(net.apply, net.params, inputs(SEQUENCE))
        assert summary(spec) == [(4, (), 0, 1)], spec.explain()


def test_shapes_are_told_from_containers():
    assert is_shape((3, 4))
    assert not is_shape(((3, 4), (4,)))
    assert np.shape(draw({"a": (2, 3)})["a"]) == (2, 3)
