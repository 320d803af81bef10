"""A NumPyro user: their MCMC's draws in, and our samplers on their model."""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

from symbnn import inference, interop

x = jnp.linspace(-1.0, 1.0, 20)[:, None]


def network(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 3]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 0.5), obs=y)


data, size = (x, jnp.sin(3 * x[:, 0])), {"num_chains": 2, "num_samples": 30}
mcmc = MCMC(NUTS(network), num_warmup=50, chain_method="vectorized", progress_bar=False, **size)
mcmc.run(jax.random.key(0), *data)
theirs = interop.from_numpyro(mcmc)
ours = inference.nuts(num_burnin=300, **size)(jax.random.key(1), interop.numpyro_target(network, *data))
assert theirs.posterior.num_chains == ours.posterior.num_chains == 2
