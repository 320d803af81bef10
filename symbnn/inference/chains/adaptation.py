"""Tuning in the burn-in: step size by dual averaging, diagonal mass by windows (Stan's schedule).

Dual averaging (Nesterov 2009; Hoffman & Gelman 2014, eq. 6) and the schedule are BlackJAX's; the variances
are kept as trees, because BlackJAX ravels positions into one vector. Every chain adapts alone, so that its
draws depend on the key and its own index only.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.optimizers.dual_averaging import DualAveragingState, dual_averaging
from jaxtyping import Array

from symbnn import tree
from symbnn.density import Target
from symbnn.inference.chains.kernels import Info, Tuning
from symbnn.types import Params

Mass = str
"""`identity` or `diagonal`."""

LEAST_FOR_MASS = 20
"""Transitions of a burn-in that has windows for masses: BlackJAX's and Stan's schedules have none before."""

TARGET_ACCEPTANCE = 0.8
"""Where Hamiltonian trajectories are cheapest per effective draw, a little above theory as Stan has it."""


class Tuner(NamedTuple):
    """How tuning follows the transitions of the burn-in; frozen afterwards."""

    name: str
    """With its settings, for the fingerprint of a run."""
    init: Callable[[Params], tuple[Tuning, Any]]
    update: Callable[[Array, Any, Tuning, Params, Info], tuple[Tuning, Any]]
    """(index of the transition, state, tuning, position, info) -> (tuning, state)."""


class WindowState(NamedTuple):
    """Dual averaging, and Welford's running mean and sum of squares of the window."""

    averaging: DualAveragingState
    num: Array
    mean: Params
    squares: Params


def fixed(*, step_size: float, length: float = math.inf, inverse_mass: Params | None = None) -> Tuner:
    """No adaptation. `inverse_mass`: a number or an array for every leaf, as `Tuning` has it; None is 1."""

    def init(params: Params) -> tuple[Tuning, tuple[()]]:
        tuning = initial_tuning(params, step_size, length)
        if inverse_mass is None:
            return tuning, ()
        given = jax.tree.map(lambda leaf, value: jnp.asarray(value, leaf.dtype), params, inverse_mass)
        return tuning._replace(inverse_mass=given), ()

    name = f"step_size={step_size}, length={length}"
    return Tuner(name, init, lambda index, state, tuning, position, info: (tuning, state))


def windows(
    num_burnin: int,
    *,
    initial_step_size: float,
    mass: Mass,
    target_acceptance: float | None,
    length: float = math.inf,
    length_with_mass: float | None = None,
) -> Tuner:
    """Step size, and variances if `mass` is diagonal, from the transitions of the burn-in.

    `length` is measured against unit masses; `length_with_mass` (default: the same) against the variances,
    from the end of the first window that has found them. Without a `target_acceptance` it is 0.8. A burn-in
    of fewer than 20 transitions has no such window: masses stay at 1.
    """
    check_windows(num_burnin, mass=mass, target_acceptance=target_acceptance)
    target_acceptance = TARGET_ACCEPTANCE if target_acceptance is None else target_acceptance
    start, advance, final = dual_averaging()
    schedule = build_schedule(num_burnin)
    later = length if length_with_mass is None else length_with_mass
    is_slow = jnp.array([stage == 1 for stage, _ in schedule]) & (mass == "diagonal")
    is_end = jnp.array([end for _, end in schedule]) & (mass == "diagonal")

    def init(params: Params) -> tuple[Tuning, WindowState]:
        dtype = jnp.result_type(*jax.tree.leaves(params))
        averaging = _as_arrays(start(jnp.asarray(initial_step_size, dtype)), dtype)
        tuning = initial_tuning(params, initial_step_size, length)
        if mass == "identity":
            return tuning, WindowState(averaging, jnp.zeros((), dtype), (), ())
        zeros, ones = (jax.tree.map(like, params) for like in (jnp.zeros_like, jnp.ones_like))
        return tuning._replace(inverse_mass=ones), WindowState(averaging, jnp.zeros((), dtype), zeros, zeros)

    def update(
        index: Array, state: WindowState, tuning: Tuning, position: Params, info: Info
    ) -> tuple[Tuning, WindowState]:
        dtype = tuning.step_size.dtype
        averaging = _as_arrays(advance(state.averaging, target_acceptance - info.acceptance), dtype)
        state = state._replace(averaging=averaging)
        if mass == "diagonal":
            state = choose(is_slow[index], welford(state, position), state)
            restarted, inverse_mass = _end_window(state, lambda x: _as_arrays(start(x), dtype))
            found = tuning._replace(inverse_mass=inverse_mass, length=jnp.asarray(later, dtype))
            tuning = choose(is_end[index], found, tuning)
            state = choose(is_end[index], restarted, state)
        current, settled = jnp.exp(state.averaging.log_x), final(state.averaging)
        step_size = jnp.where(index == num_burnin - 1, settled, current)
        return tuning._replace(step_size=step_size.astype(dtype)), state

    name = (
        f"windows({num_burnin}, initial_step_size={initial_step_size}, mass={mass}, "
        f"target_acceptance={target_acceptance}, length={length}, length_with_mass={later})"
    )
    return Tuner(name, init, update)


def check_windows(
    num_burnin: int, *, mass: Mass | None = None, target_acceptance: float | None = None
) -> None:
    """`ValueError` for settings of `windows` that it cannot adapt with; None is a default."""
    if mass not in (None, "identity", "diagonal"):
        raise ValueError(f"mass must be 'identity' or 'diagonal'; got {mass!r}")
    if num_burnin < 1:
        raise ValueError(
            "The step size adapts in the burn-in: give a step_size, or num_burnin of at least 1; "
            f"got {num_burnin}"
        )
    if target_acceptance is not None and not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance must be in (0, 1); got {target_acceptance}")


def require_mass(num_burnin: int, mass: Mass | None) -> None:
    """`ValueError` if masses are asked for by name, and the burn-in is too short to find them."""
    if mass == "diagonal" and num_burnin < LEAST_FOR_MASS:
        raise ValueError(
            f"mass='diagonal' is found in the burn-in: give num_burnin of at least {LEAST_FOR_MASS}, or "
            f"mass='identity'; got {num_burnin}"
        )


def require_adapting(step_size: float | None, **settings: object) -> None:
    """`ValueError` for the first setting of the adaptation that is given along with a step size."""
    for name, value in settings.items():
        if step_size is not None and value is not None:
            raise ValueError(
                f"{name} applies only when the step size adapts (step_size=None); "
                f"got {name}={value!r} with step_size={step_size}"
            )


def prior_scales(target: Target) -> list[tuple[int, float]]:
    """(number of weights, standard deviation of the prior) of every leaf; 1 where the target has no prior."""
    shapes = jax.eval_shape(target.init, jax.random.key(0))
    scales = {} if target.prior is None else target.prior.scales(shapes)
    return [(leaf.size, scales.get(name, 1.0)) for name, leaf in tree.named_leaves(shapes).items()]


def num_weights(target: Target) -> int:
    """d, the number of dimensions."""
    return sum(size for size, _ in prior_scales(target))


def prior_radius(target: Target) -> float:
    """σ √(T d): typical distance of a prior draw from the origin."""
    return math.sqrt(target.temperature * sum(size * scale**2 for size, scale in prior_scales(target)))


def first_step_size(target: Target) -> float:
    """0.1 σ √T d^(-1/4): what a standard normal in d dimensions would take, made ten times smaller."""
    smallest = min(scale for _, scale in prior_scales(target))
    return 0.1 * smallest * math.sqrt(target.temperature) * num_weights(target) ** -0.25


def initial_tuning(params: Params, step_size: float, length: float) -> Tuning:
    """Unit masses, with a step size and a length."""
    dtype = jnp.result_type(*jax.tree.leaves(params))
    ones = jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), params)
    return Tuning(jnp.asarray(step_size, dtype), ones, jnp.asarray(length, dtype))


def welford(state: Any, position: Params) -> Any:
    """`state` with one position more in its `num`, `mean` and `squares` (sum of squared deviations)."""
    count = state.num + 1
    mean = jax.tree.map(lambda m, w: m + (w - m) / count, state.mean, position)
    squares = jax.tree.map(
        lambda s, w, old, new: s + (w - old) * (w - new), state.squares, position, state.mean, mean
    )
    return state._replace(num=count, mean=mean, squares=squares)


def _end_window(state: WindowState, start: Any) -> tuple[WindowState, Params]:
    """Variances of the window, shrunk towards 1e-3 as Stan does, and a state that starts afresh."""
    count = jnp.maximum(state.num, 2.0)
    weight = count / (count + 5.0)
    variances = jax.tree.map(lambda s: weight * s / (count - 1.0) + 1e-3 * (1.0 - weight), state.squares)
    zeros = jax.tree.map(jnp.zeros_like, state.mean)
    fresh = WindowState(start(jnp.exp(state.averaging.log_x_avg)), jnp.zeros_like(state.num), zeros, zeros)
    return fresh, variances


def _as_arrays(averaging: DualAveragingState, dtype: Any) -> DualAveragingState:
    """Arrays of one dtype: a scan carries them."""
    return DualAveragingState(*(jnp.asarray(value, dtype) for value in averaging))


def choose(condition: Array, new: Any, old: Any) -> Any:
    """`new` where `condition` holds."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
