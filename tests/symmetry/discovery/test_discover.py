"""Discovery finds the groups one derives by hand, and they are symmetries."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from symbnn import symmetry
from tests.symmetry.cases import CASES, discovered, draw, inputs, summary
from tests.symmetry.cases.base import check_elements, dense, linear
from tests.symmetry.cases.perceptrons import mlp
from tests.symmetry.discovery.processes import run

# Small, and between them every structure: a sum, a product, a shift, fibres over a group and over an index.
FAST = ("mlp_relu", "mlp_tanh", "residual", "dense_net", "experts", "scanned_layers", "gru", "packed_heads")


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_derived_by_hand(name):
    case = CASES[name]()
    spec = discovered(case)
    assert summary(spec) == sorted(case.groups), spec.explain()


@pytest.mark.parametrize("name", FAST)
def test_elements_leave_outputs_alone(name):
    check_elements(CASES[name](), num_elements=3, precisions=(True,))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_twenty_elements_leave_outputs_alone(name):
    check_elements(CASES[name](), num_elements=20)


@pytest.mark.parametrize("depth", range(1, 6))
@pytest.mark.parametrize(("activation", "scales", "signs"), [("relu", 1, 0), ("tanh", 0, 1), ("gelu", 0, 0)])
def test_perceptrons_of_any_depth(depth, activation, scales, signs):
    case = mlp(getattr(jax.nn, activation), depth, scales, signs)
    assert summary(discovered(case)) == sorted(case.groups)


def test_a_hidden_layer_is_what_one_writes_by_hand():
    shapes = {"hidden": dense(3, 5), "out": dense(5, 2)}
    params = draw(shapes)
    spec = symmetry.discover(
        lambda p, x: linear(p["out"], jax.nn.relu(linear(p["hidden"], x))), params, inputs((4, 3))
    )
    by_hand = symmetry.from_axes(
        {"hidden/kernel": (None, "hidden"), "hidden/bias": ("hidden",), "out/kernel": ("hidden", None)},
        params,
        scales={"hidden/kernel": (None, "+"), "hidden/bias": ("+",), "out/kernel": ("-", None)},
    )
    assert spec.groups == by_hand.groups
    for found, expected in zip(spec.leaves, by_hand.leaves, strict=True):
        assert [(f.group, f.scales) for _, f in found.factors()] == [
            (f.group, f.scales) for _, f in expected.factors()
        ]
    roles = {leaf.name: [factor.role for _, factor in leaf.factors()] for leaf in spec.leaves}
    assert roles["hidden/kernel"] == [None, "produces"]
    assert roles["out/kernel"] == ["consumes", None]


def test_batch_norm_keeps_its_variance_unless_asked():
    case = CASES["residual"]()
    spec = discovered(case)
    (variance,) = (leaf for leaf in spec.leaves if leaf.name == "block/bn1/var")
    assert variance.shift == pytest.approx(1e-3)
    full = symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape), eval_only=True)
    assert summary(full) == [(4, (), 3, 1), (4, (), 5, 2)]
    report = symmetry.verify(
        full, case.apply, draw(case.shapes), inputs(case.input_shape), jax.random.key(1), float64=True
    )
    assert report.ok, report


# Networks whose only continuous symmetries are rescalings: no two linear layers in a row, no softmax.
@pytest.mark.parametrize(
    "name", ["mlp_depth_2", "reglu", "swiglu", "mapped_experts", "weight_norm", "mlp_relu_squared"]
)
def test_no_rescaling_is_missed(name):
    """The kernel of the outputs' Jacobian on many inputs has the dimension of the scales that were found."""
    case = CASES[name]()
    with jax.enable_x64(True):
        flat, unflatten = ravel_pytree(jax.tree.map(jnp.float64, draw(case.shapes)))
        x = np.random.default_rng(3).normal(size=(100, *case.input_shape[1:]))
        jacobian = jax.jacobian(lambda flat: case.apply(unflatten(flat), x).reshape(-1))(flat)
        values = np.linalg.svd(np.asarray(jacobian), compute_uv=False)
    num_found = sum(n * s * math.prod(over) for n, over, s, _ in case.groups)
    assert (values < 1e-10 * values[0]).sum() == num_found


def test_specs_do_not_depend_on_the_hash_seed():
    program = (
        "from symbnn.symmetry import discover; from tests.symmetry.cases import CASES, draw, inputs\n"
        "for case in (CASES[name]() for name in ('transformer', 'u_net', 'experts')):\n"
        "    print(discover(case.apply, draw(case.shapes), inputs(case.input_shape)))"
    )
    printed = [run(program, hash_seed) for hash_seed in ("1", "2")]
    assert printed[0] == printed[1]
    assert "Group(" in printed[0]


def test_leaves_with_one_name_are_refused():
    with pytest.raises(ValueError, match="several leaves of params are named 'a/b'"):
        symmetry.discover(
            lambda p, x: x @ p["a/b"], {"a/b": jnp.ones((3, 3)), "a": {"b": jnp.ones((3, 3))}}, inputs((2, 3))
        )
