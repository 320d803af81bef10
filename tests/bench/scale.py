"""Runs that this machine cannot make, planned: `python -m tests.bench.scale` writes `results/scale.md`.

Operations, bytes and memory are XLA's own counts of the programs, compiled here for one device's share of the
work. Time on another device is

    max(operations / (efficiency · its rate), bytes / its bandwidth)

where the efficiency is that of the same program here, over the rate of a plain matrix product here. Rates of
devices are their makers'. What is not counted: waiting for the network between devices, and the start.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from symbnn import density, models, tree
from tests.accelerators.host import HOST
from tests.bench import bench_zoo, processes, through_host
from tests.bench.__main__ import processor
from tests.bench.bench_inference import OPERATIONS_PER_PRODUCT, in_turns, products

RESULT = Path(__file__).parents[2] / "results" / "scale.md"
NUM_PRODUCTS = 20
GIGA, MEGA = 1e9, 1e6
# HMC of Izmailov et al. (2021) on CIFAR-10: chains, draws of each, leapfrog steps of a draw, devices.
CHAINS, DRAWS, STEPS, DEVICES, IMAGES = 3, 240, 70_000, 512, 50_000
NUM_ALIGNED, NUM_TRIED = 1_000, 4
NUM_ZOO, EPOCHS, BATCH, ZOO_IMAGES = 1_000_000, 60, 64, 60_000
Shares = dict[str, dict[str, float]]
"""As `through_host` measures them."""


class Device(NamedTuple):
    """What a maker says of a device."""

    name: str
    rate: float
    """Operations a second of matrix products, in the precision that XLA takes for float32 by default."""
    bandwidth: float
    """Bytes a second of its memory."""
    memory: float
    """Bytes."""


# A core of TPU v3 multiplies in bfloat16, an A100 in TF32.
TPU = Device("TPU v3 core", 61.5e12, 450e9, 16e9)
GPU = Device("A100", 156e12, 1.55e12, 40e9)


class Counted(NamedTuple):
    """A program for one device."""

    operations: float
    bytes: float
    memory: float
    """Arguments, results and what lies between."""
    seconds: float
    """Here."""

    def efficiency(self, rate: float) -> float:
        """Share of the rate of a matrix product that it reaches here."""
        return self.operations / self.seconds / rate

    def on(self, device: Device, rate: float) -> float:
        """Seconds on another device."""
        return max(self.operations / (self.efficiency(rate) * device.rate), self.bytes / device.bandwidth)


def gradient(model: models.Model, num_inputs: int, input_shape: tuple[int, ...]) -> Counted:
    """The gradient of the log-density at so many images, without a loop."""
    inputs = jax.random.normal(jax.random.key(0), (num_inputs, *input_shape))
    batch = density.Batch(inputs, np.zeros(num_inputs, np.int32))
    target = density.target(model, batch, chunk_size=num_inputs)
    params = model.init(jax.random.key(1))
    compiled = jax.jit(jax.value_and_grad(target.log_density)).lower(params).compile()
    costs, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    (times,) = in_turns(lambda: compiled(params))
    held = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    images = inputs.nbytes
    return Counted(costs["flops"], costs["bytes accessed"], held + images, float(np.median(times)))


def page(rate: float, parts: list[str]) -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Past this machine",
            "",
            "`python -m tests.bench.scale`. Plans, not measurements: operations, bytes and memory are XLA's "
            "own counts of the programs for one device's share of the work, compiled here; the time on "
            "another device is the larger of operations over (efficiency here x its rate) and bytes over its "
            "bandwidth. The efficiency is that of the same program here, over a plain matrix product. "
            "Waiting for the network between devices is not counted. Rates as their makers give them: "
            + "; ".join(map(described, (TPU, GPU)))
            + ".",
            "",
            f"Here: {processor()}, two threads, matrix product {rate / GIGA:.0f} GFLOP/s.",
            "",
            *parts,
        ]
    )


def sampling(rate: float) -> list[str]:
    """HMC by the published plan, of a network without their biases of convolutions."""
    share = -(-IMAGES // DEVICES)
    model = models.resnet20_frn((32, 32, 3), 10)
    one = gradient(model, share, (32, 32, 3))
    weights = tree.num_weights(jax.eval_shape(model.init, jax.random.key(0)))
    gradients = CHAINS * DRAWS * STEPS
    rows = [
        ("images of a device", f"{share}"),
        ("operations of a gradient, one device", f"{one.operations / GIGA:.1f} GFLOP"),
        ("bytes moved by it", f"{one.bytes / MEGA:,.0f} MB"),
        ("memory of a device", f"{one.memory / MEGA:,.0f} MB"),
        ("sum of gradients over devices, each step", f"{4 * weights / MEGA:.1f} MB ({weights:,} weights)"),
        ("gradients in all", f"{gradients:,} ({gradients / MEGA:.0f} million epochs)"),
        ("operations in all", f"{gradients * one.operations * DEVICES:.2g}"),
        (
            "efficiency here",
            f"{one.efficiency(rate):.2f} ({1e3 * one.seconds:.0f} ms a gradient of one share)",
        ),
    ]
    for device in (TPU, GPU):
        step = one.on(device, rate)
        bound = "bytes" if step == one.bytes / device.bandwidth else "operations"
        rows.append(
            (
                f"{DEVICES} x {device.name}",
                f"{1e3 * step:.2f} ms a step (bound by {bound}), {duration(step * STEPS)} a draw, "
                f"{duration(step * gradients)} for all",
            )
        )
    rows.append(("this machine", duration(one.seconds * DEVICES * gradients)))
    return [
        f"## HMC of ResNet-20-FRN on CIFAR-10, {CHAINS} chains, {DRAWS} draws of {STEPS:,} leapfrog steps, "
        f"{DEVICES} devices, as published",
        "",
        "Theirs has biases in its convolutions too, 274,042 weights in all.",
        "",
        *table(rows),
        "```python",
        "placement = inference.Placement(data_shards=512)  # every chain's images on all devices",
        'kept = {"placement": placement, "sink": io.ChunkStore("draws"), "chunk_size": 1}',
        "sample = inference.hmc(num_chains=3, num_samples=240, step_size=1e-5, num_steps=70_000, **kept)",
        "```",
        "",
    ]


def aligning(shares: Shares) -> list[str]:
    """A thousand ResNet-18s to one of them."""
    found: dict[str, float] = answered("tests.bench.counted", str(NUM_TRIED))
    host = shares[through_host.RESNETS][through_host.ASSIGNMENT]
    bytes_each = 4 * found["weights"]
    rows = [
        ("weights of a network", f"{found['weights']:,.0f}, {bytes_each / MEGA:.0f} MB"),
        ("operations of its products", f"{found['operations'] / GIGA:.0f} GFLOP"),
        ("here", f"{found['seconds']:.1f} s a network (of {NUM_TRIED}), {host:.0%} of it the host's "
         "exact assignments"),
        (f"{NUM_ALIGNED:,} networks here",
         f"{duration(NUM_ALIGNED * found['seconds'])}, in batches from disk"),
        ("their bytes", f"{NUM_ALIGNED * bytes_each / GIGA:.0f} GB; a batch of 16 holds "
         f"{(1 + 2 * 16) * bytes_each / GIGA:.1f} GB on the device with its aligned copy"),
        (
            "with one accelerator",
            f"{duration(NUM_ALIGNED * found['seconds'] * host)}: the assignments stay on the "
            f"host (matrices of more than 64 units), the products take "
            f"{duration(NUM_ALIGNED * found['operations'] / GPU.rate)} of an {GPU.name} at its full rate; "
            "more cores of the host divide the rest",
        ),
    ]  # fmt: skip
    return [f"## Aligning {NUM_ALIGNED:,} ResNet-18s to one of them", "", *table(rows)]


def storing(rate: float) -> list[str]:
    """A million small networks: trained and kept."""
    kept = processes.ask("tests.bench.bench_zoo", "zoo", bench_zoo.FEW)
    factor = NUM_ZOO / bench_zoo.FEW
    one = gradient(models.optunet((28, 28, 1), 10, hidden=(3,), computed_by="products"), BATCH, (28, 28, 1))
    steps = EPOCHS * (ZOO_IMAGES // BATCH)
    each = steps * one.seconds
    rows = [
        ("operations of an OptuNet's training", f"{steps * one.operations:.2g} ({EPOCHS} epochs of MNIST in "
         f"batches of {BATCH})"),
        ("here", f"{1e3 * one.seconds:.2f} ms a step, {duration(each)} a network, "
         f"{duration(NUM_ZOO * each)} for all; efficiency {one.efficiency(rate):.2f}"),
        (f"on one {GPU.name}, networks side by side",
         duration(NUM_ZOO * steps * one.on(GPU, rate))),
        ("on disk, half precision", f"{factor * kept['bytes'] / GIGA:.2f} GB (64-5-10, {kept['weights']:.0f} "
         "weights, the size of an OptuNet)"),
        ("written, streamed, aligned to one of them", ", ".join(
            f"{factor * kept[what]:,.0f} s" for what in ("write", "stream", "align"))
         + f" (measured on {bench_zoo.FEW:,})"),
        ("read one", f"{1e3 * kept['one']:.1f} ms"),
        ("memory", f"{kept['memory'] / MEGA:.0f} MB for any number: {bench_zoo.SHARD} networks at a time"),
    ]  # fmt: skip
    return [f"## A zoo of {NUM_ZOO:,} networks", "", *table(rows)]


def through_the_host(shares: Shares) -> list[str]:
    """Which calls go through the host, and for how long."""
    lines = [
        "## Through the host",
        "",
        "No program calls back to the host. Between programs the library solves on the host in "
        f"{len(HOST)} files, which `tests/accelerators/host.py` names with their reasons; a test finds every "
        "other one. Their share of the time of calls at honest sizes, measured here:",
        "",
        "| call | seconds here | share of the host's solvers |",
        "|---|---|---|",
    ]
    for name, found in shares.items():
        parts = [
            f"{share:.1%} {file.removesuffix('.py')}" for file, share in found.items() if file != "seconds"
        ]
        lines.append(f"| {name} | {found['seconds']:.2f} | {', '.join(parts) or 'none'} |")
    return [*lines, ""]


def answered(module: str, *arguments: str) -> Any:
    """What a module prints, in a process of its own."""
    command = [sys.executable, "-m", module, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def starting() -> list[str]:
    """How several hosts are started."""
    return [
        "## Several hosts",
        "",
        "Every host runs the same program. It joins the others before anything else of JAX:",
        "",
        "```python",
        "from symbnn import inference",
        "",
        "inference.distributed.start()",
        "fit = inference.distributed.gather(inference.hmc(num_chains=64)(key, target))",
        "```",
        "",
        "On Slurm `srun --nodes=16 --ntasks-per-node=1 python program.py` is all; elsewhere "
        "`SYMBNN_COORDINATOR=host:port`, `SYMBNN_NUM_PROCESSES` and `SYMBNN_PROCESS` name the cluster. Tried "
        "with four local processes over gloo, which give the draws of one, bit for bit "
        "(`tests/accelerators/test_processes.py`); never with real accelerators.",
        "",
    ]


def described(device: Device) -> str:
    """What is assumed of a device."""
    rate, bandwidth, memory = device.rate / 1e12, device.bandwidth / GIGA, device.memory / GIGA
    return f"{device.name} {rate:g} TFLOP/s, {bandwidth:g} GB/s, {memory:g} GB"


def duration(seconds: float) -> str:
    """`3.2 days`: in the largest unit that it has one of."""
    units = {"years": 365 * 24 * 3600, "days": 24 * 3600, "h": 3600, "minutes": 60, "s": 1}
    unit = next((name for name, size in units.items() if seconds >= size), "s")
    return f"{seconds / units[unit]:,.3g} {unit}"


def table(rows: list[tuple[str, str]]) -> list[str]:
    """Two columns."""
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]


def main() -> None:
    """Measure, count, write."""
    (times,) = in_turns(products(NUM_PRODUCTS))
    rate = float(NUM_PRODUCTS * OPERATIONS_PER_PRODUCT / np.median(times))
    shares: Shares = answered("tests.bench.through_host")
    parts = [
        *sampling(rate),
        *aligning(shares),
        *storing(rate),
        *through_the_host(shares),
        *starting(),
    ]
    RESULT.write_text(page(rate, parts), encoding="utf-8")
    print(f"written: {RESULT.name}")


if __name__ == "__main__":
    main()
