"""Speed of one chain: against the machine's matrix product, the bare gradient and NumPyro; memory of a run.

`python -m tests.bench inference`. Several chains: `bench_chains`.
"""

import dataclasses
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
from tests.bench import Row, peak_memory, processes

STEPS = 100
SIZE = 2048
OPERATIONS_PER_PRODUCT = 2 * SIZE**3


def rows() -> Iterator[Row]:
    """All promises about the samplers."""
    big, small = network(784, 512, 60_000), network(64, 32, 1_297)
    yield from large_network(big)
    yield from small_network(small)
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
        "NumPyro's HMC / ours, one chain of 64-32-10",
        0.95,
        faster,
        "x",
        faster >= 0.95,
        f"{1e3 * other:.2f} ms a step; both wait for the same compiled gradient, {1e3 * alone:.2f} ms",
    )


def memory() -> Row:
    """Peak memory of one run of the small network with draws kept on disk, after 100 draws and after 1,000.

    Of one run, because what compiling leaves behind differs by 20 MiB from process to process.
    """
    few, many = processes.ask("tests.bench.bench_inference", "memory", 100, 1000)
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
    processes.answer({"memory": measure_memory})
