"""Several chains of a small network, 64-32-10 on 1,297 points: layouts on the cores, NumPyro and BlackJAX.

`python -m tests.bench chains`. All times are milliseconds for a gradient of one chain, in processes of their
own, because the number of CPU devices is chosen before JAX starts.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from symbnn import inference
from tests.bench import Row, processes
from tests.bench.bench_inference import (
    OPERATIONS_PER_PRODUCT,
    STEPS,
    in_turns,
    network,
    numpyro_sampler,
    products,
)

MODULE = "tests.bench.bench_chains"
CORES = os.cpu_count() or 1
# Devices and lanes for eight chains.
LAYOUTS = ((1, 8), (2, 1), (2, 4), (4, 2))


def rows() -> Iterator[Row]:
    """Where chains run by default, and what others need for the same gradients."""
    yield layout_row()
    yield from four_chains()


def layout_row() -> Row:
    """Eight chains where they are put by default, on a device for every core, against four other layouts."""

    def turn() -> list[float]:
        default = processes.ask(MODULE, "default", 8, devices=CORES)
        others = [processes.ask(MODULE, "chains", 8, *layout, devices=layout[0]) for layout in LAYOUTS]
        return [default, *others]

    rounds = np.array([turn() for _ in range(2)])
    times = np.median(rounds, axis=0)
    ratio = float(np.median(rounds[:, 0] / rounds.min(axis=1)))
    named = ", ".join(
        f"{devices} x {lanes} {time:.3f}" for (devices, lanes), time in zip(LAYOUTS, times[1:], strict=True)
    )
    return Row(
        "8 chains of 64-32-10 where they are put by default / the fastest of five layouts",
        1.1,
        ratio,
        "x",
        ratio <= 1.1,
        f"ms a gradient and chain: default {times[0]:.3f}; devices x lanes: {named}",
    )


def four_chains() -> Iterator[Row]:
    """Ours by default on a device for every core, as the command line starts it.

    NumPyro as it starts by itself runs chains one after the other on one device; told of all cores, side by
    side or in parallel, whichever is faster. BlackJAX has no default: the same two ways.
    """

    def turn() -> list[float]:
        ours = processes.ask(MODULE, "default", 4, devices=CORES)
        told = processes.ask(MODULE, "peers", 4, devices=CORES)
        return [ours, *told, processes.ask(MODULE, "numpyro_default", 4)]

    rounds = np.array([turn() for _ in range(3)])
    ours, numpyro, blackjax_time, rate, numpyro_default = np.median(rounds, axis=0)
    what = "four chains of 64-32-10 on all cores"
    for name, column, target, time in (
        ("NumPyro's HMC as it starts by itself", 4, 2.0, numpyro_default),
        ("NumPyro's HMC told of all cores", 1, 1.0, numpyro),
        ("BlackJAX's HMC told of all cores", 2, 1.0, blackjax_time),
    ):
        ratio = float(np.median(rounds[:, column] / rounds[:, 0]))
        yield Row(
            f"{name} / ours, {what}",
            target,
            ratio,
            "x",
            ratio >= target,
            f"{time:.3f} against {ours:.3f} ms a gradient and chain, medians of three processes in turns",
        )
    # The promise is for a machine of 150 GFLOP/s.
    allowed = 0.2 * 150 / rate
    yield Row(
        f"{what}: gradient of a chain",
        allowed,
        float(ours),
        "ms",
        bool(ours <= allowed),
        f"0.2 ms where a matrix product runs at 150 GFLOP/s; here at {rate:.0f}",
    )


def measure_chains(num_chains: int, num_devices: int, lanes: int) -> float:
    """Of a run in the layout that is given, after its first chunk."""
    return _measured(num_chains, inference.Placement(devices=jax.devices()[:num_devices], lanes=lanes))


def measure_default(num_chains: int) -> float:
    """The same with chains placed as they are by default."""
    return _measured(num_chains, inference.Placement())


def measure_numpyro(num_chains: int) -> float:
    """Of NumPyro, side by side or in parallel on the devices."""
    sample, state = numpyro_sampler(network(64, 32, 1_297), STEPS, 32)
    return _fastest(sample, state, num_chains)


def measure_numpyro_default(num_chains: int) -> float:
    """Of NumPyro with one chain after the other, which it warns of and does where there is one device."""
    sample, state = numpyro_sampler(network(64, 32, 1_297), STEPS, 32)
    run = jax.jit(sample)
    (times,) = in_turns(lambda: [run(state) for _ in range(num_chains)], rounds=11)
    return _per_gradient(times, num_chains)


def measure_blackjax(num_chains: int) -> float:
    """Of BlackJAX on a log-density as its users write it, side by side or in parallel on the devices."""
    target = network(64, 32, 1_297)
    inputs, labels = map(jnp.asarray, target.data)

    def log_density(params: Any) -> jax.Array:
        hidden = jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        logits = hidden @ params["out"]["kernel"] + params["out"]["bias"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
        return chosen.sum() - 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    params = target.init(jax.random.key(0))
    number = sum(leaf.size for leaf in jax.tree.leaves(params))
    sampler = blackjax.hmc(log_density, 1e-6, jnp.ones(number), STEPS)
    return _fastest(lambda state: sampler.step(jax.random.key(0), state)[0], sampler.init(params), num_chains)


def measure_rate() -> float:
    """GFLOP/s of a matrix product."""
    (times,) = in_turns(products(20))
    return float(20 * OPERATIONS_PER_PRODUCT / np.median(times) / 1e9)


def measure_peers(num_chains: int) -> tuple[float, float, float]:
    """NumPyro, BlackJAX and a matrix product, in one process: three starts would take longer than they."""
    return measure_numpyro(num_chains), measure_blackjax(num_chains), measure_rate()


def _fastest(step: Callable[[Any], Any], state: Any, num_chains: int) -> float:
    """Of a transition for several chains, vmapped on one device or on all of them."""
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_chains), state)
    devices = jax.local_device_count()
    grouped = jax.tree.map(lambda leaf: leaf.reshape(devices, -1, *leaf.shape[1:]), states)
    beside, parallel = jax.jit(jax.vmap(step)), jax.pmap(jax.vmap(step))
    times = in_turns(lambda: beside(states), lambda: parallel(grouped), rounds=11)
    return min(_per_gradient(each, num_chains) for each in times)


def _per_gradient(times: np.ndarray, num_chains: int) -> float:
    return 1e3 * float(np.median(times)) / (STEPS * num_chains)


def _measured(num_chains: int, placement: inference.Placement) -> float:
    seconds: list[float] = []
    method = inference.hmc(
        num_chains=num_chains,
        num_samples=24,
        num_burnin=0,
        step_size=1e-6,
        num_steps=STEPS,
        chunk_size=4,
        placement=placement,
        progress=lambda report: seconds.append(report.statistics["seconds"]),
    )
    method(jax.random.key(0), network(64, 32, 1_297))
    return 1e3 * float(np.median(np.diff(seconds))) / (4 * STEPS * num_chains)


if __name__ == "__main__":
    processes.answer(
        {
            "chains": measure_chains,
            "default": measure_default,
            "peers": measure_peers,
            "numpyro_default": measure_numpyro_default,
        }
    )
