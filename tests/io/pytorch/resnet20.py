"""He et al.'s ResNet-20 for CIFAR in PyTorch, with the names of the common code."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


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
    def __init__(self, base=16, num_outputs=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, base, 3, 1, 1, bias=False), nn.BatchNorm2d(base)
        inputs = base
        for stage, channels in enumerate((base, 2 * base, 4 * base), start=1):
            blocks = [
                Block(inputs if i == 0 else channels, channels, 2 if stage > 1 and i == 0 else 1)
                for i in range(3)
            ]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            inputs = channels
        self.linear = nn.Linear(4 * base, num_outputs)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))
