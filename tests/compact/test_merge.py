"""`compact.merge`: laws of merging, then what it does to trained networks, then bad input."""

import os
from itertools import combinations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from symbnn import compact, data, density, evaluate, inference, io, models, symmetry, tree
from symbnn.posteriors import Empirical
from tests.evaluate.networks import ResidualNorms

MLP = models.mlp((5,), 3, hidden=(8, 7))
INPUTS = jax.random.normal(jax.random.key(1), (64, 5))


class Attention(nn.Module):
    """Embedding, one block of attention and of a perceptron, average, dense."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(8, name="embed")(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, name="attention")(x, x)
        x = x + nn.Dense(8, name="second")(nn.gelu(nn.Dense(12, name="first")(x)))
        return nn.Dense(3, name="out")(x.mean(1))


MODELS = {
    "mlp": (MLP, INPUTS),
    "norms": (
        models.from_module(ResidualNorms(), (6, 6, 2)),
        jax.random.normal(jax.random.key(2), (40, 6, 6, 2)),
    ),
    "attention": (
        models.from_module(Attention(), (5, 4)),
        jax.random.normal(jax.random.key(3), (48, 5, 4)),
    ),
}


def trained_like(model, inputs, key):
    """Random weights with running statistics that fit the inputs, as training leaves them."""
    params = tree.map_named(
        lambda name, leaf: (
            leaf + 0.1 * jax.random.normal(jax.random.key(len(name)), leaf.shape)
            if "batch_stats" not in name
            else leaf
        ),
        model.init(key),
    )
    if "batch_stats" not in params:
        return params
    return evaluate.recompute_statistics(model.apply, inputs)(params, params, 0.5, params)


@pytest.mark.parametrize(
    ("kind", "correct"),
    [
        pytest.param("mlp", "auto", marks=pytest.mark.slow),
        ("mlp", "repair"),
        pytest.param("norms", "auto", marks=pytest.mark.slow),
        ("norms", "statistics"),
        pytest.param("attention", "auto", marks=pytest.mark.slow),
    ],
)
def test_copies_of_one_network_are_merged_to_its_function(kind, correct):
    model, inputs = MODELS[kind]
    params = trained_like(model, inputs, jax.random.key(4))
    elements = [symmetry.random_element(model.spec, jax.random.key(seed)) for seed in (5, 6)]
    copies = [params, *(symmetry.act(model.spec, element, params) for element in elements)]
    merged = compact.merge(model, copies, inputs=inputs, correct=correct)
    expected = model.apply(params, inputs)
    np.testing.assert_allclose(model.apply(merged.params, inputs), expected, atol=2e-4, rtol=2e-4)
    for index in range(3):
        outputs = model.apply(tree.take(merged.aligned, index), inputs)
        np.testing.assert_allclose(outputs, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.slow
def test_copies_with_mixed_heads_and_a_rotated_stream_are_merged_by_weights_alone():
    """The stream of a language model rotates once the gains of its norms are folded into other weights."""
    model = models.gpt((6,), 7, dimension=8, depth=1, num_heads=2, mlp_units=6)
    tokens = jax.random.randint(jax.random.key(0), (9, 6), 0, 7)
    params = trained_like(model, tokens, jax.random.key(1))
    folded = symmetry.fold_gains(model.apply, params, tokens)
    element = symmetry.random_element(folded.spec, jax.random.key(2))
    gains = symmetry.random_element(model.spec, jax.random.key(3))
    copies = [
        params,
        symmetry.act(folded.spec, element, folded.params),
        symmetry.act(model.spec, gains, params),
    ]
    merged = compact.merge(model, copies)
    np.testing.assert_allclose(
        model.apply(merged.params, tokens), model.apply(params, tokens), atol=2e-4, rtol=2e-4
    )
    assert merged.spec == folded.spec


def test_copies_are_merged_by_weights_alone():
    params = MLP.init(jax.random.key(0))
    element = symmetry.random_element(MLP.spec, jax.random.key(1))
    merged = compact.merge(MLP, [params, symmetry.act(MLP.spec, element, params)])
    assert merged.correction == "none"
    np.testing.assert_allclose(MLP.apply(merged.params, INPUTS), MLP.apply(params, INPUTS), atol=1e-5)


@pytest.mark.parametrize("given", [list, tree.stack, lambda some: Empirical(tree.stack(some))])
def test_one_network_is_itself(given):
    model, _ = MODELS["norms"]
    params = model.init(jax.random.key(0))
    merged = compact.merge(model, given([params]))
    jax.tree.map(np.testing.assert_array_equal, merged.params, params)
    moved = symmetry.act(model.spec, tree.take(merged.elements, 0), params)
    jax.tree.map(np.testing.assert_array_equal, moved, params)


def test_the_order_of_the_networks_does_not_matter_to_a_given_reference():
    networks = [MLP.init(jax.random.key(seed)) for seed in range(3)]
    one, other = (
        compact.merge(MLP, some, inputs=INPUTS, reference=networks[0]).params
        for some in (networks, networks[::-1])
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), one, other)


def test_lists_stacks_and_posteriors_are_the_same():
    networks = [MLP.init(jax.random.key(seed)) for seed in range(2)]
    several = (networks, tree.stack(networks), Empirical(tree.stack(networks)))
    first, *others = (compact.merge(MLP, some, inputs=INPUTS).params for some in several)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


def test_a_layer_is_fitted_to_the_mean_of_what_it_computes_in_the_networks():
    """With more inputs than rows differ, least squares by NumPy gives the first layer."""
    networks = [MLP.init(jax.random.key(seed)) for seed in range(2)]
    merged = compact.merge(MLP, networks, inputs=INPUTS, method=None)
    names = list(networks[0])
    first = names[0]
    target = np.mean([INPUTS @ n[first]["kernel"] + n[first]["bias"] for n in networks], axis=0)
    inputs = np.asarray(INPUTS) - np.mean(INPUTS, axis=0)
    fit = np.linalg.lstsq(inputs, target - target.mean(0), rcond=None)[0]
    made = np.asarray(merged.params[first]["kernel"])
    # REPAIR scales every unit of the fit by one factor.
    factors = made / fit
    np.testing.assert_allclose(factors, np.broadcast_to(factors[:1], factors.shape), rtol=1e-2)
    values = [INPUTS @ n[first]["kernel"] + n[first]["bias"] for n in (*networks, merged.params)]
    np.testing.assert_allclose(values[2].mean(0), (values[0] + values[1]).mean(0) / 2, atol=1e-5)
    np.testing.assert_allclose(values[2].std(0), (values[0].std(0) + values[1].std(0)) / 2, rtol=1e-4)


@pytest.mark.slow
def test_merged_digits_are_read_almost_as_well_as_by_the_networks():
    digits = data.load("digits", flatten=True)
    model = models.mlp(digits.input_shape, digits.num_classes, hidden=(32, 32))
    fit = inference.ensemble(num_members=4, epochs=40)(jax.random.key(0), density.target(model, digits.train))
    samples = fit.posterior.samples
    inputs, test = jnp.asarray(digits.train.inputs[:500]), digits.test

    def accuracy(params):
        return float(np.mean(np.argmax(model.apply(params, jnp.asarray(test.inputs)), -1) == test.targets))

    raw = accuracy(compact.merge(model, samples, method=None).params)
    by_weights = accuracy(compact.merge(model, samples).params)
    fitted = compact.merge(model, fit.posterior, inputs=inputs)
    members = [accuracy(tree.take(samples, index)) for index in range(4)]
    assert raw < 0.4
    assert by_weights > 0.8
    assert accuracy(fitted.params) > min(members) - 0.02


def test_barriers_are_those_of_the_lines_between_all_pairs():
    networks = [MLP.init(jax.random.key(seed)) for seed in range(3)]
    batch = (INPUTS, np.arange(64) % 3)
    merged = compact.merge(MLP, networks, inputs=INPUTS, correct=None, barrier=batch)
    aligned = [tree.take(merged.aligned, index) for index in range(3)]
    plain = [evaluate.barrier(MLP.apply, *pair, batch).loss for pair in combinations(aligned, 2)]
    np.testing.assert_allclose(merged.barrier.loss, plain, rtol=1e-5)
    fitted = compact.merge(MLP, networks[:2], inputs=INPUTS, barrier=batch).barrier
    # Each end is fitted to itself.
    np.testing.assert_allclose(fitted.loss[0, [0, -1]], merged.barrier.loss[0, [0, -1]], rtol=1e-3)


def test_bad_input_is_refused_in_one_line():
    good = MLP.init(jax.random.key(0))
    bad = tree.map_named(lambda name, leaf: leaf * jnp.nan if "kernel" in name else leaf, good)
    with pytest.raises(ValueError, match=r"of network 1 has values that are not finite; it cannot be merged"):
        compact.merge(MLP, [good, bad])
    wide = models.mlp((5,), 3, hidden=(8, 9)).init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"network 1: leaf '.*' has shape"):
        compact.merge(MLP, [good, wide])
    with pytest.raises(ValueError, match=r"leaf '.*' has shape"):
        compact.merge(MLP, [wide, wide])
    with pytest.raises(ValueError, match=r"network 0 is a linen module \(Dense\); give its weights"):
        compact.merge(MLP, [nn.Dense(3), nn.Dense(3)])
    with pytest.raises(ValueError, match="network 0 is a path; read it first"):
        compact.merge(MLP, ["weights.pth"])
    with pytest.raises(ValueError, match="expected at least one, got an empty list"):
        compact.merge(MLP, [])
    with pytest.raises(ValueError, match="first axis of every leaf is empty"):
        compact.merge(MLP, jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape)), good))
    with pytest.raises(ValueError, match="method='activations' compares what units compute: pass inputs="):
        compact.merge(MLP, [good, good], method="activations")
    with pytest.raises(ValueError, match="correct='repair' measures what the network computes: pass inputs="):
        compact.merge(MLP, [good, good], correct="repair")
    with pytest.raises(ValueError, match=r"unknown correction 'repiar'; did you mean 'repair'\?"):
        compact.merge(MLP, [good, good], inputs=INPUTS, correct="repiar")
    with pytest.raises(ValueError, match="unknown alignment method 'weight'"):
        compact.merge(MLP, [good, good], method="weight")
    with pytest.raises(ValueError, match="no normalisation by running statistics was found"):
        compact.merge(MLP, [good, good], inputs=INPUTS, correct="statistics")


def test_statistics_without_inputs_are_refused_unless_they_shall_stay():
    model, _ = MODELS["norms"]
    networks = [model.init(jax.random.key(seed)) for seed in range(2)]
    with pytest.raises(ValueError, match=r"needs running statistics of its own .*: pass inputs="):
        compact.merge(model, networks)
    merged = compact.merge(model, networks, method=None, correct=None)
    assert merged.correction == "none"


class Scanned(nn.Module):
    """Two layers with norms in a loop."""

    @nn.compact
    def __call__(self, x, train=False):
        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x, _):
                return nn.relu(nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))), None

        scanned = nn.scan(
            Layer, variable_axes={"params": 0, "batch_stats": 0}, split_rngs={"params": True}, length=2
        )
        return nn.Dense(3)(scanned()(nn.Dense(4)(x), None)[0])


def test_statistics_in_a_loop_are_refused():
    model = models.from_module(Scanned(), (5,))
    networks = [model.init(jax.random.key(seed)) for seed in range(2)]
    with pytest.raises(ValueError, match=r"leaf '.*' is used inside a loop or a branch"):
        compact.merge(model, networks, inputs=INPUTS)


@pytest.mark.slow
def test_published_resnets_are_merged_without_training():
    """Lower bounds a few points under what 300 images gave on the first 1,000 test images."""
    folder = os.environ.get("SYMBNN_DATA_DIR")
    if folder is None:
        pytest.skip("SYMBNN_DATA_DIR is not set")
    files = [
        f"cifar10_resnet20_{name}.safetensors" for name in ("akamaster", "bognev", "lutnn", "zheng-jiakun")
    ]
    cifar = data.load("cifar10", num_train=300, num_test=1_000)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    inputs, test = (jnp.asarray((part.inputs - mean) / std) for part in (cifar.train, cifar.test))
    model = models.resnet20(cifar.input_shape, 10)
    networks = [io.from_torch(model, Path(folder) / "pretrained" / file, "resnet20") for file in files]

    def accuracy(params):
        return float(np.mean(np.argmax(jax.jit(model.apply)(params, test), -1) == cifar.test.targets))

    pair = compact.merge(model, networks[:2], inputs=inputs)
    means = compact.merge(model, pair.aligned, method=None, correct=None).params
    with_statistics = compact.merge(
        model, pair.aligned, inputs=inputs, method=None, correct="statistics"
    ).params
    assert accuracy(means) < 0.3
    assert accuracy(with_statistics) > 0.42
    assert accuracy(pair.params) > 0.75
    assert accuracy(compact.merge(model, networks, inputs=inputs).params) > 0.65


def test_inputs_far_from_zero_are_fitted_as_those_around_it():
    """A year or a pressure: the same networks on shifted inputs, with biases that take the shift out."""
    shift = 1e4
    first, second = (MLP.init(jax.random.key(seed)) for seed in (0, 1))

    def shifted(params):
        layer = params["hidden0"]
        return {**params, "hidden0": layer | {"bias": layer["bias"] - shift * layer["kernel"].sum(0)}}

    near = compact.merge(MLP, [first, second], inputs=INPUTS)
    far = compact.merge(MLP, [shifted(first), shifted(second)], inputs=INPUTS + shift)
    outputs = [MLP.apply(near.params, INPUTS), MLP.apply(far.params, INPUTS + shift)]
    # Inputs of 10,000 are known to a thousandth in single precision.
    np.testing.assert_allclose(*outputs, atol=0.02)
