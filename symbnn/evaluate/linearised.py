"""The predictive of the network linearised at the mean of a Gaussian over its weights.

    f(x; w) ≈ f(x; μ) + J(x) (w - μ),   w ~ N(μ, Σ),   so   f(x) ~ N( f(x; μ), J(x) Σ J(x)ᵀ )

    predict_linearised(model.apply, posterior, inputs)                                   # class probabilities
    predict_linearised(model.apply, posterior, inputs, likelihood=density.gaussian(0.1))    # mean and spreads

For every law that knows its mean and its `loadings` (`posteriors.Gaussian`): Laplace, whose curvature is that
of this linear network (Khan et al. 2019; Immer et al. 2021), SWAG, variational Gaussians, and mixtures of
them. No weights are drawn: an input costs one backward pass per output. Memory is that of the Jacobians of
one block of inputs.

Real-valued targets have a closed form. Probabilities E[softmax(f)] have none; `link` says how they are got:

| link          | E[softmax(f)], f ~ N(m, C)                                                 |
|---------------|----------------------------------------------------------------------------|
| `probit`      | softmax(m / √(1 + π/8 diag C)) (MacKay 1992)                               |
| `bridge`      | mean of the Dirichlet of Laplace's bridge (Hobbhahn et al. 2022)           |
| `monte_carlo` | mean over `num_samples` draws of f                                         |
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import chains, tree
from symbnn.density import Likelihood, categorical
from symbnn.evaluate.given import Apply
from symbnn.evaluate.mixture import Mixture
from symbnn.evaluate.stream import check_inputs, map_blocks, widened
from symbnn.frameworks import check_apply
from symbnn.names import lookup
from symbnn.posteriors import Gaussian, GaussianMixture
from symbnn.types import Key

CATEGORICAL = categorical()
ELEMENTS_PER_BLOCK = 2**22
"""Of the Jacobians of one block: 16 MB in float32."""


class Outputs(NamedTuple):
    """The law of the outputs at every input."""

    mean: Float[Array, "n c"]
    covariance: Float[Array, "n c c"]


def linearised(apply: Apply, posterior: Any, inputs: Any, *, block_inputs: int | None = None) -> Outputs:
    """Mean and covariance of the outputs of the linearised network, at each input.

    Args:
        apply: `(params, inputs) -> outputs` of one network.
        posterior: A Gaussian over the weights, or the `Fit` that holds it.
        inputs: `(inputs, ...)`.
        block_inputs: Inputs whose Jacobians are held at a time; by default as many as take 16 MB.
    """
    gaussian = _gaussian(posterior)
    size = _block(apply, gaussian, inputs, block_inputs)
    return _outputs(apply, size, gaussian, jnp.asarray(inputs))


def predict_linearised(
    apply: Apply,
    posterior: Any,
    inputs: Any,
    *,
    likelihood: Likelihood | None = None,
    link: str = "probit",
    block_inputs: int | None = None,
    key: Key | None = None,
    num_samples: int | None = None,
) -> Any:
    """What the linearised network predicts.

    Args:
        apply: `(params, inputs) -> outputs` of one network.
        posterior: A Gaussian over the weights, a `GaussianMixture`, or the `Fit` that holds one.
        inputs: `(inputs, ...)`.
        likelihood: What the outputs mean, one of `symbnn.density`; by default logits of classes.
        link: How outputs become probabilities; real-valued targets need none.
        block_inputs: Inputs whose Jacobians are held at a time; by default as many as take 16 MB.
        key: Draws outputs, for `monte_carlo`.
        num_samples: How many draws.

    Returns:
        As `predict`: probabilities `(inputs, classes)`, or a `Mixture` for real-valued targets.
    """
    likelihood = CATEGORICAL if likelihood is None else likelihood
    _check_link(likelihood, link, key, num_samples)
    law = chains.keeper(posterior)
    is_mixture = isinstance(law, GaussianMixture)
    components = [tree.take(law.components, k) for k in range(law.num_components)] if is_mixture else [law]
    size = _block(apply, _gaussian(components[0]), inputs, block_inputs, num_samples or 1)
    how = _How(likelihood, link, size, num_samples or 0)
    each = [_predicted(apply, how, component, jnp.asarray(inputs), key) for component in components]
    return _mixed(each, law.weights) if is_mixture else each[0]


class _How(NamedTuple):
    """What a compiled prediction depends on besides the network."""

    likelihood: Likelihood
    link: str
    block_inputs: int
    num_samples: int


@functools.partial(jax.jit, static_argnums=(0, 1))
def _outputs(apply: Apply, size: int, gaussian: Gaussian, inputs: jax.Array) -> Outputs:
    return map_blocks(lambda x: _at(apply, gaussian, x), (inputs,), size)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predicted(apply: Apply, how: _How, gaussian: Gaussian, inputs: jax.Array, key: Key | None) -> Any:
    def at(inputs: jax.Array, index: jax.Array) -> Any:
        outputs = _at(apply, gaussian, inputs)
        if how.likelihood.spread is not None:
            return _real(how.likelihood, outputs)
        return LINKS[how.link](how, outputs, key, index)

    return map_blocks(at, (inputs, jnp.arange(inputs.shape[0])), how.block_inputs)


def _at(apply: Apply, gaussian: Gaussian, inputs: jax.Array) -> Outputs:
    """The law of the outputs at some inputs, from the Jacobian of each."""
    mean = gaussian.mean

    def one(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        outputs, pullback = jax.vjp(lambda params: apply(params, x[None])[0], mean)
        (rows,) = jax.vmap(pullback)(jnp.eye(outputs.shape[-1], dtype=outputs.dtype))
        loadings = tree.matrix(jax.vmap(gaussian.loadings)(rows))
        return outputs, loadings @ loadings.T

    return Outputs(*map(widened, jax.vmap(one)(inputs)))


def _real(likelihood: Likelihood, outputs: Outputs) -> Mixture:
    """Moments of real-valued targets, whose mean and log-spread must be linear in the outputs."""
    assert likelihood.spread is not None
    spread = likelihood.spread

    def variances(function: Any, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        slopes = jax.jacobian(function)(mean)
        return jnp.einsum("kc,cd,kd->k", slopes, covariance, slopes)

    def one(mean: jax.Array, covariance: jax.Array) -> Mixture:
        epistemic = variances(likelihood.predictive, mean, covariance)
        log_spread = variances(lambda f: jnp.log(spread(f)), mean, covariance)
        # E[exp(2 s)] of a Gaussian s.
        aleatoric = jnp.square(spread(mean)) * jnp.exp(2.0 * log_spread)
        spreads = map(jnp.sqrt, (aleatoric + epistemic, aleatoric, epistemic))
        return Mixture(likelihood.predictive(mean), *spreads)

    return jax.vmap(one)(*outputs)


def _probit(how: _How, outputs: Outputs, key: Key | None, index: jax.Array) -> jax.Array:
    variance = jnp.diagonal(outputs.covariance, axis1=1, axis2=2)
    return how.likelihood.predictive(outputs.mean / jnp.sqrt(1.0 + math.pi / 8.0 * variance))


def _bridge(how: _How, outputs: Outputs, key: Key | None, index: jax.Array) -> jax.Array:
    """The Dirichlet with the mean and the variances of the outputs, conditioned to sum to zero."""
    mean, covariance = outputs
    num_classes = mean.shape[-1]
    to_sum, total = covariance.sum(-1), covariance.sum((-2, -1))[:, None]
    known = how.likelihood.predictive(mean)
    is_known = jnp.all(jnp.diagonal(covariance, axis1=1, axis2=2) == 0, axis=-1, keepdims=True)
    # One in place of what is not used: zero by zero.
    to_sum, total = jnp.where(is_known, 0.0, to_sum), jnp.where(is_known, 1.0, total)
    mean = mean - to_sum * mean.sum(-1, keepdims=True) / total
    variance = jnp.diagonal(covariance, axis1=1, axis2=2) - jnp.square(to_sum) / total
    variance = jnp.where(is_known, 1.0, variance)
    ratios = mean + jax.nn.logsumexp(-mean, axis=-1, keepdims=True) - 2.0 * math.log(num_classes)
    rest = math.log(1.0 - 2.0 / num_classes) if num_classes > 2 else -math.inf
    bridged = jax.nn.softmax(jnp.logaddexp(rest, ratios) - jnp.log(variance), axis=-1)
    return jnp.where(is_known, known, bridged)


def _monte_carlo(how: _How, outputs: Outputs, key: Key | None, index: jax.Array) -> jax.Array:
    """Draws of an input come from its index, so blocks do not matter."""
    assert key is not None
    values, vectors = jnp.linalg.eigh(outputs.covariance)
    roots = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]

    def one(mean: jax.Array, root: jax.Array, index: jax.Array) -> jax.Array:
        shape = how.num_samples, mean.shape[-1]
        noise = jax.random.normal(jax.random.fold_in(key, index), (math.prod(shape),), mean.dtype)
        return jnp.mean(how.likelihood.predictive(mean + noise.reshape(shape) @ root.T), axis=0)

    return jax.vmap(one)(outputs.mean, roots, index)


LINKS = {"probit": _probit, "bridge": _bridge, "monte_carlo": _monte_carlo}


def _mixed(each: list[Any], weights: jax.Array) -> Any:
    """The prediction of a mixture from those of its components."""
    stacked = tree.stack(each)
    if not isinstance(stacked, Mixture):
        return jnp.tensordot(weights, stacked, axes=1)
    mean = jnp.tensordot(weights, stacked.mean, axes=1)
    between = jnp.square(stacked.mean - mean)
    aleatoric = jnp.tensordot(weights, jnp.square(stacked.aleatoric), axes=1)
    epistemic = jnp.tensordot(weights, jnp.square(stacked.epistemic) + between, axes=1)
    return Mixture(mean, *map(jnp.sqrt, (aleatoric + epistemic, aleatoric, epistemic)))


def _gaussian(posterior: Any) -> Gaussian:
    """The Gaussian that was given; `ValueError` for anything else."""
    law = chains.keeper(posterior)
    if isinstance(law, GaussianMixture):
        raise ValueError(
            "the outputs of a mixture are not Gaussian; take one of its components, or predict_linearised"
        )
    if not isinstance(law, Gaussian):
        raise ValueError(
            "a network is linearised at the mean of a Gaussian over its weights (laplace, swag, variational, "
            f"compact.gaussian); got {type(law).__name__}: average its networks by evaluate.predict"
        )
    return law


def _check_link(likelihood: Likelihood, link: str, key: Key | None, num_samples: int | None) -> None:
    lookup(LINKS, link, "link")
    is_drawn = link == "monte_carlo" and likelihood.spread is None
    if is_drawn != (key is not None) or is_drawn != (num_samples is not None):
        raise ValueError(
            "key and num_samples belong to link='monte_carlo' of probabilities, which needs both; got "
            f"link={link!r} for {likelihood.name}, key {'given' if key is not None else 'missing'}, "
            f"num_samples={num_samples}"
        )
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"num_samples: expected a positive integer, got {num_samples}")
    if link == "bridge" and likelihood.spread is None and not likelihood.has_labels:
        raise ValueError(f"link='bridge' is for class labels; {likelihood.name} has none: take probit")


def _block(
    apply: Apply, gaussian: Gaussian, inputs: Any, block_inputs: int | None, num_samples: int = 1
) -> int:
    """Inputs that are taken at a time, after checking what was given."""
    check_apply(apply)
    if block_inputs is None:
        check_inputs(inputs, 1, 1)
        one = jax.ShapeDtypeStruct((1, *np.shape(inputs)[1:]), jnp.asarray(inputs[:1]).dtype)
        num_outputs = jax.eval_shape(apply, gaussian.mean, one).shape[-1]
        per_input = num_outputs * max(tree.num_weights(gaussian.mean), num_samples)
        block_inputs = max(1, ELEMENTS_PER_BLOCK // per_input)
    check_inputs(inputs, 1, block_inputs)
    return block_inputs
