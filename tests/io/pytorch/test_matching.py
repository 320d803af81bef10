"""Without a map of layers names and shapes decide, or nobody does."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from symbnn import io, models, tree
from tests.io.pytorch.numbered import numbered
from tests.io.same import same


def renamed(state, names):
    """A state dict whose layers have other names, in the order of `names`, as PyTorch's own are."""
    return OrderedDict(
        (f"{new}.{key.rpartition('.')[2]}", array)
        for old, new in names.items()
        for key, array in state.items()
        if key.rpartition(".")[0] == old
    )


SQUARE = models.mlp((5,), 5, hidden=(5, 5, 5))
SQUARE_PARAMS = numbered(SQUARE)
OWN = ("hidden0", "hidden1", "hidden2", "out")


def own_names(params=SQUARE_PARAMS, model=SQUARE):
    return io.to_torch(model, params)


def test_names_of_ours_are_the_default():
    state = own_names()
    assert list(state) == [f"{layer}.{kind}" for layer in OWN for kind in ("weight", "bias")]
    same(io.from_torch(SQUARE, state), SQUARE_PARAMS)


NETWORKS = {
    "mlp": lambda: models.mlp((6,), 6, hidden=(6, 6)),
    "lenet": lambda: models.lenet((16, 20, 1), 3, width=0.5),
    "optunet": lambda: models.optunet((18, 18, 1), 3),
    "resnet20": lambda: models.resnet20((8, 8, 3), 3, width=0.25),
    "vit": lambda: models.vit((8, 8, 3), 3, dimension=6, depth=1, num_heads=2, mlp_units=6),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_code_bases_are_recognised_by_their_names(name):
    model = NETWORKS[name]()
    params = numbered(model)
    state = io.to_torch(model, params, name)
    same(io.from_torch(model, state), params)
    # Sorted, as safetensors have it, and wrapped, as training on several devices and compiling leave it.
    wrapped = {f"module._orig_mod.{key}": state[key] for key in sorted(state)}
    same(io.from_torch(model, {"epoch": 3, "state_dict": wrapped}), params)
    same(io.from_torch(model, wrapped, name), params)


@pytest.mark.parametrize(
    "names",
    [
        ("0", "2", "4", "10"),
        ("fc1", "fc2", "fc3", "fc4"),
        ("net.layers.0.linear", "net.layers.1.linear", "net.layers.9.linear", "net.layers.11.linear"),
    ],
)
def test_numbered_layers_are_taken_in_order(names):
    state = renamed(own_names(), dict(zip(OWN, names, strict=True)))
    same(io.from_torch(SQUARE, state), SQUARE_PARAMS)
    same(io.from_torch(SQUARE, {key: state[key] for key in sorted(state)}), SQUARE_PARAMS)


def test_numbers_against_the_order_of_definition_are_refused():
    state = renamed(own_names(), dict(zip(OWN, ("lin1", "lin3", "lin2", "lin4"), strict=True)))
    with pytest.raises(io.ArtefactError, match="names that do not tell their order"):
        io.from_torch(SQUARE, state)


def test_layers_of_the_same_shapes_with_other_names_are_refused():
    names = dict(zip(OWN, ("alpha", "beta", "gamma", "delta"), strict=True))
    state = renamed(own_names(), names)
    with pytest.raises(
        io.ArtefactError,
        match=r"4 layers have the same shapes.*layers=\{'hidden0': 'alpha', 'hidden1': 'beta'",
    ):
        io.from_torch(SQUARE, state)
    same(io.from_torch(SQUARE, state, names), SQUARE_PARAMS)
    same(io.to_torch(SQUARE, SQUARE_PARAMS, names, like=state), dict(state))


class Residual(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=True)(linen.Conv(4, (3, 3))(x))
        for _ in range(2):
            y = linen.BatchNorm(use_running_average=True)(linen.Conv(4, (3, 3))(linen.relu(x)))
            x = x + y
        return linen.Dense(3)(x.mean(axis=(1, 2)))


RESIDUAL = {
    "Conv_0": "stem.conv1",
    "BatchNorm_0": "stem.bn1",
    "Conv_1": "layer1.0.conv1",
    "BatchNorm_1": "layer1.0.bn1",
    "Conv_2": "layer1.1.conv1",
    "BatchNorm_2": "layer1.1.bn1",
    "Dense_0": "fc",
}


def test_names_that_end_alike_are_taken_in_the_order_of_definition():
    model = models.from_module(Residual(), (8, 8, 4))
    params = numbered(model)
    state = renamed(io.to_torch(model, params), RESIDUAL)
    same(io.from_torch(model, state), params)
    assert io.to_torch(model, params, like=state).keys() == state.keys()
    # A plain dict may have any order: here the blocks would be exchanged with the stem.
    with pytest.raises(io.ArtefactError, match="names that do not tell their order"):
        io.from_torch(model, {key: state[key] for key in sorted(state)})
    same(io.from_torch(model, {key: state[key] for key in sorted(state)}, RESIDUAL), params)


def test_single_leaves_may_be_mapped():
    def apply(params, x):
        return jnp.maximum(x @ params["w"], params["floor"])

    model = models.Model(
        lambda key: {"w": jnp.zeros((3, 3)), "floor": jnp.zeros(3)}, apply, SQUARE.spec, None, (3,)
    )
    state = {"first.matrix": np.arange(9, dtype=np.float32).reshape(3, 3), "b": np.ones(3, np.float32)}
    layers = {"w": "first.matrix", "floor": "b"}
    with pytest.raises(ValueError, match=r"layers \['floor'\] of the model have no PyTorch name"):
        io.from_torch(model, state, {"w": "first.matrix"})
    found = io.from_torch(model, state, layers)
    np.testing.assert_array_equal(found["w"], state["first.matrix"].T)
    same(io.to_torch(model, found, layers), state)


def test_packed_projections_need_one_name_for_all_three():
    model = NETWORKS["vit"]()
    params = numbered(model)
    separate = io.to_torch(model, params)
    assert separate["block0.attention.query.weight"].shape == (6, 6)
    same(io.from_torch(model, separate), params)
    packed = io.to_torch(model, params, "vit")
    prefix = "encoder.layers.encoder_layer_0.self_attention"
    np.testing.assert_array_equal(
        packed[f"{prefix}.in_proj_weight"],
        np.concatenate([separate[f"block0.attention.{part}.weight"] for part in ("query", "key", "value")]),
    )
    assert packed["class_token"].shape == (1, 1, 6)
    assert packed["encoder.pos_embedding"].shape == (1, 5, 6)


def test_another_architecture_is_told_briefly():
    wider = models.mlp((5,), 5, hidden=(5, 5))
    with pytest.raises(
        io.ArtefactError,
        match=r"of weight \(5, 5\) and bias \(5,\) the model has 3 \('hidden0'\), the state dict 4",
    ):
        io.from_torch(wider, own_names())
    other = models.resnet20((8, 8, 3), 3, width=0.25)
    with pytest.raises(io.ArtefactError, match="is not of this model") as error:
        io.from_torch(other, own_names())
    assert len(str(error.value)) < 700


def test_running_statistics_come_with_counts():
    model = models.resnet20((8, 8, 3), 3, width=0.25)
    exported = io.to_torch(model, numbered(model), "resnet20")
    counters = {key: array for key, array in exported.items() if key.endswith("num_batches_tracked")}
    assert len(counters) == 19
    assert all(array.dtype == np.int64 and array.shape == () for array in counters.values())
    assert list(exported)[:6] == [
        "conv1.weight",
        *(f"bn1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
    ]
    like = {
        key: array + 7 if key in counters else array.astype(np.float16) for key, array in exported.items()
    }
    again = io.to_torch(model, numbered(model), like=like)
    assert {key: array.dtype for key, array in again.items()} == {k: a.dtype for k, a in like.items()}
    assert again["bn1.num_batches_tracked"] == 7


def test_exported_arrays_are_the_users_own():
    exported = own_names()
    for array in exported.values():
        array += 1
    same(own_names(), {key: array - 1 for key, array in exported.items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out.bias": np.arange(5)}, r"'out.bias' has dtype int64; the model has float32"),
        ({"out.bias": np.ones(5, np.complex64)}, r"'out.bias' has dtype complex64"),
        ({"out.bias": np.full(5, 1e300)}, r"'out.bias' has numbers that are too large for float32"),
    ],
)
def test_numbers_that_are_no_weights_are_refused(change, message):
    with pytest.raises(io.ArtefactError, match=message):
        io.from_torch(SQUARE, own_names() | change)


def test_precision_may_change():
    for dtype in (np.float16, np.float64, jnp.bfloat16):
        found = io.from_torch(SQUARE, {key: array.astype(dtype) for key, array in own_names().items()})
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
        np.testing.assert_allclose(found["out"]["bias"], SQUARE_PARAMS["out"]["bias"], rtol=2**-8)


def test_what_is_no_source_is_named(tmp_path):
    for source, kind in ((None, "NoneType"), (3, "int"), (np.ones(3), "ndarray"), ([1], "list")):
        with pytest.raises(ValueError, match=f"expected a state dict, the path of a file, .* got a {kind}"):
            io.from_torch(SQUARE, source)
    for source in ({}, {"epoch": 3}, {"optimizer": {"state": {}}}):
        with pytest.raises(io.ArtefactError, match="state dict: expected a PyTorch state dict, names with"):
            io.from_torch(SQUARE, source)
    with pytest.raises(io.ArtefactError, match=r"absent.pth: expected a PyTorch state dict.*found nothing"):
        io.from_torch(SQUARE, str(tmp_path / "absent.pth"))
    with pytest.raises(ValueError, match=r"layers has \['hiden0'\], which the model has not"):
        io.from_torch(SQUARE, own_names(), {"hiden0": "fc1"})
    with pytest.raises(ValueError, match=r"layers maps 2 leaves to 'fc.weight'; give each a name of its own"):
        io.from_torch(SQUARE, own_names(), dict(zip(OWN, ("fc", "fc", "a", "b"), strict=True)))
    with pytest.raises(ValueError, match=r"params: leaf 'hidden0/bias' has shape \(2, 5\); expected \(5,\)"):
        io.to_torch(SQUARE, tree.stack([SQUARE_PARAMS] * 2))
