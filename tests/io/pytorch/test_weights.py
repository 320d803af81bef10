"""Weights go to PyTorch's names and layouts and back, without PyTorch."""

import numpy as np
import pytest

from symbnn import io, models
from tests.io.pytorch.numbered import numbered
from tests.io.same import same

PORTABLE = {
    "mlp": lambda: models.mlp((6,), 3, hidden=(5, 4)),
    "lenet": lambda: models.lenet((16, 20, 1), 3, width=0.5),
    "optunet": lambda: models.optunet((18, 18, 1), 3),
    "resnet18": lambda: models.resnet18((8, 8, 3), 3, width=1 / 16),
    "vit": lambda: models.vit((8, 8, 3), 3, dimension=6, depth=1, num_heads=2, mlp_units=5),
}


@pytest.mark.parametrize("name", PORTABLE)
def test_weights_go_to_pytorch_and_back(tmp_path, name):
    model = PORTABLE[name]()
    params = numbered(model)
    io.save_safetensors(tmp_path / "weights", io.to_torch(model, params, name))
    same(io.from_torch(model, io.load_safetensors(tmp_path / "weights"), name), params)
    io.to_torch(model, params, name, path=tmp_path / "weights.pth")
    same(io.from_torch(model, str(tmp_path / "weights.pth"), name), params)


def test_dense_layers_are_transposed_for_pytorch():
    model = models.mlp((6,), 3, hidden=(5,))
    params = numbered(model)
    exported = io.to_torch(model, params, {"hidden": "a", "out": "b.c"})
    assert exported.keys() == {"a.weight", "a.bias", "b.c.weight", "b.c.bias"}
    np.testing.assert_array_equal(exported["a.weight"], params["hidden"]["kernel"].T)


def test_foreign_state_dicts_are_named(tmp_path):
    model = models.mlp((6,), 3, hidden=(5,))
    state = io.to_torch(model, numbered(model), "mlp")
    with pytest.raises(io.ArtefactError, match=r"missing \['fc2.bias'\], unknown \['extra'\]"):
        io.from_torch(model, {key: state[key] for key in state if key != "fc2.bias"} | {"extra": 1}, "mlp")
    with pytest.raises(
        io.ArtefactError,
        match=r"'fc1.weight' has shape \(5, 7\); 'hidden/kernel' needs \(6, 5\), in PyTorch \(5, 6\)",
    ):
        io.from_torch(model, state | {"fc1.weight": np.zeros((5, 7), np.float32)}, "mlp")
    with pytest.raises(ValueError, match=r"layers \['out'\] of the model have no PyTorch name"):
        io.from_torch(model, state, {"hidden": "fc1"})
    with pytest.raises(ValueError, match="did you mean 'mlp'"):
        io.from_torch(model, state, "mpl")
    (tmp_path / "broken").write_bytes(b"not safetensors")
    with pytest.raises(io.ArtefactError, match="broken: expected a whole safetensors file"):
        io.load_safetensors(tmp_path / "broken")
