"""Steps of MCLMC against bde's (scikit-learn-contrib), on airfoil: processor time of a step and chain.

`python -m tests.bench bde`, where SYMBNN_PEER_PYTHON names a Python that has bde (as for the study `uci`) and
the table is there. Ten chains of 16-16-16-16 with two outputs each, on all cores, ours in the blocks that
`fastest_placement` measures. Two lengths are run and subtracted, so that neither compiling nor the start
counts.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.uci import peer
from symbnn import data, density, inference, models
from tests.bench import Row, processes

MODULE = "tests.bench.bench_bde"
CHAINS, HIDDEN, FEW, MANY = 10, (16, 16, 16, 16), 1_000, 5_000


def rows() -> Iterator[Row]:
    """One ratio."""
    python = os.environ.get(peer.VARIABLE)
    if python is None:
        print(f"no row against bde: {peer.VARIABLE} names no Python that has it", flush=True)
        return
    try:
        table = data.load("uci/airfoil", test_share=0.2)
    except data.DataError as error:
        print(f"no row against bde: {error}", flush=True)
        return
    rounds = np.array([[_ours(), _theirs(python, table)] for _ in range(2)])
    ours, theirs = np.median(rounds, axis=0)
    ratio = float(np.median(rounds[:, 1] / rounds[:, 0]))
    yield Row(
        "bde's step of MCLMC / ours, ten chains of 16-16-16-16 on airfoil",
        1.5,
        ratio,
        "x, processor time",
        ratio >= 1.5,
        f"{theirs:.2f} against {ours:.2f} ms of a core, a step and chain; medians of two rounds in turns",
    )


def _ours() -> float:
    return float(processes.ask(MODULE, "ours", CHAINS, devices=os.cpu_count() or 1))


def _theirs(python: str, table: Any) -> float:
    """By differences of whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        taken = [_bde_seconds(python, table, number, Path(folder)) for number in (FEW, MANY)]
    return 1e3 * (taken[1] - taken[0]) / ((MANY - FEW) * CHAINS)


def _bde_seconds(python: str, table: Any, num_steps: int, folder: Path) -> float:
    given, found = folder / "given.npz", folder / "found.npz"
    np.savez(
        given,
        inputs=table.train.inputs,
        targets=table.train.targets,
        test_inputs=table.test.inputs[:2],
        hidden=np.array(HIDDEN),
        activation="relu",
        seed=0,
        num_members=CHAINS,
        num_epochs=20,
        num_warmup=1_000,
        num_samples=num_steps,
        thinning=10,
    )
    peer.call([python, str(peer.SCRIPT), str(given), str(found)])
    with np.load(found) as file:
        return float(file["processor"])


def measure_ours(num_chains: int) -> float:
    """Milliseconds of processor time for a step of one chain, after the first chunk."""
    table = data.load("uci/airfoil", test_share=0.2)
    model = models.mlp(table.input_shape, 2, hidden=HIDDEN, rows="last")
    target = density.target(model, table.train, likelihood=density.heteroscedastic("softplus"))
    seen: list[float] = []
    inference.mclmc(
        num_chains=num_chains,
        num_samples=(MANY - FEW) // 10,
        num_burnin=FEW,
        thinning=10,
        chunk_size=100,
        placement=inference.fastest_placement(target, num_chains=num_chains),
        initial=jax.vmap(model.init)(jax.random.split(jax.random.key(0), num_chains)),
        progress=lambda _: seen.append(_processor()),
    )(jax.random.key(0), target)
    steps_of_a_chunk = 100 * 10
    return 1e3 * float(np.median(np.diff(seen))) / (steps_of_a_chunk * num_chains)


def _processor() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    processes.answer({"ours": measure_ours})
