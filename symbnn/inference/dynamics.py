"""How chains of stochastic-gradient MCMC move: one step, and chunks of steps with the draws between them.

A `lax.scan` over steps, `vmap`ped over chains, costs next to nothing per step. Networks that convolve are an
exception on CPUs, as in training (`training.epochs` says why): there the host steps, chain after chain.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc import diffusions
from jaxtyping import Array

from symbnn import keys, tree
from symbnn.density import Batch, tempered
from symbnn.inference.storage import program_checksum
from symbnn.inference.training.train import Problem
from symbnn.models.base import join_statistics
from symbnn.programs import KEPT_BARRIERS, has_convolution
from symbnn.types import Key, Params, Samples


class ChainState(NamedTuple):
    """Position, momentum (unused by `sgld`), and steps whose gradient was not finite."""

    position: Params
    momentum: Params
    num_nonfinite: Array


class Chains(NamedTuple):
    """What stays the same along all chains; leaves of the first two have a leading chain axis."""

    statistics: Params
    """Running statistics of a frozen network, else an empty dict."""
    keys: Key
    data: Batch


class Dynamics(NamedTuple):
    """What the compiled chain depends on."""

    algorithm: str
    friction: float
    batch_size: int


class Steps(NamedTuple):
    """Steps of one compiled chunk, each array `(draws, thinning)`."""

    number: Any
    size: Any
    temperature: Any


def _langevin(dynamics: Dynamics) -> Callable[..., tuple[Params, Params]]:
    step = diffusions.overdamped_langevin()
    return lambda key, state, *forces: (step(key, state.position, *forces), state.momentum)


def _hamiltonian(dynamics: Dynamics) -> Callable[..., tuple[Params, Params]]:
    step = diffusions.sghmc(dynamics.friction)
    return lambda key, state, *forces: step(key, state.position, state.momentum, *forces)


ALGORITHMS = {"sgld": _langevin, "sghmc": _hamiltonian}
"""(key, state, gradient, step size, temperature of the noise) -> (position, momentum)."""


@functools.partial(jax.jit, static_argnames=("problem", "dynamics"))
def run_compiled(
    problem: Problem, dynamics: Dynamics, chains: Chains, states: ChainState, steps: Steps
) -> tuple[ChainState, Samples]:
    """One chunk of every chain, with its draws on axis 1."""

    def chain(statistics: Params, key: Key, state: ChainState) -> tuple[ChainState, Samples]:
        own = Chains(statistics, key, chains.data)

        def step(state: ChainState, now: Steps) -> tuple[ChainState, None]:
            return _step(problem, dynamics, own, state, now), None

        def draw(state: ChainState, between: Steps) -> tuple[ChainState, Params]:
            state, _ = jax.lax.scan(step, state, between)
            return state, state.position

        return jax.lax.scan(draw, state, steps)

    return jax.vmap(chain)(chains.statistics, chains.keys, states)


def run_on_host(
    problem: Problem, dynamics: Dynamics, chains: Chains, states: ChainState, steps: Steps
) -> tuple[ChainState, Samples]:
    """`run_compiled` with its loops on the host, chain after chain: `training.epochs` says why."""
    ends, draws = [], []
    for index in range(len(chains.keys)):
        own = Chains(tree.take(chains.statistics, index), chains.keys[index], chains.data)
        state, positions = tree.take(states, index), []
        for between in zip(*steps, strict=True):
            for now in zip(*between, strict=True):
                state = _one_step(problem, dynamics, own, state, Steps(*now))
                # No further ahead of the device, as every step takes memory.
                jax.block_until_ready(state)
            positions.append(state.position)
        ends.append(state)
        draws.append(tree.stack(positions))
    return tree.stack(ends), tree.stack(draws)


def steps_on_host(problem: Problem, dynamics: Dynamics, states: ChainState, chains: Chains) -> bool:
    """Whether a step convolves on a CPU, where that is slow in a compiled loop."""
    if jax.default_backend() != "cpu":
        return False
    return has_convolution(_one_step.trace(problem, dynamics, *_first_step(states, chains)).jaxpr)


def step_checksum(problem: Problem, dynamics: Dynamics, states: ChainState, chains: Chains) -> str:
    """What a step computes, prior and temperature included: a name alone does not say."""
    return program_checksum(functools.partial(_step, problem, dynamics), *_first_step(states, chains))


def _first_step(states: ChainState, chains: Chains) -> tuple[Chains, ChainState, Steps]:
    """What a step of the first chain is called with."""
    own = Chains(tree.take(chains.statistics, 0), chains.keys[0], chains.data)
    return own, tree.take(states, 0), Steps(np.int32(0), np.float32(0), np.float32(0))


def _step(problem: Problem, dynamics: Dynamics, chain: Chains, state: ChainState, now: Steps) -> ChainState:
    """One step of one chain."""
    key_batch, key_noise = jax.random.split(jax.random.fold_in(keys.named(chain.keys, "sgmcmc"), now.number))
    gradient = estimated_gradient(problem, dynamics.batch_size, key_batch, state.position, chain)
    move = ALGORITHMS[dynamics.algorithm](dynamics)
    position, momentum = move(key_noise, state, gradient, now.size, now.temperature)
    return ChainState(position, momentum, state.num_nonfinite + ~tree.is_finite(gradient))


# The host steps on CPUs only.
_one_step = jax.jit(_step, static_argnums=(0, 1), compiler_options=KEPT_BARRIERS)


def estimated_gradient(problem: Problem, batch_size: int, key: Key, weights: Params, chain: Chains) -> Params:
    """Unbiased estimate of ∇ log-density from a minibatch drawn with replacement."""
    indices = jax.random.randint(key, (batch_size,), 0, problem.num_data)
    inputs, targets = (array[indices] for array in chain.data)

    def log_density(weights: Params) -> Array:
        outputs = problem.model.apply(join_statistics(weights, chain.statistics), inputs)
        log_likelihood = jnp.mean(problem.likelihood.log_prob(outputs, targets))
        log_prior = problem.prior.log_prob(weights)
        return tempered(problem.num_data * log_likelihood, log_prior, problem.temperature)

    return jax.grad(log_density)(weights)
