"""Networks: published sizes, names, modes, symmetries, and that equal settings give one object."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from symbnn import models, symmetry, tree

IMAGENET = ((224, 224, 3), 1000)
CIFAR = ((32, 32, 3), 10)
MNIST = ((28, 28, 1), 10)


def shapes_of(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def random_params(model, seed=0):
    """Weights without compiling the initialisation; scales and running variances are positive."""
    random = np.random.default_rng(seed)

    def draw(name, leaf):
        values = (
            random.normal(size=leaf.shape) * (leaf.size / max(1, leaf.shape[-1] if leaf.ndim else 1)) ** -0.5
        )
        return jnp.asarray(np.abs(values) + 0.5 if name.endswith(("var", "scale")) else values, leaf.dtype)

    return tree.map_named(draw, shapes_of(model))


def random_inputs(model, batch=2, num_tokens=None):
    if num_tokens is not None:
        return np.random.default_rng(1).integers(0, num_tokens, (batch, *model.input_shape))
    return np.random.default_rng(1).normal(size=(batch, *model.input_shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "shape", "settings", "published"),
    [
        ("mlp", ((784,), 10), {"hidden": (512,)}, 407_050),
        ("optunet", MNIST, {}, 355),
        ("optunet", MNIST, {"hidden": ()}, 392),
        ("lenet", MNIST, {}, 61_706),
        ("resnet20", CIFAR, {}, 269_722),
        ("resnet20_frn", CIFAR, {}, 273_258),
        pytest.param("resnet18", IMAGENET, {}, 11_689_512, marks=pytest.mark.slow),
        ("resnet18", CIFAR, {}, 11_173_962),
        pytest.param("resnet50", IMAGENET, {}, 25_557_032, marks=pytest.mark.slow),
        pytest.param("wrn28_10", CIFAR, {}, 36_479_194, marks=pytest.mark.slow),
        pytest.param("vit_b16", IMAGENET, {}, 86_567_656, marks=pytest.mark.slow),
    ],
)
def test_sizes_are_the_published_ones(name, shape, settings, published):
    model = models.create(name, *shape, **settings)
    params = shapes_of(model)
    assert tree.num_weights(params.get("params", params)) == published
    outputs = jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((3, *shape[0]), jnp.float32))
    assert outputs.shape == (3, shape[1])


NARROW = {
    "mlp": (((6,), 3), {"hidden": (5, 4)}),
    "optunet": (((18, 18, 1), 3), {}),
    "lenet": (((12, 12, 1), 3), {"width": 0.5}),
    "resnet20": (((8, 8, 3), 3), {"width": 0.25}),
    "resnet20_frn": (((8, 8, 3), 3), {"width": 0.25}),
    "resnet18": (((8, 8, 3), 3), {"width": 1 / 16}),
    "resnet50": (((8, 8, 3), 3), {"width": 1 / 32}),
    "wrn28_10": (((8, 8, 3), 3), {"width": 0.02}),
    "vit": (((8, 8, 3), 3), {"dimension": 8, "depth": 2, "num_heads": 2, "mlp_units": 6}),
    "vit_b16": (((32, 32, 3), 3), {"width": 1 / 32}),
    "gpt": (((5,), 7), {"dimension": 8, "depth": 1, "num_heads": 2, "mlp_units": 6}),
}
TOKENS = {"gpt": 7}
"""Networks whose inputs are whole numbers below this."""
# Depth makes these slow to trace; the same code is covered by resnet18 and vit.
DEEP = ("resnet50", "wrn28_10", "vit_b16")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in DEEP else ()) for name in NARROW]
)
def test_symmetries_leave_the_function_alone(name):
    shape, settings = NARROW[name]
    model = models.create(name, *shape, **settings)
    report = symmetry.verify(
        model.spec,
        model.apply,
        random_params(model),
        jnp.asarray(random_inputs(model, num_tokens=TOKENS.get(name))),
        jax.random.key(0),
        num_elements=1,
        float64=True,
    )
    assert report.ok, report


def test_a_language_model_sees_only_what_came_before():
    shape, settings = NARROW["gpt"]
    model = models.gpt(*shape, **settings)
    params = random_params(model)
    tokens = random_inputs(model, num_tokens=7)
    changed = tokens.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 7
    before, after = (np.asarray(model.apply(params, some)) for some in (tokens, changed))
    assert before.shape == (2, 5, 7)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before - after)[:, 3:].max(axis=(0, 2)) > 1e-4).all()
    kinds = {(group.size, group.kind) for group in model.spec.groups}
    assert kinds == {(8, "permutation"), (2, "permutation"), (4, "invertible"), (6, "permutation")}
    folded = symmetry.fold_gains(model.apply, params, tokens)
    assert (8, "orthogonal") in {(group.size, group.kind) for group in folded.spec.groups}
    with pytest.raises(ValueError, match=r"gpt takes sequences, input_shape \(length,\); got \(8, 8\)"):
        models.gpt((8, 8), 3)
    with pytest.raises(ValueError, match="num_heads must divide dimension, 8; got 3"):
        models.gpt((8,), 3, dimension=8, num_heads=3)


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [
        ("mlp", ((784,), 10), [32]),
        ("lenet", MNIST, [6, 16, 84, 120]),
        ("optunet", MNIST, [2, 3, 5]),
        ("resnet18", CIFAR, [64] * 3 + [128] * 3 + [256] * 3 + [512] * 3),
        ("resnet20_frn", CIFAR, [16] * 4 + [32] * 4 + [64] * 4),
        pytest.param("wrn28_10", CIFAR, [16] + [160] * 5 + [320] * 5 + [640] * 5, marks=pytest.mark.slow),
        pytest.param(
            "vit_b16", IMAGENET, [12] * 12 + [64] * 24 + [768] + [3072] * 12, marks=pytest.mark.slow
        ),
    ],
)
def test_the_expected_groups_are_found(name, shape, sizes):
    assert sorted(group.size for group in models.create(name, *shape).spec.groups) == sizes


def test_equal_settings_give_the_same_object():
    assert models.mlp((4,), 2, hidden=[3]) is models.create("mlp", (4,), 2, hidden=(3,))
    assert models.lenet(*MNIST, width=0.5) is models.lenet(*MNIST, width=0.5)
    assert models.mlp((4,), 2, hidden=(3,)) is not models.mlp((4,), 2, hidden=(3,), activation="tanh")


def test_leaves_of_a_perceptron_have_the_promised_names():
    one, two = models.mlp((4,), 2, hidden=(3,)), models.mlp((4,), 2, hidden=(3, 5))
    assert list(tree.named_leaves(shapes_of(one))) == [
        "hidden/bias",
        "hidden/kernel",
        "out/bias",
        "out/kernel",
    ]
    assert {name.split("/")[0] for name in tree.named_leaves(shapes_of(two))} == {"hidden0", "hidden1", "out"}


@pytest.mark.parametrize("name", [name for name in models.CONSTRUCTORS if name not in DEEP])
def test_every_layer_is_named_by_hand(name):
    # Flax numbers nameless layers `Dense_0`; such names shift when a layer is inserted.
    shape, settings = NARROW[name]
    for leaf in tree.named_leaves(shapes_of(models.create(name, *shape, **settings))):
        assert not any(part[0].isupper() for part in leaf.split("/")), leaf


def test_a_perceptron_starts_uniform_on_one_over_root_fan_in():
    params = models.mlp((100,), 10, hidden=(400,)).init(jax.random.key(0))
    for layer, fan_in in (("hidden", 100), ("out", 400)):
        for leaf in ("kernel", "bias"):
            values = np.asarray(params[layer][leaf]).ravel() * fan_in**0.5
            assert np.abs(values).max() <= 1.0
            # Standard error of the mean square of n uniform draws on [-1, 1]: sqrt(4 / 45 / n).
            assert abs(np.mean(values**2) - 1 / 3) < 4 * (4 / 45 / values.size) ** 0.5


def test_dropout_is_for_training_only():
    model = models.mlp((4,), 2, hidden=(50, 50), dropout=0.5)
    params, inputs = model.init(jax.random.key(0)), jnp.ones((3, 4))
    one, same_params = model.train(params, inputs, jax.random.key(1))
    other, _ = model.train(params, inputs, jax.random.key(2))
    again, _ = model.train(params, inputs, jax.random.key(1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    assert same_params is params
    np.testing.assert_array_equal(model.apply(params, inputs), model.apply(params, inputs))


def test_training_moves_batch_statistics_towards_the_batch():
    model = models.resnet18((8, 8, 3), 3, width=1 / 16)
    params, inputs = random_params(model), random_inputs(model, 16)
    outputs, updated = jax.jit(model.train)(params, inputs, jax.random.key(0))
    assert outputs.shape == (16, 3)
    kernel = params["params"]["conv1"]["kernel"]
    features = jax.lax.conv_general_dilated(
        inputs, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    mean = 0.9 * params["batch_stats"]["norm1"]["mean"] + 0.1 * features.mean(axis=(0, 1, 2))
    np.testing.assert_allclose(updated["batch_stats"]["norm1"]["mean"], mean, rtol=1e-4, atol=1e-5)
    assert updated["params"] is not None
    assert jax.tree.structure(updated) == jax.tree.structure(params)


def test_filter_response_norm_is_its_formula():
    from symbnn.models.filter_response import FilterResponseNorm

    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    gamma, beta, tau = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    params = {"scale": gamma, "bias": beta, "threshold": tau}
    expected = np.maximum(gamma * x / np.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 1e-6) + beta, tau)
    np.testing.assert_allclose(
        FilterResponseNorm().apply({"params": params}, jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6
    )


class Tiny(nn.Module):
    """A user's own module, without a training mode."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, name="out")(nn.relu(nn.Dense(6, name="first")(x)))


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("counter", "calls", lambda: jnp.zeros(()))
        return x


def test_any_linen_module_becomes_a_model():
    model = models.from_module(Tiny(), (3,))
    params = model.init(jax.random.key(0))
    assert params.keys() == {"first", "out"}
    assert model.train(params, jnp.ones((2, 3)), jax.random.key(0))[0].shape == (2, 2)
    with pytest.raises(ValueError, match=r"Counting keeps \['counter'\]"):
        models.from_module(Counting(), (3,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.create("restnet18", *CIFAR), "did you mean 'resnet18'"),
        (lambda: models.mlp((3,), 2, activation="rellu"), "did you mean 'relu'"),
        (lambda: models.mlp((3,), 2, dropout=1.0), r"dropout must be a probability in \[0, 1\); got 1.0"),
        (lambda: models.mlp((3,), 2, hidden=(4, 0)), r"hidden widths must be positive; got \(4, 0\)"),
        (lambda: models.lenet((8, 8, 1), 2), r"at least 12 pixels a side; got \(8, 8, 1\)"),
        (lambda: models.resnet18((784,), 2), r"\(height, width, channels\)"),
        (lambda: models.vit((30, 32, 3), 2), r"sides of images of shape \(30, 32, 3\); got 4"),
        (lambda: models.vit((32, 32, 3), 2, num_heads=5), "num_heads must divide dimension, 64; got 5"),
        (lambda: models.mlp((3,), 2).apply({}, jnp.ones((2, 4))), r"inputs have shape \(2, 4\)"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_constructors_share_one_signature():
    for constructor in models.CONSTRUCTORS.values():
        first, second, *settings = inspect.signature(constructor).parameters.values()
        assert (first.name, second.name) == ("input_shape", "num_outputs")
        assert all(setting.kind is setting.KEYWORD_ONLY for setting in settings)


@pytest.mark.parametrize(
    ("constructor", "shape"),
    [
        (models.optunet, MNIST[0]),
        (models.optunet, (18, 21, 2)),
        (partial(models.lenet, width=0.5), (13, 18, 2)),
        (partial(models.lenet, width=0.5, activation="gelu"), (12, 12, 1)),
    ],
)
def test_the_same_function_with_the_same_symmetries_by_products(constructor, shape):
    """With and without rows that pooling leaves out; gelu does not rise everywhere."""
    convolved, multiplied = (constructor(shape, 3, computed_by=way) for way in ("convolutions", "products"))
    key = jax.random.key(0)
    params, images = convolved.init(key), jax.random.normal(key, (2, *shape))
    jax.tree.map(np.testing.assert_array_equal, params, multiplied.init(key))
    values, gradients = zip(
        *(
            jax.value_and_grad(lambda params, apply=model.apply: jnp.sum(apply(params, images) ** 2))(params)
            for model in (convolved, multiplied)
        ),
        strict=True,
    )
    np.testing.assert_allclose(*values, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients)
    assert convolved.spec.groups == multiplied.spec.groups
    assert convolved.spec.leaves == multiplied.spec.leaves
    with pytest.raises(ValueError, match="unknown computed_by 'product'"):
        constructor(shape, 3, computed_by="product")
