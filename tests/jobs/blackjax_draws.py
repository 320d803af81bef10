"""A BlackJAX user: states and infos of a scan over chains that step side by side."""

import blackjax
import jax
import jax.numpy as jnp

from symbnn import compact, interop


def log_density(params):
    return -0.5 * jnp.sum((params["w"] - 1.0) ** 2)


nuts = blackjax.nuts(log_density, step_size=0.5, inverse_mass_matrix=jnp.ones(3))
states = jax.vmap(nuts.init)({"w": jnp.zeros((4, 3))})


def step(states, key):
    return (moved := jax.vmap(nuts.step)(jax.random.split(key, 4), states))[0], moved


_, (states, info) = jax.lax.scan(step, states, jax.random.split(jax.random.key(0), 50))
fit = interop.from_blackjax(states.position, info, axes=("draws", "chains"))
print(compact.gaussian(fit.posterior).mean, fit.diagnostics["divergences"])
assert fit.posterior.num_chains == 4
