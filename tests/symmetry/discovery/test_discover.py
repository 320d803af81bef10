"""Discovery finds the groups one derives by hand, and they are symmetries."""

import collections
import doctest
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree

from symbnn import models, symmetry
from symbnn.symmetry.discovery import rules
from symbnn.symmetry.discovery.exponent_rules import EXPONENT_RULES
from tests.symmetry.cases import CASES, Case, dense, draw, inputs, linear, mlp, summary

# Small, and between them every structure: a sum, a product, a shift, fibres over a group and over an index.
FAST = ("mlp_relu", "mlp_tanh", "residual", "dense_net", "experts", "scanned_layers", "gru", "packed_heads")


def discovered(case: Case):
    return symmetry.discover(case.apply, draw(case.shapes), inputs(case.input_shape))


def check(case: Case, num_elements: int, precisions=(False, True)):
    spec, params, x = discovered(case), draw(case.shapes), inputs(case.input_shape)
    for float64 in precisions:
        report = symmetry.verify(
            spec, case.apply, params, x, jax.random.key(0), num_elements=num_elements, float64=float64
        )
        assert report.ok, report


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_derived_by_hand(name):
    case = CASES[name]()
    spec = discovered(case)
    assert summary(spec) == sorted(case.groups), spec.explain()


@pytest.mark.parametrize("name", FAST)
def test_elements_leave_outputs_alone(name):
    check(CASES[name](), num_elements=3, precisions=(True,))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_twenty_elements_leave_outputs_alone(name):
    check(CASES[name](), num_elements=20)


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


INNER, PRE = (2, 1), (5, 1)
PUBLISHED = {
    "lenet": ((28, 28, 1), {(6, 1, 0): 1, (16, 1, 0): 1, (120, 1, 0): 1, (84, 1, 0): 1}),
    "resnet18": (
        (32, 32, 3),
        {(size, *INNER): 2 for size in (64, 128, 256, 512)}
        | {(size, 4, 3): 1 for size in (64, 128, 256, 512)},
    ),
    "resnet50": (
        (224, 224, 3),
        {(64, *INNER): 7, (128, *INNER): 8, (256, *INNER): 12, (512, *INNER): 6}
        | {(256, 5, 4): 1, (512, 6, 5): 1, (1024, 8, 7): 1, (2048, 5, 4): 1},
    ),
    "wrn28_10": (
        (32, 32, 3),
        {(16, *INNER): 1}
        | {(size, *INNER): 4 for size in (160, 320, 640)}
        | {(size, *PRE): 1 for size in (160, 320, 640)},
    ),
    "vit_b16": (
        (224, 224, 3),
        {(768, 25, 25): 1, (12, 0, 0): 12, (64, 1, 1): 24, (3072, 0, 0): 12},
    ),
}


def full_size(name: str, input_shape: tuple[int, ...], **settings):
    """The spec that a model is given when it is made: discovered from shapes, nothing is initialised."""
    return models.create(name, input_shape, 10, **settings).spec


def measure(names):
    """What one process finds and needs for full-size networks; see the test below."""
    results = {}
    for name in names:
        input_shape = PUBLISHED[name][0]
        start = time.process_time()
        spec = full_size(name, input_shape)
        seconds = time.process_time() - start
        groups = collections.Counter((group.size, group.num_scales, group.num_signs) for group in spec.groups)
        losses = [pin for pin in spec.pins if not pin.expected]
        results[name] = {"groups": sorted(groups.items()), "losses": len(losses), "seconds": seconds}
    # VmHWM and not ru_maxrss, which a child inherits from the process that started it.
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20  # type: ignore[index]
    print(json.dumps({"results": results, "gibibytes": peak}))


def test_published_networks_from_shapes_alone():
    """In a process of their own, without the tests' shape checking: under 1 GiB."""
    measured = json.loads(
        run(f"from tests.symmetry.discovery.test_discover import measure; measure({list(PUBLISHED)})")
    )
    for name, (_, expected) in PUBLISHED.items():
        found = measured["results"][name]
        assert {tuple(key): count for key, count in found["groups"]} == expected
        assert found["losses"] == 0
    assert measured["gibibytes"] < 1


def run(program: str, hash_seed: str = "0") -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_optunet_groups_vary_over_the_convolution_groups():
    spec = full_size("optunet", (28, 28, 1))
    assert summary(spec) == [(2, (), 1, 0), (3, (), 1, 0), (5, (2,), 1, 0)]


def test_attention_heads_of_the_transformer():
    spec = full_size("vit", (8, 8, 3), dimension=12, depth=2, num_heads=3, mlp_units=10)
    assert summary(spec) == sorted(
        [(12, (), 5, 5), *2 * [(3, (), 0, 0)], *4 * [(4, (3,), 1, 1)], *2 * [(10, (), 0, 0)]]
    )


NARROW = {
    "lenet": ((28, 28, 1), {}),
    "optunet": ((28, 28, 1), {}),
    "resnet20_frn": ((8, 8, 3), {"width": 0.25}),
    "resnet18": ((8, 8, 3), {"width": 0.0625}),
    "resnet50": ((8, 8, 3), {"width": 0.0625}),
    "wrn28_10": ((8, 8, 3), {"width": 0.025}),
    "vit": ((8, 8, 3), {"dimension": 12, "depth": 2, "num_heads": 3, "mlp_units": 10}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_narrow_versions_of_the_published_networks(name):
    input_shape, settings = NARROW[name]
    model = models.create(name, input_shape, 4, **settings)
    shapes = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(model.init, jax.random.key(0)))
    check(Case(model.apply, shapes, (2, *input_shape), []), num_elements=20)


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


def hidden(function):
    """Trap between two dense layers."""

    def apply(params, x):
        return function(x @ params["in"], params) @ params["out"]

    return Case(apply, {"in": (3, 6), "out": (6, 2)}, (4, 3), [])


MASK = np.arange(6) < 4
TRAPS = {
    "constant mask": lambda h, p: h * np.float32([1, 2, 3, 4, 5, 6]),
    "cumsum": lambda h, p: jnp.cumsum(h, -1),
    "reversed": lambda h, p: h + h[:, ::-1],
    "position": lambda h, p: h + jnp.arange(6.0),
    "argmax": lambda h, p: jax.nn.one_hot(jnp.argmax(h, -1), 6),
    "dropout": lambda h, p: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, h.shape), h, 0),
    "roll": lambda h, p: h + jnp.roll(h, 1, -1),
    "gathered": lambda h, p: h[:, np.array([5, 3, 1, 0, 2, 4])],
    "fft": lambda h, p: jnp.fft.fft(h).real,
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_find_nothing(trap):
    assert discovered(hidden(TRAPS[trap])).groups == ()


PARTIAL = {
    "mask by segments": (lambda h, p: jnp.where(MASK, h, 0), []),
    "two halves": (
        lambda h, p: jnp.concatenate([h[:, :3], jnp.tanh(h[:, 3:])], -1),
        [(3, (), 0, 1), (3, (), 1, 1)],
    ),
    "relu6": (lambda h, p: jax.nn.relu6(h), [(6, (), 0, 0)]),
    "max with a half": (lambda h, p: jnp.maximum(h, 0.5), [(6, (), 0, 0)]),
    "softmax": (lambda h, p: jax.nn.softmax(h), [(6, (), 0, 0)]),
}


@pytest.mark.parametrize("trap", PARTIAL)
def test_traps_find_less(trap):
    function, expected = PARTIAL[trap]
    assert summary(discovered(hidden(function))) == expected


def test_a_returned_hidden_layer_is_an_output():
    case = hidden(lambda h, p: h)
    spec = symmetry.discover(
        lambda p, x: (case.apply(p, x), x @ p["in"]), draw(case.shapes), inputs(case.input_shape)
    )
    assert spec.groups == ()


def test_a_weight_closed_over_is_a_constant():
    params = draw({"in": (3, 6), "out": (6, 2)})
    spec = symmetry.discover(
        lambda p, x: jax.nn.relu(x @ params["in"]) @ p["out"], {"out": params["out"]}, inputs((4, 3))
    )
    assert spec.groups == ()


def test_a_condition_on_one_unit_pins_it():
    def apply(p, x):
        h = jax.nn.relu(x @ p["in"])
        return lax.cond(h[0, 0] > 0.5, lambda h: h, lambda h: 2 * h, h) @ p["out"]

    spec = symmetry.discover(apply, draw({"in": (3, 6), "out": (6, 2)}), inputs((4, 3)))
    assert summary(spec) == [(5, (), 1, 0)]


def test_a_while_condition_on_one_unit_pins_it():
    def apply(p, x):
        hidden = jax.nn.relu(x @ p["in"])
        return lax.while_loop(lambda h: h[0, 0] > 0.5, lambda h: 0.5 * h, hidden) @ p["out"]

    spec = symmetry.discover(apply, draw({"in": (3, 6), "out": (6, 2)}), inputs((4, 3)))
    assert summary(spec) == [(5, (), 1, 0)]


def test_integer_weights_move_and_never_scale():
    params = {"in": np.arange(6, dtype=np.int32).reshape(2, 3), "out": np.ones((3, 2), np.float32)}
    spec = symmetry.discover(
        lambda p, x: (x @ p["in"].astype(jnp.float32)) @ p["out"], params, inputs((4, 2))
    )
    assert summary(spec) == [(3, (), 0, 0)]


def test_integer_inputs_and_unused_leaves():
    params = draw({"table": (7, 4), "out": (4, 2), "spare": (4,)})
    tokens = jax.ShapeDtypeStruct((3,), jnp.int32)
    spec = symmetry.discover(lambda p, tokens: jax.nn.relu(p["table"][tokens]) @ p["out"], params, tokens)
    assert summary(spec) == [(4, (), 1, 0)]
    assert "leaf 'spare' is not used" in spec.notes


def test_names_follow_the_producing_layer():
    spec = discovered(CASES["transformer"]())
    assert [group.name for group in spec.groups] == [
        "patch", "heads.blocks", "heads.units", "heads.units[1]", "up"
    ]  # fmt: skip


def test_scanned_layers_become_an_index():
    spec = discovered(CASES["scanned_layers"]())
    assert [index.size for index in spec.indices] == [4]
    assert spec.groups[-1].over == (spec.indices[0].name,)


def test_explain_names_losses_with_their_line():
    text = discovered(hidden(TRAPS["constant mask"])).explain()
    assert "no symmetries found" in text
    assert (
        "in axis 1 (size 6) pinned: non-uniform constant in `broadcast_in_dim` at test_discover.py:" in text
    )
    assert "input: in axis 0" in text
    text = discovered(hidden(TRAPS["fft"])).explain()
    assert "no rule for fft" in text


def test_explain_shows_groups_and_exponents():
    text = discovered(CASES["mlp_relu"]()).explain()
    assert "layer0: 4 units; 1 scale, no signs" in text
    assert "layer1/kernel axis 0 consumes scale -1" in text


def test_specs_do_not_depend_on_the_hash_seed():
    program = (
        "from symbnn.symmetry import discover; from tests.symmetry.cases import CASES, draw, inputs\n"
        "for case in (CASES[name]() for name in ('transformer', 'u_net', 'experts')):\n"
        "    print(discover(case.apply, draw(case.shapes), inputs(case.input_shape)))"
    )
    printed = [run(program, hash_seed) for hash_seed in ("1", "2")]
    assert printed[0] == printed[1]
    assert "Group(" in printed[0]


@pytest.fixture
def own_rules(monkeypatch):
    """What a test registers is gone after it."""
    for table in (rules.RULES, EXPONENT_RULES):
        for name in ("doubled_for_the_test", "wrong_for_the_test", "weighted_sum"):
            monkeypatch.setitem(table, name, None)
            monkeypatch.delitem(table, name)


def test_rules_can_be_registered(own_rules):
    primitive = jax.extend.core.Primitive("doubled_for_the_test")
    primitive.def_abstract_eval(lambda x: x)
    case = hidden(lambda h, p: primitive.bind(h))
    assert discovered(case).groups == ()
    symmetry.register_rule(primitive, rules.elementwise_rule)
    assert summary(discovered(case)) == [(6, (), 0, 0)]
    symmetry.register_rule(
        "doubled_for_the_test", rules.elementwise_rule, scale=rules.equal, sign=rules.equal
    )
    assert summary(discovered(case)) == [(6, (), 1, 1)]


def test_the_example_of_a_rule_runs(own_rules):
    (example,) = doctest.DocTestFinder().find(symmetry.register_rule, "register_rule", globs={})
    result = doctest.DocTestRunner().run(example)
    assert (result.attempted, result.failed) == (15, 0)


WRONG_RULES = {
    "no axis_map": (lambda e: (rules.layout("nk"),), "must return an AxisMap or None; got tuple"),
    "layouts": (
        lambda e: rules.AxisMap((), (rules.layout("nk"),)),
        "must describe 1 operands; got 0 layouts",
    ),
    "rank too high": (
        lambda e: rules.AxisMap((rules.layout("nkj"),), (rules.layout("nk"),)),
        r"every axis of operand 0 once, which has shape \(4, 6\); got axes \[0, 1, 2\]",
    ),
    "rank too low": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("n"),)),
        r"every axis of result 0 once, which has shape \(4, 6\); got axes \[0\]",
    ),
    "lengths": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("kn"),)),
        r"variable 'k' length 6; result 0 of shape \(4, 6\) has 4 on axes \(0,\)",
    ),
    "product": (
        lambda e: rules.AxisMap(
            (rules.layout("nk"),),
            ((rules.Span((0,), ("n",)), rules.Span((1,), ("a", "b"))),),
            sizes={"a": 2, "b": 4},
        ),
        r"lengths \[2, 4\] on axes \(1,\) of result 0, which has shape \(4, 6\): expected 6, got 8",
    ),
    "missing length": (
        lambda e: rules.AxisMap(
            (rules.layout("nk"),), ((rules.Span((0,), ("n",)), rules.Span((1,), ("a", "b"))),)
        ),
        r"must give the lengths of \['a', 'b'\] in `sizes`, for result 0",
    ),
    "pins": (
        lambda e: rules.AxisMap((rules.layout("nk"),), (rules.layout("nk"),), {"j": "why"}),
        r"pins \['j'\]; its layouts have the variables \['k', 'n'\]",
    ),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_rules_that_do_not_fit_are_refused(name, own_rules):
    primitive = jax.extend.core.Primitive("wrong_for_the_test")
    primitive.def_abstract_eval(lambda x: x)
    rule, message = WRONG_RULES[name]
    symmetry.register_rule(primitive, rule)
    with pytest.raises(ValueError, match="primitive 'wrong_for_the_test'.*" + message):
        discovered(hidden(lambda h, p: primitive.bind(h)))


def test_leaves_with_one_name_are_refused():
    with pytest.raises(ValueError, match="distinct names"):
        symmetry.discover(
            lambda p, x: x @ p["a/b"], {"a/b": jnp.ones((3, 3)), "a": {"b": jnp.ones((3, 3))}}, inputs((2, 3))
        )
