"""The ensemble with the orders of its units through training, and draws of a chain."""

from typing import Any

import jax
import jax.numpy as jnp

from experiments.common import methods
from experiments.common.problem import Problem
from experiments.diversity import exchange
from experiments.harness.rundir import Run
from symbnn import keys, symmetry
from symbnn.symmetry.gauges import incoming
from symbnn.types import Params, Samples


def train(problem: Problem, run: Run) -> dict[str, Any]:
    """Networks from independent starts, and for every layer Kendall's τ (network, epoch)."""
    training, spec = problem.config.training, problem.model.spec
    fit = methods.ensemble(
        keys.named(problem.key, "ensemble"),
        problem.target,
        training,
        num_members=problem.config.num_networks,
        optimizer="momentum",
        momentum=training.momentum,
        schedule="step",
        milestones=training.milestones,
        objective="mle",
        members_per_block=training.members_per_block,
        snapshots=tuple(range(training.epochs_between, training.num_epochs + 1, training.epochs_between)),
        checkpoint=run.training("networks"),
    )

    def order(params: Params) -> dict[str, jax.Array]:
        return {
            name: jnp.argsort(-jnp.max(incoming(spec, spec.group(name), params), axis=-1))
            for name in exchange.layers(spec)
        }

    orders = jax.jit(jax.vmap(jax.vmap(order)))(fit.diagnostics["snapshots"])
    taus = {name: symmetry.kendall_tau(each[:, 1:], each[:, :-1]) for name, each in orders.items()}
    return {"samples": fit.posterior.samples, "taus": taus}


def sample(problem: Problem) -> Samples:
    """Draws of one chain."""
    key, chain = keys.named(problem.key, "hmc"), problem.config.chain
    fit = methods.hmc(key, problem.target, chain, num_chains=1, num_samples=chain.num_samples)
    return fit.posterior.samples
