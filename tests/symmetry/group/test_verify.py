"""`verify` accepts what is right and names the leaf that is wrong."""

from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from symbnn import symmetry
from symbnn.symmetry.spec import Factor
from tests.symmetry.cases.base import dense, draw, inputs, linear

KEY = jax.random.key(0)
SHAPES = {"hidden": dense(3, 5), "out": dense(5, 2)}


def relu_net(params, x):
    return linear(params["out"], jax.nn.relu(linear(params["hidden"], x)))


def tanh_net(params, x):
    return linear(params["out"], jnp.tanh(linear(params["hidden"], x)))


@pytest.fixture
def params():
    return draw(SHAPES)


def found(apply, params):
    return symmetry.discover(apply, params, inputs((4, 3)))


def altered(spec, name: str, axis: int, factor: Factor):
    """The spec with one factor of one leaf described differently."""
    leaves = [
        replace(leaf, axes=(*leaf.axes[:axis], (factor,), *leaf.axes[axis + 1 :]))
        if leaf.name == name
        else leaf
        for leaf in spec.leaves
    ]
    return replace(spec, leaves=tuple(leaves))


def test_a_right_spec_passes(params):
    report = symmetry.verify(found(relu_net, params), relu_net, params, inputs((4, 3)), KEY)
    assert report.ok
    assert report.bad_leaf is None
    assert report.raise_if_broken() is report
    assert set(report.errors) == {"permutation", "scale", "all"}
    assert max(report.errors.values()) < 1e-5
    assert "outputs unchanged" in str(report)


def test_double_precision_is_exact(params):
    report = symmetry.verify(found(tanh_net, params), tanh_net, params, inputs((4, 3)), KEY, float64=True)
    assert max(report.errors.values()) < 1e-13
    assert set(report.errors) == {"permutation", "sign", "all"}


ONE = (Fraction(1),)
WRONG = [
    ("hidden/bias", 0, Factor(5), "permutation"),
    ("out/kernel", 0, Factor(5), "permutation"),
    ("hidden/kernel", 1, Factor(5), "permutation"),
    ("hidden/bias", 0, Factor(5, "hidden", scales=(Fraction(0),)), "scale"),
    ("out/kernel", 0, Factor(5, "hidden", scales=ONE), "scale"),
    ("hidden/kernel", 1, Factor(5, "hidden", scales=(Fraction(2),)), "scale"),
]


@pytest.mark.parametrize(("leaf", "axis", "factor", "kind"), WRONG)
def test_the_bad_leaf_is_named(params, leaf, axis, factor, kind):
    spec = altered(found(relu_net, params), leaf, axis, factor)
    report = symmetry.verify(spec, relu_net, params, inputs((4, 3)), KEY, num_elements=2)
    assert not report.ok
    assert report.bad_leaf == leaf
    assert (report.culprit.group, report.culprit.kind) == ("hidden", kind)
    with pytest.raises(ValueError, match=f"the first wrong leaf of group .* is '{leaf}'"):
        report.raise_if_broken()


def test_a_wrong_sign_is_named(params):
    spec = altered(found(tanh_net, params), "hidden/bias", 0, Factor(5, "hidden", signs=(0,)))
    report = symmetry.verify(spec, tanh_net, params, inputs((4, 3)), KEY, num_elements=2)
    assert (report.bad_leaf, report.culprit.kind) == ("hidden/bias", "sign")


def test_a_group_that_is_none_is_blamed_though_no_leaf_can_repair_it(params):
    spec = symmetry.from_axes({"out/kernel": (None, "o")}, params)
    report = symmetry.verify(spec, relu_net, params, inputs((4, 3)), KEY, num_elements=2)
    assert not report.ok
    assert report.culprit.group == "o"


def test_a_scale_where_none_is(params):
    """Right for ReLU, wrong for tanh: no single leaf is to blame, the group is."""
    report = symmetry.verify(found(relu_net, params), tanh_net, params, inputs((4, 3)), KEY, num_elements=2)
    assert not report.ok
    assert report.errors["permutation"] < 1e-5 < report.errors["scale"]
    assert report.culprit.kind == "scale"


def test_several_inputs_come_before_the_key(params):
    def apply(p, x, y):
        return relu_net(p, x) + relu_net(p, y)

    spec = symmetry.discover(apply, params, inputs((4, 3)), inputs((4, 3), 2))
    assert symmetry.verify(spec, apply, params, inputs((4, 3)), inputs((4, 3), 2), KEY).ok


def test_a_spec_without_groups_passes(params):
    spec = symmetry.from_axes({}, params)
    assert symmetry.verify(spec, relu_net, params, inputs((4, 3)), KEY).ok


def test_bad_arguments_are_named(params):
    spec = found(relu_net, params)
    with pytest.raises(ValueError, match="must be a key"):
        symmetry.verify(spec, relu_net, params, inputs((4, 3)))
    with pytest.raises(ValueError, match="num_elements"):
        symmetry.verify(spec, relu_net, params, inputs((4, 3)), KEY, num_elements=0)
    broken = params | {"out": params["out"] | {"bias": np.float32([np.nan, 0])}}
    with pytest.raises(ValueError, match="leaf 'out/bias' has values that are not finite"):
        symmetry.verify(spec, relu_net, broken, inputs((4, 3)), KEY)
    with pytest.raises(ValueError, match=r"output .* has values that are not finite"):
        symmetry.verify(spec, lambda p, x: relu_net(p, x) / 0.0, params, inputs((4, 3)), KEY)
    with pytest.raises(ValueError, match="missing leaves"):
        symmetry.verify(spec, relu_net, {"hidden": params["hidden"]}, inputs((4, 3)), KEY)


def test_fresh_biases_and_zero_layers_do_not_hide_a_wrong_spec():
    def apply(params, x):
        return jax.nn.relu(x @ params["a"] + params["b"]) @ params["c"]

    keys = jax.random.split(jax.random.key(0), 3)
    params = {"a": jax.random.normal(keys[0], (2, 4)), "b": jnp.zeros(4), "c": jnp.zeros((4, 2))}
    x = jax.random.normal(keys[1], (3, 2))
    wrong = symmetry.from_axes({"a": (None, "h"), "c": ("h", None)}, params)
    report = symmetry.verify(wrong, apply, params, x, keys[2])
    assert not report.ok
    right = symmetry.from_axes({"a": (None, "h"), "b": ("h",), "c": ("h", None)}, params)
    assert symmetry.verify(right, apply, params, x, keys[2]).ok


def test_imaginary_parts_count():
    def apply(params, x):
        return 1j * ((x @ params["a"]) @ params["c"])

    keys = jax.random.split(jax.random.key(0), 4)
    params = {"a": jax.random.normal(keys[0], (2, 4)), "c": jax.random.normal(keys[1], (4, 2))}
    wrong = symmetry.from_axes({"c": ("h", None)}, params)
    assert not symmetry.verify(wrong, apply, params, jax.random.normal(keys[2], (3, 2)), keys[3]).ok


class Dropping(nnx.Module):
    """Its state holds a random key and a count beside the weights."""

    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.hidden(x))))


def test_random_keys_among_the_weights_are_left_alone():
    network = Dropping(nnx.Rngs(0))
    network.eval()
    graph, state = nnx.split(network)
    assert any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(state))

    def apply(state, x):
        return nnx.merge(graph, state)(x)

    spec = symmetry.discover(apply, state, inputs((4, 3)))
    assert symmetry.verify(spec, apply, state, inputs((4, 3)), KEY, float64=True).ok
    name = next(leaf.name for leaf in spec.leaves if leaf.name.startswith("hidden/bias"))
    wrong = altered(spec, name, 0, Factor(5))
    report = symmetry.verify(wrong, apply, state, inputs((4, 3)), KEY, num_elements=1)
    assert report.bad_leaf == name


def mixed_net(params, x):
    """Weights in float32, products in bfloat16, as accelerators like it."""
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    return relu_net(half, x.astype(jnp.bfloat16)).astype(jnp.float32)


@pytest.mark.parametrize("float64", [False, True])
def test_the_tolerance_is_that_of_the_precision_computed_in(float64):
    params = draw(SHAPES)
    spec = found(mixed_net, params)
    report = symmetry.verify(spec, mixed_net, params, inputs((4, 3)), KEY, float64=float64)
    assert report.ok, report
    assert report.tolerance == 8 * float(jnp.finfo(jnp.bfloat16).eps)


def test_a_wrong_spec_is_found_out_in_mixed_precision():
    params = draw(SHAPES)

    def apply(params, x):
        return mixed_net(params, x) + params["hidden"]["bias"][0]

    assert not symmetry.verify(found(mixed_net, params), apply, params, inputs((4, 3)), KEY).ok


def test_precision_of_what_no_weight_reaches_does_not_count():
    params = draw(SHAPES)

    def apply(params, x):
        return relu_net(params, x + jnp.ones(3, jnp.bfloat16).astype(x.dtype))

    report = symmetry.verify(found(apply, params), apply, params, inputs((4, 3)), KEY, float64=True)
    assert report.ok
    assert report.tolerance == 1e-10
