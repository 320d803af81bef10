"""Stochastic-gradient MCMC: Langevin and Hamiltonian dynamics on minibatches.

| algorithm | dynamics                                                                      |
|-----------|-------------------------------------------------------------------------------|
| `sgld`    | w ← w + ε g + √(2ε) n                                  (Welling and Teh 2011) |
| `sghmc`   | w ← w + ε v,  v ← (1 - αε) v + ε g + √(2αε) n          (Chen et al. 2014)     |

g = ∇((N/B) Σ_batch log p(y | x, w) + log p(w)) / T, one batched gradient per step. The integrators are
BlackJAX's; its own gradient estimators map a likelihood over single examples, which is many times slower.

A run is `num_cycles` cycles of `num_burnin` steps followed by draws, `thinning` steps apart. With
`schedule="cosine"` the step size falls from ε to zero within each cycle and the burn-in of a cycle has no
noise: it looks for a new mode (cyclical SGMCMC, Zhang et al. 2020).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbnn.density import Target, refuse_batch_statistics
from symbnn.inference.base import Progress, ProgressCallback, Sink, check_count, documented
from symbnn.inference.dynamics import (
    ALGORITHMS,
    Chains,
    ChainState,
    Dynamics,
    Steps,
    run_compiled,
    run_on_host,
    step_checksum,
    steps_on_host,
)
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import WORDS, ShowProgress, reporting
from symbnn.inference.storage import checksum, fingerprint, flatten, read_whole, unflatten
from symbnn.inference.training.epochs import require_in_memory
from symbnn.inference.training.train import equal_part, problem_of, warn_nonfinite
from symbnn.models.base import join_statistics, split_statistics
from symbnn.names import lookup
from symbnn.posteriors import Empirical
from symbnn.types import Key, Params, Samples


@documented("(progress)", WORDS)
def sgmcmc(
    *,
    num_samples: int,
    step_size: float,
    algorithm: str = "sghmc",
    schedule: str = "constant",
    num_cycles: int = 1,
    num_burnin: int = 1000,
    thinning: int = 10,
    friction: float = 10.0,
    batch_size: int = 100,
    initial: Params | None = None,
    progress: ShowProgress = "auto",
    sink: Sink | None = None,
) -> ModeMethod:
    """One chain of `num_samples` draws as an `Empirical` posterior; `multimode` runs many side by side.

    Args:
        num_samples: Draws kept, together in all cycles.
        step_size: ε, at the start of a cycle.
        algorithm: `"sghmc"` or `"sgld"`.
        schedule: `"constant"`, or `"cosine"`: the step size falls to zero within each cycle.
        num_cycles: Cycles, each with its burn-in and its share of the draws.
        num_burnin: Steps before the first draw of every cycle.
        thinning: Steps per draw.
        friction: α of `sghmc`.
        batch_size: Examples per step, drawn with replacement.
        initial: Where the chain starts; None is the model's initialisation.
        (progress)
        sink: Where chunks are kept (`io.ChunkStore(directory)`), from which a stopped run goes on.

    Diagnostics: `num_nonfinite`: steps whose gradient was not finite.
    """
    lookup(ALGORITHMS, algorithm, "algorithm")
    steps = lookup(SCHEDULES, schedule, "schedule")
    counts = {"num_samples": num_samples, "num_cycles": num_cycles, "thinning": thinning}
    for name, value in {**counts, "batch_size": batch_size}.items():
        check_count(name, value)
    check_count("num_burnin", num_burnin, least=0)
    if num_samples % num_cycles:
        raise ValueError(f"num_cycles must divide num_samples; got {num_cycles} and {num_samples}")
    if not (step_size > 0 and friction > 0):
        raise ValueError(f"step_size and friction must be positive; got {step_size} and {friction}")
    dynamics = Dynamics(algorithm, friction, batch_size)
    name = f"{dynamics}, {schedule} {step_size}, {num_samples} in {num_cycles}, {num_burnin}, {thinning}"
    plan = _plan(steps, step_size, num_cycles, num_burnin, num_samples // num_cycles, thinning)

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        problem = problem_of(target)
        refuse_batch_statistics(starts, target.model)
        if batch_size > problem.num_data:
            raise ValueError(f"batch_size is {batch_size}, but there are only {problem.num_data} data points")
        weights, statistics = split_statistics(starts)
        at_rest = jax.tree.map(jnp.zeros_like, weights)
        state = ChainState(weights, at_rest, jnp.zeros(len(mode_keys), jnp.int32))
        chains = Chains(statistics, mode_keys, target.data)
        if sink is not None:
            begin = ", ".join(map(checksum, jax.tree.leaves(starts)))
            step = step_checksum(problem, dynamics, state, chains)
            sink.open(fingerprint(mode_keys, target, {"method": name, "starts": begin, "step": step}))
        by_host = steps_on_host(problem, dynamics, state, chains)
        advance = functools.partial(run_on_host if by_host else run_compiled, problem, dynamics, chains)
        with reporting(progress) as tell:
            drawn, num_nonfinite = _follow(plan, advance, state, sink, tell)
        warn_nonfinite("sgmcmc", num_nonfinite)
        samples = join_statistics(drawn, _repeated(statistics, num_samples))
        return jax.vmap(lambda one: Empirical(one, num_chains=1))(samples), {"num_nonfinite": num_nonfinite}

    return ModeMethod(fit_modes, initial, functools.partial(require_in_memory, "sgmcmc"))


def _repeated(statistics: Params, num: int) -> Params:
    """Running statistics of every mode, once for each of its draws."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], num, axis=1), statistics)


def _follow(
    plan: list["Work"],
    advance: Callable[..., tuple[ChainState, Samples]],
    state: ChainState,
    sink: Sink | None,
    tell: ProgressCallback | None,
) -> tuple[Samples, Array]:
    """(draws of all chains, steps that were not finite): every chunk of the plan, read or computed."""
    draws: list[Samples] = []
    for number, work in enumerate(plan):
        stored = None if sink is None else read_whole(sink, number, [])
        if stored is None:
            state, positions = advance(state, work.steps)
        else:
            positions = unflatten("draws", stored, state.position)
            state = jax.tree.map(jnp.asarray, unflatten("state", stored, state))
        if sink is not None and stored is None:
            sink.write(number, flatten("", {"state": state, "draws": positions}))
        draws += [positions] if work.is_kept else []
        if tell is not None:
            bad = {"nonfinite_steps": float(jnp.sum(state.num_nonfinite))}
            tell(Progress("sgmcmc", number + 1, len(plan), bad, replayed=stored is not None))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *draws), state.num_nonfinite


class Work(NamedTuple):
    """One chunk: a burn-in, whose end is not kept, or some draws."""

    steps: Steps
    is_kept: bool


Schedule = Callable[[float, int, int], tuple[np.ndarray, np.ndarray]]
"""(step size, burn-in, steps of a cycle) -> (step sizes, temperatures of the noise)."""


def _constant(step_size: float, num_burnin: int, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(num_steps, step_size), np.ones(num_steps)


def _cosine(step_size: float, num_burnin: int, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    steps = np.arange(num_steps)
    return 0.5 * step_size * (1.0 + np.cos(np.pi * steps / num_steps)), (steps >= num_burnin).astype(float)


SCHEDULES: dict[str, Schedule] = {"constant": _constant, "cosine": _cosine}


def _plan(
    schedule: Schedule, step_size: float, num_cycles: int, num_burnin: int, num_draws: int, thinning: int
) -> list[Work]:
    """All chunks of a run: per cycle its burn-in, then its draws in equal parts."""
    num_steps = num_burnin + num_draws * thinning
    sizes, temperatures = schedule(step_size, num_burnin, num_steps)
    part = equal_part(num_draws)
    work = []
    for cycle in range(num_cycles):
        numbers = cycle * num_steps + np.arange(num_steps)
        steps = Steps(numbers, sizes.astype(np.float32), temperatures.astype(np.float32))
        if num_burnin:
            work.append(Work(Steps(*(array[None, :num_burnin] for array in steps)), False))
        drawn = [array[num_burnin:].reshape(-1, part, thinning) for array in steps]
        work += [Work(Steps(*arrays), True) for arrays in zip(*drawn, strict=True)]
    return work
