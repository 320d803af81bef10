"""The target of inference: log p(D | w) + log p(w), divided by a temperature.

    log_density(w) = (Σ_i log p(y_i | f(x_i; w)) + log p(w)) / T

T = 1 is the posterior, T < 1 a cold one (Wenzel et al. 2020). The sum runs over all data, chunk by chunk.

A density that is no network's is a target too: `Target(init, log_density)` is enough for `hmc`, `nuts` and
`mclmc`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import tree
from symbnn.data import Streamed
from symbnn.density.chunked import default_chunk_size, sum_over_chunks
from symbnn.density.likelihoods import Likelihood, categorical
from symbnn.density.parts import LogDensity
from symbnn.density.priors import Prior, gaussian_prior
from symbnn.frameworks import check_model
from symbnn.models.base import has_batch_statistics, is_frozen, split_statistics
from symbnn.types import Key, Params


class Batch(NamedTuple):
    """Inputs (n, *input_shape) with their targets: labels (n,) or values (n, k)."""

    inputs: Any
    targets: Any


class Target(NamedTuple):
    """What inference methods see; all but `init` and `log_density` may be absent."""

    init: Callable[[Key], Params]
    """(key) -> where a chain starts; of `density.target`, a draw from the prior."""
    log_density: Callable[[Params], Array]
    """(params) -> log-density up to a constant, with the temperature in it; where it is a `LogDensity`,
    samplers use its parts."""
    log_likelihood: Callable[..., Array] | None = None
    """(params, batch=None, weights=None) -> Σ_i weights_i log p(y_i | x_i); over all data without a batch."""
    log_prior: Callable[[Params], Array] | None = None
    num_data: Any = None
    """Number of examples."""
    data: Any = None
    """A `Batch`."""
    model: Any = None
    likelihood: Any = None
    """A `Likelihood`."""
    prior: Any = None
    """A `Prior`."""
    temperature: float = 1.0
    constrain: Callable[[Any], Any] | None = None
    """(samples) -> the same in the coordinates of whoever wrote the density, if it is sampled in others."""


NETWORK = ("model", "data", "num_data", "likelihood", "prior")


def require_network(target: Target, method: str = "This method") -> None:
    """`ValueError` unless the target is that of a network with data, as `density.target` makes it."""
    missing = [name for name in NETWORK if getattr(target, name) is None]
    if missing:
        raise ValueError(
            f"{method} works on a network and its data, but the target has no {', '.join(missing)}; make it "
            "with density.target(model, data), or use hmc, nuts or mclmc, which need only its log_density"
        )


def target(
    model: Any,
    data: Any,
    *,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    temperature: float = 1.0,
    chunk_size: int | None = None,
) -> Target:
    """The posterior of `model` given `data` (anything with `inputs` and `targets`).

    Inputs that are `data.Streamed` stay on disk: for methods that train by minibatches.

    Defaults: categorical likelihood, N(0, 1) prior, temperature 1, chunks with 16 MB of activations.
    """
    check_model(model)
    likelihood = categorical() if likelihood is None else likelihood
    prior = gaussian_prior(1.0) if prior is None else prior
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    has_statistics = has_batch_statistics(shapes)
    full = _check_data(data, likelihood, model, shapes)
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite; got {temperature}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1; got {chunk_size}")
    prior.scales(_weights(shapes))
    size = chunk_size or default_chunk_size(model.apply, shapes, full.inputs)
    log_likelihood = _summed(model, likelihood, full, size)

    def log_prior(params: Params) -> Float[Array, ""]:
        return prior.log_prob(_weights(params))

    def init(key: Key) -> Params:
        if has_statistics:
            return {**model.init(key), "params": prior.sample(key, shapes["params"])}
        return prior.sample(key, shapes)

    def log_priors(params: Params) -> Params:
        return prior.log_probs(_weights(params))

    parts = LogDensity(log_likelihood, log_priors, float(temperature))
    refuse: Any = lambda params: refuse_batch_statistics(shapes)  # noqa: E731
    return Target(
        init=init,
        log_density=refuse if has_statistics and not is_frozen(model) else parts,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        num_data=full.inputs.shape[0],
        data=full,
        model=model,
        likelihood=likelihood,
        prior=prior,
        temperature=float(temperature),
    )


def refuse_batch_statistics(params: Params, model: Any = None) -> None:
    """`ValueError` for the tree of a net with batch normalisation, unless the model given is frozen."""
    if has_batch_statistics(params) and (model is None or not is_frozen(model)):
        raise ValueError(
            "Networks with BatchNorm have no per-example likelihood: their outputs depend on the whole "
            "batch, so Σ log p(y_i | x_i, w) is not defined; train it by an ensemble or SWAG, which take it, "
            "then hold its statistics, density.target(models.frozen(model), data), for variational, laplace, "
            "sgmcmc or dropout around the trained networks; for hmc, nuts and mclmc use a network without "
            "batch statistics (resnet20_frn, lenet, mlp, vit)"
        )


def _summed(model: Any, likelihood: Likelihood, full: Batch, chunk_size: int) -> Callable[..., Array]:
    """(params, batch=None, weights=None) -> the log-likelihood of `batch`, or of all data, chunk by chunk."""

    def examples(params: Params, inputs: Array, targets: Array) -> Float[Array, " n"]:
        return likelihood.log_prob(model.apply(params, inputs), targets)

    def log_likelihood(params: Params, batch: Batch | None = None, weights: Any = None) -> Float[Array, ""]:
        if batch is None and isinstance(full.inputs, Streamed):
            raise ValueError(
                "The inputs are streamed from disk, so their log-likelihood cannot be summed in one program; "
                "load them into memory, or use a method that trains by minibatches (ensemble, swag, ...)"
            )
        inputs, targets = full if batch is None else batch
        return sum_over_chunks(examples, params, inputs, targets, weights, chunk_size=chunk_size)

    return log_likelihood


def _weights(params: Params) -> Params:
    """The part of the tree that has a prior."""
    return split_statistics(params)[0]


def _check_data(data: Any, likelihood: Likelihood, model: Any, shapes: Any) -> Batch:
    """Data as a `Batch` of the network's dtype, or an error that says what does not fit."""
    dtypes = {str(leaf.dtype): name for name, leaf in tree.named_leaves(_weights(shapes)).items()}
    if len(dtypes) > 1:
        raise ValueError(
            f"All leaves of the network must have one dtype; it mixes {dtypes} (one leaf of each)"
        )
    streamed = isinstance(data.inputs, Streamed)
    inputs, targets = data.inputs if streamed else np.asarray(data.inputs), np.asarray(data.targets)
    if inputs.shape[0] == 0 or inputs.shape[0] != targets.shape[0]:
        raise ValueError(
            f"inputs and targets must have the same positive length; got {inputs.shape} and {targets.shape}"
        )
    dtype = jnp.dtype(next(iter(dtypes)))
    if not streamed:
        _refuse_nonfinite("inputs", inputs, dtype)
    _refuse_nonfinite("targets", targets, dtype)
    cast = inputs if streamed else jnp.asarray(inputs, dtype)
    outputs = jax.eval_shape(model.apply, shapes, jax.ShapeDtypeStruct(cast.shape, cast.dtype)).shape
    if likelihood.has_labels:
        return Batch(cast, jnp.asarray(_check_labels(targets, outputs, likelihood), jnp.int32))
    targets = targets[:, None] if targets.ndim == 1 else targets
    expected = likelihood.num_outputs(targets)
    if targets.ndim != 2 or (expected is not None and outputs[-1] != expected):
        raise ValueError(
            f"{likelihood.name} with targets {targets.shape} needs {expected} outputs; "
            f"the network has {outputs[-1]}"
        )
    _check_bounds(targets, likelihood)
    return Batch(cast, jnp.asarray(targets, cast.dtype))


def _refuse_nonfinite(name: str, array: np.ndarray, dtype: np.dtype) -> None:
    """`ValueError` with the first number that is not finite in the network's `dtype`."""
    if array.size == 0 or not jnp.issubdtype(array.dtype, jnp.floating):
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # The extremes tell, and need no second array of the data's size.
        if np.all(np.isfinite(np.stack([array.min(), array.max()]).astype(dtype))):
            return
        is_bad = ~np.isfinite(array.astype(dtype))
    first = tuple(int(i) for i in np.unravel_index(np.argmax(is_bad), array.shape))
    raise ValueError(
        f"{name} must be finite in {dtype}; {np.sum(is_bad)} of {array.size} numbers are not, "
        f"the first at index {first}: {array[first]}"
    )


def _check_labels(targets: np.ndarray, outputs: tuple[int, ...], likelihood: Likelihood) -> np.ndarray:
    if targets.shape != outputs[:-1] or not np.issubdtype(targets.dtype, np.integer):
        places = "".join(f", {size}" for size in outputs[1:-1])
        raise ValueError(
            f"{likelihood.name} takes integer labels (n{places or ','}); "
            f"got targets {targets.shape} of {targets.dtype}"
        )
    if targets.min() < 0 or targets.max() >= outputs[-1]:
        raise ValueError(
            f"labels must be in [0, {outputs[-1]}), the network's outputs; "
            f"got {targets.min()} to {targets.max()}"
        )
    return targets


def _check_bounds(targets: np.ndarray, likelihood: Likelihood) -> None:
    """`ValueError` with the first target outside the bounds of the likelihood."""
    if likelihood.bounds is None:
        return
    low, high = likelihood.bounds
    is_bad = (targets < low) | (targets > high)
    if np.any(is_bad):
        first = tuple(int(i) for i in np.unravel_index(np.argmax(is_bad), targets.shape))
        raise ValueError(
            f"{likelihood.name} takes targets in [{low:g}, {high:g}]; {np.sum(is_bad)} of {targets.size} are "
            f"not, the first at index {first}: {targets[first]}; scale them, or take another likelihood"
        )
