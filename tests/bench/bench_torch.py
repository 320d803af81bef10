"""Against PyTorch and torchmetrics, where they are installed: `pip install -e ".[torch]"`.

The same networks, data, log-densities and probabilities on the same cores; values are compared before times.
hamiltorch is on no package registry: its HMC (Cobb & Jalaian 2021) is a port, step for step.
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from symbnn import density, evaluate
from tests.bench import Row
from tests.bench.bench_inference import STEPS, in_turns, network, trajectory

STEP_SIZE = 1e-6
Trajectory = Callable[[density.Target, int], Callable[[], None]]


def rows() -> Iterator[Row]:
    """Leapfrog steps of two networks, and metrics."""
    missing = [name for name in ("torch", "torchmetrics") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"no rows against PyTorch: {' and '.join(missing)} not installed", flush=True)
        return
    small = "64-32-10, 1,297 points", network(64, 32, 1_297), STEPS
    large = "784-512-10, 60,000 points", network(784, 512, 60_000), 2
    yield leapfrog_row(*small, torch_trajectory)
    yield leapfrog_row(*small, hamiltorch_trajectory)
    yield leapfrog_row(*large, torch_trajectory)
    yield metrics_row()


def leapfrog_row(name: str, target: density.Target, num_steps: int, written: Trajectory) -> Row:
    """A trajectory of full-batch HMC against one in eager PyTorch."""
    times = in_turns(trajectory(target, num_steps), written(target, num_steps))
    ours, theirs = (1e3 * float(np.median(one)) / num_steps for one in times)
    ratio = float(np.median(times[1] / times[0]))
    note = f"{ours:.3g} against {theirs:.3g} ms a step, float32, the same cores"
    return Row(f"{NAMES[written]} / ours, {name}", 1.0, ratio, "x", ratio >= 1.0, note)


def torch_trajectory(target: density.Target, num_steps: int) -> Callable[[], None]:
    """One trajectory as one writes it, on the same network, data and prior."""
    import torch

    start = target.init(jax.random.key(0))
    params = [torch.tensor(np.asarray(leaf)) for leaf in _layers(start)]
    inputs, labels = torch.tensor(target.data.inputs), torch.tensor(target.data.targets).long()

    def log_density(kernel0: Any, bias0: Any, kernel1: Any, bias1: Any) -> Any:
        logits = torch.relu(inputs @ kernel0 + bias0) @ kernel1 + bias1
        prior = sum(torch.sum(leaf**2) for leaf in (kernel0, bias0, kernel1, bias1))
        return -torch.nn.functional.cross_entropy(logits, labels, reduction="sum") - 0.5 * prior

    def with_constant() -> Any:
        count = sum(leaf.numel() for leaf in params)
        return log_density(*params) - 0.5 * count * np.log(2 * np.pi)

    _check_equal(with_constant, target, start)

    def gradient(position: list[Any]) -> tuple[Any, ...]:
        leaves = [leaf.detach().requires_grad_() for leaf in position]
        return torch.autograd.grad(log_density(*leaves), leaves)

    def run() -> None:
        position, slope = [leaf.clone() for leaf in params], gradient(params)
        momentum = [torch.zeros_like(leaf) for leaf in params]
        for _ in range(num_steps):
            torch._foreach_add_(momentum, slope, alpha=STEP_SIZE / 2)
            torch._foreach_add_(position, momentum, alpha=STEP_SIZE)
            slope = gradient(position)
            torch._foreach_add_(momentum, slope, alpha=STEP_SIZE / 2)

    return run


def hamiltorch_trajectory(target: density.Target, num_steps: int) -> Callable[[], None]:
    """One transition of hamiltorch's `sample`: flat weights, a distribution object for the prior of every
    array, all states of the trajectory kept, and an energy before and after."""
    import torch

    start = target.init(jax.random.key(0))
    arrays = [torch.tensor(np.asarray(leaf)) for leaf in _layers(start)]
    flat, sizes = torch.cat([array.flatten() for array in arrays]), [array.numel() for array in arrays]
    inputs, labels = torch.tensor(target.data.inputs), torch.tensor(target.data.targets).long()
    priors = [torch.distributions.Normal(torch.zeros(()), torch.ones(())) for _ in arrays]
    momenta = torch.distributions.Normal(torch.zeros_like(flat), torch.ones_like(flat))

    def log_density(position: Any) -> Any:
        parts = position.split(sizes)
        prior = sum(law.log_prob(part).sum() for law, part in zip(priors, parts, strict=True))
        shaped = [part.view_as(array) for part, array in zip(parts, arrays, strict=True)]
        logits = torch.relu(inputs @ shaped[0] + shaped[1]) @ shaped[2] + shaped[3]
        return prior - torch.nn.functional.cross_entropy(logits, labels, reduction="sum")

    _check_equal(lambda: log_density(flat), target, start)

    def gradient(position: Any) -> Any:
        position = position.detach().requires_grad_()
        return torch.autograd.grad(log_density(position), position)[0]

    def energy(position: Any, momentum: Any) -> float:
        return float(0.5 * momentum @ momentum - log_density(position))

    def run() -> None:
        position, momentum = flat.clone(), momenta.sample()
        with torch.no_grad():
            before = energy(position, momentum)
        positions, kicked = [], []
        momentum = momentum + 0.5 * STEP_SIZE * gradient(position)
        for _ in range(num_steps):
            position = position + STEP_SIZE * momentum
            slope = gradient(position)
            momentum = momentum + STEP_SIZE * slope
            positions.append(position.clone())
            kicked.append(momentum.clone())
        kicked[-1] = kicked[-1] - 0.5 * STEP_SIZE * slope
        with torch.no_grad():
            after = energy(positions[-1], kicked[-1])
        assert abs(after - before) < 1 + 1e-4 * abs(before)

    return run


def metrics_row() -> Row:
    """Accuracy, calibration and AUROC of 10,000 inputs and 1,000 classes, checks of the input included."""
    import torch
    from torchmetrics.functional import accuracy, calibration_error
    from torchmetrics.functional.classification import binary_auroc

    probs = jax.nn.softmax(3.0 * jax.random.normal(jax.random.key(0), (10_000, 1000)))
    labels = jax.random.randint(jax.random.key(1), (10_000,), 0, 1000)
    inside, outside = evaluate.entropy_score(probs), evaluate.max_probability_score(probs) + 1.0

    def ours() -> list[jax.Array]:
        values = [metric(probs, labels) for metric in (evaluate.accuracy, evaluate.ece)]
        return [*values, evaluate.auroc(inside, outside)]

    torch_probs, torch_labels = torch.tensor(np.asarray(probs)), torch.tensor(np.asarray(labels)).long()
    # AUROC squashes scores outside [0, 1] by a sigmoid, which would merge close ones: give it ranks.
    both = np.concatenate([inside, outside])
    ranks = torch.tensor(np.unique(both, return_inverse=True)[1] / (2 * len(both)))
    is_outside = torch.tensor(np.repeat([0, 1], 10_000))
    task = {"task": "multiclass", "num_classes": 1000}

    def theirs() -> list[Any]:
        return [
            accuracy(torch_probs, torch_labels, average="micro", **task),
            calibration_error(torch_probs, torch_labels, n_bins=15, norm="l1", **task),
            binary_auroc(ranks, is_outside),
        ]

    np.testing.assert_allclose([float(v) for v in ours()], [float(v) for v in theirs()], atol=1e-4)
    times = in_turns(ours, theirs, rounds=25)
    taken, other = map(float, np.median(times, axis=1))
    ratio = float(np.median(times[1] / times[0]))
    return Row(
        "torchmetrics / ours: accuracy, ECE and AUROC of 10,000 x 1,000 probabilities",
        1.0,
        ratio,
        "x",
        ratio >= 1.0,
        f"{1e3 * taken:.1f} against {1e3 * other:.1f} ms, checks included; values agree to 1e-4",
    )


def _check_equal(theirs: Callable[[], Any], target: density.Target, params: Any) -> None:
    """Both sides must compute the same log-density."""
    import torch

    with torch.no_grad():
        found = float(theirs())
    np.testing.assert_allclose(found, float(target.log_density(params)), rtol=1e-4)


def _layers(params: Any) -> list[jax.Array]:
    return [params[layer][leaf] for layer in ("hidden", "out") for leaf in ("kernel", "bias")]


NAMES: dict[Trajectory, str] = {
    torch_trajectory: "PyTorch's leapfrog step",
    hamiltorch_trajectory: "hamiltorch's leapfrog step",
}
