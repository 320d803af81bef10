"""Linear assignment: the permutation σ that maximises Σ_i cost[i, σ(i)], for a batch of cost matrices.

A row-wise argmax that happens to be a permutation is the optimum, which settles most matrices of nets that
are already close without an assignment solver. The rest go to scipy on the host, where it is 3 to 16 times
faster than optax's jitted Hungarian algorithm; on an accelerator small matrices stay there. scipy lets other
threads run while it solves, so every core of the host solves its own matrix.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy.optimize import linear_sum_assignment

from symbnn import names

# An accelerator's Hungarian sweep has n sequential steps; moving a matrix to the host costs about as much as
# 64 of them.
ACCELERATOR_UNITS = 64
SHARES_PER_CORE = 4
# Fewer entries than this are assigned sooner than threads are started.
THREADED_ENTRIES = 2**17

Solver = Callable[[Float[Array, "m n n"], int], np.ndarray]
"""Best permutations of the first so many matrices."""


def assign(
    cost: Float[Array, "m n n"], *, count: int | None = None, solver: str = "auto"
) -> Int[np.ndarray, "m n"]:
    """Best permutation of the first `count` matrices (default: all), on the host; identity for the rest."""
    solve = names.lookup(SOLVERS, _choose(cost, solver), "assignment solver")
    count = len(cost) if count is None else count
    return np.concatenate([solve(cost, count), np.tile(np.arange(cost.shape[-1]), (len(cost) - count, 1))])


def _choose(cost: Float[Array, "m n n"], solver: str) -> str:
    if solver != "auto":
        return solver
    return "scipy" if _is_on_host(cost) or cost.shape[-1] > ACCELERATOR_UNITS else "optax"


def _is_on_host(cost: Float[Array, "m n n"]) -> bool:
    return next(iter(cost.devices())).platform == "cpu"


def _scipy(cost: Float[Array, "m n n"], count: int) -> np.ndarray:
    if _is_on_host(cost):
        # Where the host sees the device's memory, nothing is copied.
        return _in_shares(_settled_or_solved, np.asarray(cost)[:count])
    return _greedy_or(lambda picked, number: _in_shares(_solve, np.asarray(picked)[:number]), cost, count)


def _optax(cost: Float[Array, "m n n"], count: int) -> np.ndarray:
    return _greedy_or(lambda picked, number: np.asarray(_hungarian(picked))[:number], cost, count)


SOLVERS: dict[str, Solver] = {"scipy": _scipy, "optax": _optax}


def _greedy_or(solve: Solver, cost: Float[Array, "m n n"], count: int) -> np.ndarray:
    """Best column of every row where that is a permutation; only the other matrices are solved."""
    best, is_permutation = map(np.array, _device_greedy(cost))
    unsettled = np.flatnonzero(~is_permutation[:count])
    if unsettled.size:
        # Repeated up to a power of two of them, so that few shapes are compiled.
        padded = np.resize(unsettled, 1 << (len(unsettled) - 1).bit_length())
        best[unsettled] = solve(cost[padded], len(unsettled))
    return best[:count]


@jax.jit
def _device_greedy(cost: Float[Array, "m n n"]) -> tuple[jax.Array, jax.Array]:
    best = jnp.argmax(cost, axis=-1)
    return best, jnp.all(jnp.sort(best, axis=-1) == jnp.arange(cost.shape[-1]), axis=-1)


def _in_shares(solve: Callable[[np.ndarray], np.ndarray], matrices: np.ndarray) -> np.ndarray:
    """`solve` of every matrix, on all cores."""

    def solve_all(share: np.ndarray) -> np.ndarray:
        return np.stack([solve(matrix) for matrix in share])

    if matrices.size < THREADED_ENTRIES:
        return solve_all(matrices)
    # Several shares for every core, as some matrices take longer; not one for every matrix, as handing over a
    # small one takes longer than solving it.
    shares = np.array_split(matrices, min(len(matrices), SHARES_PER_CORE * _num_cores()))
    with ThreadPoolExecutor(min(len(matrices), _num_cores())) as threads:
        return np.concatenate(list(threads.map(solve_all, shares)))


def _settled_or_solved(matrix: np.ndarray) -> np.ndarray:
    # numpy's argmax is three times as fast as XLA's on a CPU.
    best = matrix.argmax(axis=-1)
    is_taken = np.zeros(len(matrix), bool)
    is_taken[best] = True
    return best if is_taken.all() else _solve(matrix)


def _solve(matrix: np.ndarray) -> np.ndarray:
    # Costs against the best of each column: scipy starts with all prices at zero, these are better ones, and
    # its augmenting paths are half as long.
    return linear_sum_assignment(matrix.max(axis=0).astype(np.float64) - matrix)[1]


def _num_cores() -> int:
    """Cores that this process may use; not every system can say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@jax.jit
def _hungarian(cost: Float[Array, "m n n"]) -> jax.Array:
    rows, columns = jax.vmap(optax.assignment.hungarian_algorithm)(-cost)
    return jnp.take_along_axis(columns, jnp.argsort(rows, axis=-1), axis=-1)
