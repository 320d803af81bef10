"""What NumPyro's MCMC has drawn, as a `Fit`.

mcmc = numpyro.infer.MCMC(NUTS(model), num_warmup=500, num_samples=1000, num_chains=4)
mcmc.run(key, inputs, outputs, extra_fields=("potential_energy", "accept_prob"))
fit = interop.from_numpyro(mcmc)
probs = evaluate.predict(apply, posteriors.Empirical(fit.posterior.samples["nn"], num_chains=4), inputs)
"""

import re
from typing import Any

import numpy as np
from numpyro.infer import MCMC

from symbnn.inference import Fit
from symbnn.interop.names import renamed
from symbnn.interop.statistics import diagnostics
from symbnn.posteriors import Empirical


def from_numpyro(mcmc: Any) -> Fit:
    """The draws of a `numpyro.infer.MCMC` after `run`: its posterior is an `Empirical` that knows the chains.

    Samples are `mcmc.get_samples()`: all latent sites in their own (constrained) space and the deterministic
    ones. Names with a slash are nested: the sites `nn/Dense_0.kernel` of `random_flax_module("nn", ...)` are
    `samples["nn"]["Dense_0"]["kernel"]`, so that `samples["nn"]` is what the module takes.

    Args:
        mcmc: After `mcmc.run(...)`; after `warmup` alone there are no draws.

    Diagnostics, as far as NumPyro kept them: `acceptance`, `divergences` and `step_size` (chains,); with
    `extra_fields` also `log_density` (from `potential_energy`: over unconstrained space, with the Jacobian),
    `acceptance_rate` (from `accept_prob`), `num_steps`, `energy` and others by their names (chains, draws).
    """
    if not isinstance(mcmc, MCMC):
        raise ValueError(
            f"from_numpyro takes a numpyro.infer.MCMC; got a {type(mcmc).__name__}. Samples alone come in by "
            "posteriors.Empirical.from_chains(mcmc.get_samples(group_by_chain=True))"
        )
    state = mcmc.last_state
    if state is None or _is_warm_only(mcmc):
        reason = "has not run" if state is None else "has run its warm-up only"
        raise ValueError(f"this MCMC {reason}, so it has no samples; call mcmc.run(key, ...) first")
    samples = mcmc.get_samples(group_by_chain=True)
    if not samples:
        raise ValueError("this MCMC has no samples: its model has no latent site, or all were left out")
    posterior = Empirical.from_chains(renamed(samples))
    fields = mcmc.get_extra_fields(group_by_chain=True)
    of_draws = {re.sub(r"^((adapt|hmc)_state\.)+", "", name): values for name, values in fields.items()}
    known = diagnostics(of_draws, posterior.num_chains)
    return Fit(posterior, {**_of_last_state(state), **known})


def _is_warm_only(mcmc: MCMC) -> bool:
    """After `warmup` NumPyro hands out arrays of zeros. A state may also be set to go on from: then it counts
    more transitions than those of the warm-up."""
    state = mcmc.last_state
    return mcmc.post_warmup_state is state and bool(np.all(getattr(state, "i", 0) <= mcmc.num_warmup))


def _of_last_state(state: Any) -> dict[str, Any]:
    """Means over the draws and step sizes per chain, which HMC and NUTS keep in their state."""
    state = getattr(state, "hmc_state", state)
    known = {
        "acceptance": getattr(state, "mean_accept_prob", None),
        "step_size": getattr(getattr(state, "adapt_state", None), "step_size", None),
    }
    return {name: np.atleast_1d(value) for name, value in known.items() if value is not None}
