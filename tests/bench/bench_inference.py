"""Speed of the samplers: against the machine's matrix product, the bare gradient, NumPyro, and other layouts.

`python -m tests.bench inference`. What needs several devices or a process's peak memory runs in a process of
its own: `python -m tests.bench.bench_inference chains 8 2 1` and `... memory 100 1000`.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model

from symbnn import density, inference, models
from symbnn.inference.chains.kernels import Tuning
from symbnn.inference.chains.relative import EvaluatedState
from symbnn.inference.hmc import build_kernel
from symbnn.io import ChunkStore
from tests.bench import Row, peak_memory

STEPS = 100
SIZE = 2048
OPERATIONS_PER_PRODUCT = 2 * SIZE**3


def rows() -> Iterator[Row]:
    """All promises about the samplers."""
    big, small = network(784, 512, 60_000), network(64, 32, 1_297)
    yield from large_network(big)
    yield from small_network(small)
    yield from layouts()
    yield from four_chains()
    yield memory()


def large_network(target: density.Target) -> Iterator[Row]:
    """784-512-10 on 60,000 points."""
    num, inner, outer = 60_000, 784 * 512, 512 * 10
    # Forward, gradient of both kernels, gradient of the hidden units.
    operations = 2 * num * (2 * (inner + outer) + outer)
    # As much work as the trajectory, in as long a stretch: a single product may run in a lucky moment.
    num_products = round(2 * operations / OPERATIONS_PER_PRODUCT)
    multiplied, ours, other = in_turns(
        products(num_products), trajectory(target, 2), numpyro_trajectory(target, 2, 512)
    )
    rates = num_products * OPERATIONS_PER_PRODUCT / multiplied
    share = float(np.median(2 * operations / ours / rates))
    yield Row(
        "HMC 784-512-10, 60,000 points: share of the matrix-product rate",
        0.8,
        share,
        "",
        share >= 0.8,
        f"{np.median(ours) / 2:.2f} s a gradient; {num_products} products at {np.median(rates) / 1e9:.0f} "
        "GFLOP/s",
        "two products of 1,500 x 784 x 512 a chunk; a twelfth of the time copies the chunk out of the data",
        0.7,
    )
    ratio = float(np.median(other / ours))
    yield Row("NumPyro's HMC / ours, 784-512-10", 1.0, ratio, "x", ratio >= 1.0, "time per leapfrog step")


def small_network(target: density.Target) -> Iterator[Row]:
    """64-32-10 on 1,297 points."""
    gradient = jax.grad(lambda w, data: target.log_likelihood(w, data) + target.log_prior(w))

    @jax.jit
    def bare(params: Any, data: Any) -> Any:
        def body(_: Any, w: Any) -> Any:
            return jax.tree.map(lambda a, g: a + 1e-6 * g, w, gradient(w, data))

        return jax.lax.fori_loop(0, STEPS, body, params)

    params = target.init(jax.random.key(0))
    times = in_turns(
        lambda: bare(params, target.data),
        trajectory(target, STEPS),
        numpyro_trajectory(target, STEPS, 32),
        rounds=25,
    )
    alone, ours, other = (float(np.median(one)) / STEPS for one in times)
    ratio = float(np.median(times[1] / times[0]))
    yield Row(
        "HMC 64-32-10, 1,297 points: leapfrog step / bare gradient",
        1.05,
        ratio,
        "x",
        ratio <= 1.05,
        f"{1e3 * ours:.3f} ms a step",
    )
    faster = float(np.median(times[2] / times[1]))
    yield Row(
        "NumPyro's HMC / ours, 64-32-10",
        3.0,
        faster,
        "x",
        faster >= 3.0,
        f"{1e3 * other:.2f} ms a step",
        f"both wait for the same compiled gradient, {1e3 * alone:.2f} ms, of which XLA's matrix products "
        "are more than half; several chains at once are where ours gains",
        0.95,
    )


def layouts() -> Iterator[Row]:
    """Whole runs of eight chains of the small network, time per chain and gradient."""
    cases = ((1, 1, 1), (8, 1, 8), (8, 2, 1), (8, 4, 1))
    rounds = [[in_process("chains", *case) for case in cases] for _ in range(3)]
    one, vmapped, two, four = map(float, np.median(rounds, axis=0))
    best = min(vmapped, two, four)
    yield Row(
        "8 chains / 1 chain, 64-32-10: throughput per chain",
        1.6,
        one / best,
        "x",
        one / best >= 1.6,
        f"ms a gradient: one {one:.3f}; 8 vmapped {vmapped:.3f}, on 2 devices {two:.3f}, on 4 {four:.3f}",
    )
    for devices, measured in ((2, two), (4, four)):
        yield Row(
            f"8 chains on {devices} simulated devices / vmapped on one",
            1.5,
            vmapped / measured,
            "x",
            vmapped / measured >= 1.5,
            "a small chain cannot fill two cores; median of three processes each",
            "XLA's threads already share part of the vmapped products between both cores",
            1.2,
        )


def four_chains() -> Iterator[Row]:
    """Four chains of the small network on a device for every core, as the command line sets them, each as its
    users get it: ours by default, NumPyro's vectorised or parallel, whichever is faster.
    """
    cores = os.cpu_count() or 1
    rounds = [
        [in_process(what, 4, devices=cores) for what in ("default", "numpyro", "rate")] for _ in range(3)
    ]
    ours, theirs, rate = map(float, np.median(rounds, axis=0))
    faster = float(np.median([other / own for own, other, _ in rounds]))
    yield Row(
        "NumPyro's HMC / ours, four chains of 64-32-10 on all cores",
        2.0,
        faster,
        "x",
        faster >= 2.0,
        f"{theirs:.3f} against {ours:.3f} ms a gradient and chain, medians of three processes each in turns",
    )
    # The promise is for a machine of 150 GFLOP/s.
    allowed = 0.2 * 150 / rate
    yield Row(
        "four chains of 64-32-10 on all cores: gradient of a chain",
        allowed,
        ours,
        "ms",
        ours <= allowed,
        f"0.2 ms where a matrix product runs at 150 GFLOP/s; here at {rate:.0f}",
    )


def memory() -> Row:
    """Peak memory of one run of the small network with draws kept on disk, after 100 draws and after 1,000.

    Of one run, because what compiling leaves behind differs by 20 MiB from process to process.
    """
    few, many = in_process("memory", 100, 1000)
    return Row(
        "peak memory, 1,000 draws / 100 draws, stored",
        1.05,
        many / few,
        "x",
        many / few <= 1.05,
        f"{few:.1f} and {many:.1f} MiB; the draws between are {900 * 4 * 2410 * 4 / 2**20:.0f} MiB",
    )


def network(num_inputs: int, num_hidden: int, num_data: int) -> density.Target:
    """A classifier with random data."""
    random = np.random.default_rng(0)
    inputs = random.uniform(size=(num_data, num_inputs)).astype(np.float32)
    labels = random.integers(10, size=num_data).astype(np.int32)
    return density.target(models.mlp((num_inputs,), 10, hidden=(num_hidden,)), density.Batch(inputs, labels))


def products(num: int) -> Callable[[], Any]:
    """`num` matrix products, one after the other."""
    multiply = jax.jit(lambda matrix: matrix @ matrix)
    own_square = jnp.full((SIZE, SIZE), 1.0 / SIZE)

    def run() -> Any:
        matrix = own_square
        for _ in range(num):
            matrix = multiply(matrix)
        return matrix

    return run


def trajectory(target: density.Target, num_steps: int) -> Callable[[], Any]:
    """One transition of our kernel."""
    kernel = build_kernel(num_steps=num_steps)

    @jax.jit
    def run(params: Any, data: Any) -> Any:
        chain = dataclasses.replace(
            target.log_density, log_likelihood=lambda w: target.log_likelihood(w, data)
        )
        state = EvaluatedState(params, jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        mass = jax.tree.map(lambda leaf: jnp.ones(()), params)
        return kernel.step(jax.random.key(0), state, Tuning(jnp.asarray(1e-6), mass, jnp.ones(())), chain)

    params = target.init(jax.random.key(0))
    return lambda: run(params, target.data)


def numpyro_trajectory(target: density.Target, num_steps: int, num_hidden: int) -> Callable[[], Any]:
    """One trajectory of NumPyro's HMC on the same network, written as its users write it."""
    sample, state = numpyro_sampler(target, num_steps, num_hidden)
    run = jax.jit(sample)
    return lambda: run(state)


def numpyro_sampler(target: density.Target, num_steps: int, num_hidden: int) -> tuple[Any, Any]:
    """NumPyro's transition, and a state to begin with."""
    inputs, labels = map(jnp.asarray, target.data)
    info = initialize_model(
        jax.random.PRNGKey(0), numpyro_model, model_args=(inputs, labels, num_hidden), validate_grad=False
    )
    init, sample = hmc(potential_fn=info.potential_fn, algo="HMC")
    state = init(
        info.param_info,
        num_warmup=0,
        step_size=1e-6,
        num_steps=num_steps,
        trajectory_length=None,
        adapt_step_size=False,
        adapt_mass_matrix=False,
        rng_key=jax.random.PRNGKey(0),
    )
    return sample, state


def numpyro_model(inputs: jax.Array, labels: jax.Array, num_hidden: int) -> None:
    """One hidden layer, standard normal prior."""

    def normal(name: str, *shape: int) -> jax.Array:
        return numpyro.sample(name, distributions.Normal(0, 1).expand(shape).to_event(len(shape)))

    hidden = jax.nn.relu(
        inputs @ normal("kernel0", inputs.shape[1], num_hidden) + normal("bias0", num_hidden)
    )
    logits = hidden @ normal("kernel1", num_hidden, 10) + normal("bias1", 10)
    with numpyro.plate("data", len(labels)):
        numpyro.sample("labels", distributions.Categorical(logits=logits), obs=labels)


def in_turns(*functions: Callable[[], Any], rounds: int = 7) -> list[np.ndarray]:
    """Seconds of every function in every round, one after the other: the machine's mood hits all alike."""
    for function in functions:
        jax.block_until_ready(function())
    times = np.zeros((len(functions), rounds))
    for turn in range(rounds):
        for which, function in enumerate(functions):
            begun = time.perf_counter()
            jax.block_until_ready(function())
            times[which, turn] = time.perf_counter() - begun
    return list(times)


def in_process(*arguments: Any, devices: int = 4) -> Any:
    """What `python -m tests.bench.bench_inference ARGUMENTS` prints."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, "-m", "tests.bench.bench_inference", *map(str, arguments)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def measure_chains(num_chains: int, num_devices: int, lanes: int) -> float:
    """Milliseconds per chain and gradient of a run, after its first chunk."""
    return _measured(num_chains, inference.Placement(devices=jax.devices()[:num_devices], lanes=lanes))


def measure_default(num_chains: int) -> float:
    """The same with chains placed as they are by default."""
    return _measured(num_chains, inference.Placement())


def measure_numpyro(num_chains: int) -> float:
    """Milliseconds per chain and gradient of NumPyro, side by side or in parallel on the devices."""
    sample, state = numpyro_sampler(network(64, 32, 1_297), STEPS, 32)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_chains), state)
    devices = jax.local_device_count()
    grouped = jax.tree.map(lambda leaf: leaf.reshape(devices, -1, *leaf.shape[1:]), states)
    beside, parallel = jax.jit(jax.vmap(sample)), jax.pmap(jax.vmap(sample))
    times = in_turns(lambda: beside(states), lambda: parallel(grouped), rounds=11)
    return 1e3 * min(float(np.median(each)) for each in times) / (STEPS * num_chains)


def measure_rate(_: int) -> float:
    """GFLOP/s of a matrix product."""
    run = products(20)
    (times,) = in_turns(run)
    return float(20 * OPERATIONS_PER_PRODUCT / np.median(times) / 1e9)


def _measured(num_chains: int, placement: inference.Placement) -> float:
    seconds: list[float] = []
    method = inference.hmc(
        num_chains=num_chains,
        num_samples=20,
        num_burnin=0,
        step_size=1e-3,
        num_steps=STEPS,
        chunk_size=4,
        placement=placement,
        progress=lambda report: seconds.append(report.statistics["seconds"]),
    )
    method(jax.random.key(0), network(64, 32, 1_297))
    return 1e3 * min(np.diff(seconds)) / (4 * STEPS * num_chains)


def measure_memory(few: int, many: int) -> tuple[float, float]:
    """Peak resident MiB of a stored run after `few` and after `many` draws."""
    peaks: dict[int, float] = {}

    def note(report: inference.Progress) -> None:
        peaks[report.done] = peak_memory() / 2**20

    with tempfile.TemporaryDirectory() as directory:
        inference.hmc(
            num_chains=4,
            num_samples=many,
            num_burnin=0,
            step_size=1e-3,
            num_steps=2,
            chunk_size=50,
            sink=ChunkStore(directory),
            storage=inference.Storage(collect="stored"),
            progress=note,
        )(jax.random.key(0), network(64, 32, 1_297))
    return peaks[few], peaks[many]


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    measures: dict[str, Callable[..., Any]] = {
        "chains": measure_chains,
        "default": measure_default,
        "numpyro": measure_numpyro,
        "rate": measure_rate,
        "memory": measure_memory,
    }
    print(json.dumps(measures[what](*map(int, numbers))))
