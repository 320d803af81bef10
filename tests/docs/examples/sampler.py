"""A sampler of your own: random-walk Metropolis. Chains, devices and diagnostics come with the driver."""

import jax
import jax.numpy as jnp

from symbnn import density
from symbnn.inference import Info, Kernel, PositionState, Run, adaptation, driver


def step(key, state, tuning, log_density):
    key_move, key_accept = jax.random.split(key)
    noise = density.draw_like(key_move, state.position)
    proposal = jax.tree.map(lambda w, e: w + tuning.step_size * e, state.position, noise)
    old, new = log_density(state.position), log_density(proposal)
    acceptance = jnp.minimum(1.0, jnp.exp(new - old))
    accept = jax.random.uniform(key_accept) < acceptance
    position = jax.tree.map(lambda a, b: jnp.where(accept, a, b), proposal, state.position)
    return PositionState(position), Info(acceptance, jnp.where(accept, new, old))


kernel = Kernel(lambda key, position, log_density: PositionState(position), step)
target = density.Target(
    init=lambda key: {"w": jax.random.normal(key, (2,))},
    log_density=lambda params: -0.5 * jnp.sum(params["w"] ** 2),
)
run = Run(num_chains=2, num_samples=50, num_burnin=10, progress=None)
fit = driver.run(jax.random.key(0), target, kernel, adaptation.fixed(step_size=1.0), run)
assert fit.posterior.num_chains == 2
assert 0.2 < fit.diagnostics["acceptance"].mean() < 1.0
