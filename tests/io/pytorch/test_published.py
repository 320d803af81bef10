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

torch = pytest.importorskip("torch")
nn = torch.nn

FOLDER = Path(os.environ.get("SYMBNN_DATA_DIR", "nowhere"))
# File -> accuracy on the 10,000 test images, measured in PyTorch by whoever collected them.
PUBLISHED = {"akamaster": 0.9173, "bognev": 0.9137, "lutnn": 0.9162, "zheng-jiakun": 0.9200}
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

pytestmark = pytest.mark.skipif(
    not (FOLDER / "pretrained").exists() or not (FOLDER / "cifar10").exists(),
    reason="no pretrained and cifar10 under SYMBNN_DATA_DIR",
)


class Block(nn.Module):
    """The paper's option A: every second position, and zeros around the channels."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.zeros = stride, (channels - inputs) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return torch.relu(y + nn.functional.pad(shortcut, (0, 0, 0, 0, self.zeros, self.zeros)))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        inputs = 16
        for stage, channels in enumerate((16, 32, 64), start=1):
            blocks = [
                Block(inputs if i == 0 else channels, channels, 2 if stage > 1 and i == 0 else 1)
                for i in range(3)
            ]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            inputs = channels
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


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


def test_parameters_are_those_of_the_published_network():
    module = ResNet20()
    model = models.resnet20((32, 32, 3), 10)
    params = jax.eval_shape(model.init, jax.random.key(0))
    count = sum(parameter.numel() for parameter in module.parameters())
    assert sum(leaf.size for leaf in jax.tree.leaves(params["params"])) == count


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
