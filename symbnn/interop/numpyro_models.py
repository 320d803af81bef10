"""NumPyro models as targets, so that the samplers of `inference` run on them.

    target = interop.numpyro_target(model, inputs, y=outputs)
    fit = inference.nuts(num_samples=1000)(key, target)
    values = target.constrain(fit.posterior.samples)       # as NumPyro's own `get_samples()`

Sampling happens in unconstrained space: a site with bounded support is a number on the whole line, with the
Jacobian of the map in the density.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.util import initialize_model

from symbnn.density import Target
from symbnn.types import Key, Params


def numpyro_target(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Target:
    """The posterior of a NumPyro `model` called with these arguments; observed sites are the data.

    `init` draws as NumPyro does, uniform on (-2, 2) in unconstrained space where the density is finite;
    `log_density` is minus NumPyro's potential energy; `constrain(samples)` maps samples with a leading axis
    to the values of all latent and deterministic sites.
    """
    _check_sites(model, args, kwargs)

    def initialised(key: Key) -> Any:
        return initialize_model(key, model, model_args=args, model_kwargs=kwargs)

    # One call outside of jit, where NumPyro can say that no start has a finite density.
    first = initialised(jax.random.key(0))

    def log_density(params: Params) -> Array:
        return -first.potential_fn(params)

    return Target(
        init=lambda key: initialised(key).param_info.z,
        log_density=log_density,
        constrain=jax.vmap(first.postprocess_fn),
    )


def _check_sites(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`ValueError` if there is nothing to sample, or something that has no gradient."""
    seeded = handlers.seed(model, jax.random.key(0))
    sites = handlers.trace(seeded).get_trace(*args, **kwargs)
    latent = {
        name: site for name, site in sites.items() if site["type"] == "sample" and not site["is_observed"]
    }
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"The NumPyro model has discrete latent sites {discrete}, which have no gradient; sum over them "
            "in the model, or sample it with NumPyro's own DiscreteHMCGibbs"
        )
    if not latent:
        raise ValueError(
            f"The NumPyro model has no latent sites to sample; all of its sites {list(sites)} are observed "
            "or deterministic"
        )
    plates = {name: site["args"] for name, site in sites.items() if site["type"] == "plate"}
    subsampled = [name for name, (size, part) in plates.items() if part not in (None, size)]
    if subsampled:
        raise ValueError(
            f"The NumPyro model subsamples its plates {subsampled}, so its density is random; give it all "
            "data"
        )
