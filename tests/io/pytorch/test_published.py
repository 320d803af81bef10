"""Four ResNet-20s that others trained on CIFAR-10 compute here what they compute in PyTorch.

Set `SYMBNN_DATA_DIR` to a folder with `pretrained/` and `cifar10/`.
"""

import os
from collections import OrderedDict
from pathlib import Path

import jax
import numpy as np
import pytest

from symbnn import data, evaluate, io, models
from tests.io.pytorch.resnet20 import ResNet20

torch = pytest.importorskip("torch")

FOLDER = Path(os.environ.get("SYMBNN_DATA_DIR", "nowhere"))
# File -> accuracy on the 10,000 test images, measured in PyTorch by whoever collected them.
PUBLISHED = {"akamaster": 0.9173, "bognev": 0.9137, "lutnn": 0.9162, "zheng-jiakun": 0.9200}
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

pytestmark = pytest.mark.skipif(
    not (FOLDER / "pretrained").exists() or not (FOLDER / "cifar10").exists(),
    reason="no pretrained and cifar10 under SYMBNN_DATA_DIR",
)


@pytest.fixture(scope="module")
def images_and_labels():
    part = data.load("cifar10", data_dir=FOLDER, test_only=True).test
    return (np.asarray(part.inputs) - MEAN) / STD, np.asarray(part.targets)


def source(name):
    return FOLDER / "pretrained" / f"cifar10_resnet20_{name}.safetensors"


def torch_logits(module, images):
    with torch.no_grad():
        return module(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))).numpy()


def with_weights(state):
    module = ResNet20()
    module.load_state_dict({key: torch.from_numpy(array) for key, array in state.items()}, strict=True)
    return module.eval()


def assert_same_keys(exported, state):
    """Keys in order, shapes and dtypes; counters too."""
    expected = {key: (tuple(tensor.shape), str(tensor.dtype)) for key, tensor in state.items()}
    found = {key: (array.shape, f"torch.{array.dtype}") for key, array in exported.items()}
    assert list(found.items()) == list(expected.items())


def test_logits_are_those_of_pytorch_and_weights_go_back(images_and_labels, tmp_path):
    images = images_and_labels[0][:64]
    model = models.resnet20((32, 32, 3), 10)
    expected = torch_logits(with_weights(io.load_torch(source("akamaster"))), images)
    params = io.from_torch(model, source("akamaster"))
    np.testing.assert_allclose(jax.jit(model.apply)(params, images), expected, atol=1e-4)
    exported = io.to_torch(model, params, "resnet20", path=tmp_path / "back.pth")
    assert_same_keys(exported, ResNet20().state_dict())
    np.testing.assert_array_equal(torch_logits(with_weights(exported), images), expected)
    # As training scripts on several devices keep it, and back.
    kept = torch.load(tmp_path / "back.pth", weights_only=True)
    wrapped = OrderedDict((f"module.{key}", tensor) for key, tensor in kept.items())
    torch.save({"state_dict": wrapped, "best_prec1": torch.tensor(91.7)}, tmp_path / "checkpoint.th")
    again = io.from_torch(model, tmp_path / "checkpoint.th")
    jax.tree.map(np.testing.assert_array_equal, again, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_and_accuracies_are_the_published_ones(images_and_labels, name):
    images, labels = images_and_labels
    model = models.resnet20((32, 32, 3), 10)
    params = io.from_torch(model, source(name))
    apply = jax.jit(model.apply)
    logits = np.concatenate([apply(params, images[start : start + 1000]) for start in range(0, 10_000, 1000)])
    expected = torch_logits(with_weights(io.load_torch(source(name))), images[:1000])
    np.testing.assert_allclose(logits[:1000], expected, atol=1e-4)
    assert round(float(evaluate.accuracy(jax.nn.softmax(logits), labels)), 4) == PUBLISHED[name]
    exported = io.to_torch(model, params, "resnet20")
    assert_same_keys(exported, ResNet20().state_dict())
    np.testing.assert_array_equal(torch_logits(with_weights(exported), images[:1000]), expected)
