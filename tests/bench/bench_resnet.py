"""ResNet-20 on 32 x 32 images against PyTorch: a step of training and an evaluation, on the same cores.

`python -m tests.bench resnet`, where PyTorch is installed (`pip install -e ".[torch]"`). Both sides run in
processes of their own, in turns, with memory in large pages as the documentation advises, which makes both
faster; ours with a CPU device for every core, as the command line of a study does.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax

from symbnn import density, evaluate, inference, models
from tests.bench import Row, processes

MODULE = "tests.bench.bench_resnet"
CORES = os.cpu_count() or 1
BATCH, STEPS, EPOCHS, EVALUATED = 128, 8, 4, 1_024
MOST = 1.2
"""Times PyTorch's."""


def rows() -> Iterator[Row]:
    """Two ratios."""
    if importlib.util.find_spec("torch") is None:
        print("no rows of ResNet-20 against PyTorch: torch not installed", flush=True)
        return
    given: Any = {"devices": CORES, "environment": processes.LARGE_PAGES}
    rounds = np.array(
        [[processes.ask(MODULE, side, BATCH, **given) for side in ("ours", "torch")] for _ in range(2)]
    )
    for index, what in enumerate(
        (f"step of training on {BATCH} images", f"evaluation of {EVALUATED:,} images")
    ):
        ours, theirs = np.median(rounds[:, :, index], axis=0)
        ratio = float(np.median(rounds[:, 0, index] / rounds[:, 1, index]))
        yield Row(
            f"ResNet-20, {what}: ours / PyTorch's",
            MOST,
            ratio,
            "x",
            ratio <= MOST,
            f"{ours:.3f} against {theirs:.3f} s, medians of two processes each in turns",
        )


def measure_ours(batch_size: int) -> tuple[float, float]:
    """Seconds of a step and of an evaluation."""
    images, labels = _data(batch_size * STEPS)
    target = density.target(models.resnet20((32, 32, 3), 10), density.Batch(images, labels))
    seen: list[float] = []
    train = inference.ensemble(
        num_members=1,
        epochs=EPOCHS,
        batch_size=batch_size,
        optimizer=optax.sgd(0.1, momentum=0.9),
        objective="mle",
        progress=lambda _: seen.append(time.perf_counter()),
    )
    networks = train(jax.random.key(0), target).posterior.samples
    some = _data(EVALUATED)[0]
    evaluated = _least(lambda: jax.block_until_ready(evaluate.predict(target.model.apply, networks, some)), 3)
    return min(np.diff(seen)) / STEPS, evaluated


def measure_torch(batch_size: int) -> tuple[float, float]:
    """The same in PyTorch, as one writes it."""
    import torch

    torch.set_num_threads(CORES)
    network, (images, labels) = torch_resnet20(), _data(batch_size * STEPS)
    given, wanted = torch.tensor(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels).long()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)

    def epoch() -> None:
        for chosen in torch.randperm(len(given)).split(batch_size):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(given[chosen]), wanted[chosen]).backward()
            optimizer.step()

    trained = _least(epoch, EPOCHS - 1) / STEPS
    network.eval()
    some = torch.tensor(_data(EVALUATED)[0]).permute(0, 3, 1, 2).contiguous()
    with torch.no_grad():
        return trained, _least(lambda: [torch.softmax(network(part), 1) for part in some.split(128)], 3)


def torch_resnet20() -> Any:
    """He et al.'s network for CIFAR, with shortcuts without parameters."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(channels)
            self.stride, self.more = stride, (channels - before) // 2

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
            kept = x[:, :, :: self.stride, :: self.stride]
            return torch.relu(y + nn.functional.pad(kept, (0, 0, 0, 0, self.more, self.more)))

    stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
    blocks = [
        Block(before if index == 0 else channels, channels, stride if index == 0 else 1)
        for before, channels, stride in stages
        for index in range(3)
    ]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _data(number: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    images = random.normal(size=(number, 32, 32, 3)).astype(np.float32)
    return images, random.integers(10, size=number).astype(np.int32)


def _least(function: Callable[[], Any], repeats: int) -> float:
    """Of several times, after one that compiles."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    processes.answer({"ours": measure_ours, "torch": measure_torch})
