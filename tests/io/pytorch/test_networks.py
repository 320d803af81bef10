"""PyTorch's weights in our networks compute what they compute in PyTorch."""

import jax
import numpy as np
import pytest

from symbnn import io, models, tree
from tests.io.pytorch.resnet20 import ResNet20

torch = pytest.importorskip("torch")
nn = torch.nn


def seeded(module, seed=0):
    """Random weights and running statistics, evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if name.endswith(("running_var", "bn1.weight", "bn2.weight", "bn3.weight")):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            elif tensor.is_floating_point():
                fan_in = max(1, tensor[0].numel() if tensor.ndim > 1 else 10)
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * fan_in**-0.5)
    return module.eval()


def assert_same_function(model, module, layers, **settings):
    inputs = np.random.default_rng(0).normal(size=(3, *model.input_shape)).astype(np.float32)
    images = inputs if inputs.ndim == 2 else inputs.transpose(0, 3, 1, 2)
    with torch.no_grad():
        expected = module(torch.from_numpy(np.ascontiguousarray(images))).numpy()
    params = io.from_torch(model, module.state_dict(), layers, **settings)
    found = np.asarray(jax.jit(model.apply)(params, inputs))
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))
    back = io.to_torch(model, params, layers, **settings)
    for name, array in back.items():
        np.testing.assert_array_equal(array, module.state_dict()[name].numpy(), err_msg=name)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in back.items()}, strict=True)


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    """A residual block with the names of torchvision's."""

    def __init__(self, inputs, channels, stride, bottleneck):
        super().__init__()
        outputs = channels * (4 if bottleneck else 1)
        sizes = [(inputs, channels, 1, 1), (channels, channels, 3, stride), (channels, outputs, 1, 1)]
        sizes = sizes if bottleneck else [(inputs, channels, 3, stride), (channels, channels, 3, 1)]
        self.num = len(sizes)
        for index, size in enumerate(sizes, start=1):
            setattr(self, f"conv{index}", convolution(*size))
            setattr(self, f"bn{index}", nn.BatchNorm2d(size[1]))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for index in range(1, self.num + 1):
            y = getattr(self, f"bn{index}")(getattr(self, f"conv{index}")(y))
            y = torch.relu(y) if index < self.num else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, base, imagenet):
        super().__init__()
        self.conv1 = convolution(3, base, *((7, 2) if imagenet else (3, 1)))
        self.bn1 = nn.BatchNorm2d(base)
        self.pool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        inputs = base
        for stage, num in enumerate(blocks):
            layer = []
            for index in range(num):
                stride = 2 if stage > 0 and index == 0 else 1
                layer.append(Block(inputs, base * 2**stage, stride, bottleneck))
                inputs = base * 2**stage * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean(dim=(2, 3)))


def test_perceptron_with_a_map_of_layers():
    module = seeded(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))
    model = models.mlp((6,), 3, hidden=(5,), activation="tanh")
    assert_same_function(model, module, {"hidden": "0", "out": "2"})


@pytest.mark.parametrize("name", ["gelu", "leaky_relu", "elu", "selu", "silu", "softplus", "sigmoid"])
def test_activations_are_those_of_the_same_name(name):
    values = np.linspace(-4, 4, 33, dtype=np.float32)
    expected = getattr(nn.functional, name)(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(models.ACTIVATIONS[name](values), expected, atol=1e-6)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 3 * 4, 120), nn.Linear(120, 84), nn.Linear(84, 5)

    def forward(self, x):
        for layer in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(torch.relu(layer(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(x)))


def test_lenet_with_its_flattened_image():
    # Height, width and channels all differ, so a wrong order of the flattened axes cannot hide.
    assert_same_function(models.lenet((20, 24, 2), 5), seeded(LeNet()), "lenet")


class OptuNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 2, 4, bias=False), nn.Conv2d(2, 10, 5, groups=2, bias=False)
        self.fc1, self.fc2 = nn.Linear(10, 3), nn.Linear(3, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 3)
        x = torch.relu(self.conv2(x)).mean(dim=(2, 3))
        return self.fc2(torch.relu(self.fc1(x)))


def test_optunet():
    assert_same_function(models.optunet((28, 28, 1), 10), seeded(OptuNet()), "optunet")


@pytest.mark.parametrize(("stem", "side"), [("cifar", 16), ("imagenet", 65)])
def test_resnet18(stem, side):
    module = seeded(ResNet((2, 2, 2, 2), False, 4, stem == "imagenet"))
    assert_same_function(models.resnet18((side, side, 3), 5, stem=stem, width=1 / 16), module, "resnet18")


@pytest.mark.slow
def test_resnet50():
    module = seeded(ResNet((3, 4, 6, 3), True, 2, True))
    model = models.resnet50((64, 64, 3), 5, stem="imagenet", width=1 / 32)
    assert_same_function(model, module, "resnet50")


def test_resnet20():
    # An odd side: every second position of 13 is not that of 14.
    model = models.resnet20((13, 13, 3), 5, width=0.25)
    assert_same_function(model, seeded(ResNet20(base=4, num_outputs=5)), "resnet20")


def test_the_names_of_common_cifar_code_are_known_too():
    module = seeded(ResNet((2, 2, 2, 2), False, 4, False))
    model = models.resnet18((16, 16, 3), 5, stem="cifar", width=1 / 16)
    renamed = {
        key.replace("downsample", "shortcut").replace("fc.", "linear."): tensor.half()
        for key, tensor in module.state_dict().items()
    }
    params = io.from_torch(model, renamed, "resnet18")
    expected = io.from_torch(model, module.state_dict(), "resnet18")
    for name, leaf in tree.named_leaves(params).items():
        assert leaf.dtype == np.float32
        # Half precision keeps eleven bits.
        np.testing.assert_allclose(leaf, tree.named_leaves(expected)[name], rtol=2**-10, atol=1e-6)


class WideBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, channels, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(channels), convolution(channels, channels, 3)
        self.convShortcut = convolution(inputs, channels, 1, stride) if inputs != channels else None

    def forward(self, x):
        activated = torch.relu(self.bn1(x))
        y = self.conv2(torch.relu(self.bn2(self.conv1(activated))))
        return y + (x if self.convShortcut is None else self.convShortcut(activated))


class WideStage(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        rest = [WideBlock(channels, channels, 1) for _ in range(3)]
        self.layer = nn.Sequential(WideBlock(inputs, channels, stride), *rest)

    def forward(self, x):
        return self.layer(x)


class WideResNet(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.conv1 = convolution(3, 16, 3)
        self.block1 = WideStage(16, widths[0], 1)
        self.block2 = WideStage(widths[0], widths[1], 2)
        self.block3 = WideStage(widths[1], widths[2], 2)
        self.bn1, self.fc = nn.BatchNorm2d(widths[2]), nn.Linear(widths[2], 5)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(torch.relu(self.bn1(x)).mean(dim=(2, 3)))


@pytest.mark.slow
def test_wide_resnet():
    model = models.wrn28_10((8, 8, 3), 5, width=0.0125)
    assert_same_function(model, seeded(WideResNet((2, 4, 8))), "wrn28_10")


class EncoderBlock(nn.Module):
    def __init__(self, dimension, heads, units):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dimension, eps=1e-6), nn.LayerNorm(dimension, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(dimension, heads, batch_first=True)
        parts = (nn.Linear(dimension, units), nn.GELU(), nn.Identity(), nn.Linear(units, dimension))
        self.mlp = nn.Sequential(*parts)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, tokens, dimension, heads, units, depth):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens, dimension))
        blocks = {f"encoder_layer_{index}": EncoderBlock(dimension, heads, units) for index in range(depth)}
        self.layers = nn.ModuleDict(blocks)
        self.ln = nn.LayerNorm(dimension, eps=1e-6)

    def forward(self, x):
        x = x + self.pos_embedding
        for block in self.layers.values():
            x = block(x)
        return self.ln(x)


class VisionTransformer(nn.Module):
    def __init__(self, tokens, dimension, heads, units, depth):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, dimension, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dimension))
        self.encoder = Encoder(tokens + 1, dimension, heads, units, depth)
        self.heads = nn.ModuleDict({"head": nn.Linear(dimension, 5)})

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        return self.heads["head"](self.encoder(x)[:, 0])


def test_vision_transformer():
    model = models.vit((8, 12, 3), 5, patch=4, dimension=12, depth=2, num_heads=3, mlp_units=10)
    assert_same_function(model, seeded(VisionTransformer(6, 12, 3, 10, 2)), "vit")
