"""Refinement in function space: the aligned Gaussian, moved until it predicts as the samples do.

The aligned Gaussian q_r = N(μ, diag σ²) has the posterior's own marginals, and is therefore too noisy as
a predictor: what it lacks is their correlation. Starting from it, minimise over q = N(μ + σ∘m, diag (σ∘eˢ)²)

    mean over inputs x of  loss(reference at x, predictive of q at x)  +  penalty · KL(q || q_r)
    KL(q || q_r) = Σ_j (m_j² + e^{2 s_j} - 1) / 2 - s_j

where the reference is the predictive of the samples, probabilities of classes or mean and standard deviation
of real values (`compact.predictive_loss`), and the predictive of q is told from draws of pre-activations
(`posteriors.local_reparametrisation`: exact for the predictive of each input under independent weights).
m and s count in standard deviations of q_r, so the fit does not depend on the scale of the weights: rescaled
units (ReLU) or other units of measurement give the same steps. The components of a mixture of such Gaussians
are moved together, their weights stay; its penalty is the sum over the components.

The factors f_r of a Gaussian N(μ, diag σ² + Σ_r f_r f_rᵀ) move too (`compact.moves`). A draw of it is a
diagonal Gaussian around μ + Σ_r z_r f_r, with z the same for all inputs of a batch, so pre-activations are
drawn as before.

A small loss says nothing about how near q is to the posterior: a start without any alignment reaches it too,
by shrinking to nearly one network. So `displacement` belongs beside every result.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from symbnn import keys, names, tree
from symbnn.compact.moves import (
    Components,
    centre,
    components_of,
    displacement,
    divergence,
    law_like,
    marginals,
    moved,
    no_move,
)
from symbnn.compact.predictive_loss import CLASS_LOSSES, REAL_LOSSES, class_loss, real_loss
from symbnn.density import Batch, Likelihood, categorical, has_batch_statistics
from symbnn.evaluate import Mixture
from symbnn.inference import Fit, Recipe, ShowProgress
from symbnn.inference.base import check_count
from symbnn.inference.training.train import train, warn_nonfinite
from symbnn.models import Model
from symbnn.posteriors import Empirical, local_reparametrisation
from symbnn.types import Key, Params

BATCH_SIZE = 256
CATEGORICAL = categorical()


def refine(
    posterior: Any,
    model: Model,
    inputs: ArrayLike,
    reference_probs: Any,
    key: Key,
    *,
    likelihood: Likelihood | None = None,
    epochs: int = 100,
    batch_size: int | None = None,
    learning_rate: float = 1e-2,
    num_draws: int = 16,
    loss: str = "cross_entropy",
    penalty: float = 0.0,
    shrink: float = 1.0,
    progress: ShowProgress = "auto",
) -> Fit:
    """The law near `posterior` whose predictive on `inputs` is `reference_probs`.

    Args:
        posterior: What to start from, q_r: a `DiagonalGaussian`, a `LowRankGaussian`, or a `GaussianMixture`
            of such, where a weight of standard deviation zero is known and stays; or an `Empirical`, a few
            networks that then predict together as all samples do.
        model: The network.
        inputs: What the predictions are fitted on, e.g. training inputs and `mixed_up` ones.
        reference_probs: What `evaluate.predict` says of the samples there: probabilities
            `(inputs, classes)`, or, with a `likelihood` of real values, its `Mixture` of means and stds.
        key: For minibatches and draws.
        likelihood: What the outputs mean; by default logits of classes. `density.gaussian` or
            `density.heteroscedastic` for a regression.
        epochs: Passes over the inputs; none leaves the start as it is.
        batch_size: Inputs per step of Adam; by default 256, or all if there are fewer.
        learning_rate: First size of a step, in (log) standard deviations of the start; it falls to zero.
        num_draws: Draws of every pre-activation, of each component, that a prediction is averaged over.
        loss: `"cross_entropy"` between the two predictives; for classes also `"squared"`, for real values
            `"moments"`, which asks for mean and variance only.
        penalty: Weight of KL(q || q_r) in nats; of diagonal Gaussians only.
        shrink: The fit begins with this share of the standard deviations of `posterior`: below 1 where draws
            from it are so wide that they predict nothing, or overflow.
        progress: As for every method of `inference`: `"auto"`, a callable, a tuple of such, or None.

    Diagnostics: `loss` (epochs,), with the penalty; `num_nonfinite`; and the `Displacement` of the single
    weights' laws from the start.
    """
    likelihood = CATEGORICAL if likelihood is None else likelihood
    check_count("epochs", epochs, least=0)
    _check_loss(likelihood, loss, num_draws)
    if not 0 <= penalty < float("inf"):
        raise ValueError(f"penalty must be at least 0 and finite; got {penalty}")
    if not 0 < shrink <= 1:
        raise ValueError(f"shrink must be above 0 and at most 1; got {shrink}")
    shares, start = components_of(posterior)
    if penalty and (start.factors is not None or isinstance(posterior, Empirical)):
        raise ValueError("penalty is of diagonal Gaussians only; leave it at 0 for factors or networks")
    data = _checked(model, start, inputs, reference_probs, likelihood)
    weights = no_move(start, shrink if epochs else 1.0)
    losses, num_nonfinite = jnp.zeros(0), jnp.int32(0)
    if epochs:
        size = min(BATCH_SIZE, len(data.targets)) if batch_size is None else batch_size
        recipe = Recipe(epochs, size, _adam(learning_rate, max(1, epochs * (len(data.targets) // size))))
        # Arrays that are not trained, so that another start or penalty of the same shape compiles nothing.
        constants = {**start._asdict(), "shares": shares, "penalty": jnp.float32(penalty)}
        members, settings = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (weights, constants))
        objective = RefinementLoss(model.apply, likelihood, loss, num_draws)
        trained = train(
            objective, recipe, key[None], members, settings, data, progress=progress, stage="refinement"
        )
        warn_nonfinite("refinement", trained.num_nonfinite)
        one = tree.take(trained, 0)
        weights, losses, num_nonfinite = one.weights, one.losses, one.num_nonfinite
    law = law_like(posterior, shares, moved(start, weights))
    measured = displacement(marginals(law), marginals(posterior))._asdict()
    return Fit(law, {"loss": losses, "num_nonfinite": num_nonfinite, **measured})


def mixed_up(key: Key, inputs: ArrayLike, num: int) -> Float[Array, "num ..."]:
    """`num` points λ x + (1 - λ) x' between two random inputs each, λ uniform: where training data is rare.

    Zhang et al. (2018), "mixup"; without labels, which the reference's prediction replaces.
    """
    inputs = jnp.asarray(inputs)
    check_count("num", num)
    if inputs.ndim < 1 or not len(inputs):
        raise ValueError(f"inputs must have a leading axis of at least one; got shape {inputs.shape}")
    key_pairs, key_share = jax.random.split(key)
    first, second = jax.random.randint(key_pairs, (2, num), 0, len(inputs))
    share = jax.random.uniform(key_share, (num,), inputs.dtype).reshape(num, *(1,) * (inputs.ndim - 1))
    return share * inputs[first] + (1.0 - share) * inputs[second]


# The same object for the same settings: compiled steps are known by it.
@functools.cache
def _adam(learning_rate: float, num_steps: int) -> optax.GradientTransformation:
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive; got {learning_rate}")
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))


@dataclass(frozen=True)
class RefinementLoss:
    """Objective of `{"shift": m, "log_ratio": s}`; the start and the penalty come as constants."""

    apply: Callable[[Params, Any], Array]
    likelihood: Likelihood
    loss: str
    num_draws: int

    def __call__(
        self, weights: Params, constants: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Mean loss over the minibatch plus the penalty; the constants stay as they are."""
        start = Components(*(constants[part] for part in Components._fields))
        law, shares = moved(start, weights), constants["shares"]
        draw = local_reparametrisation(self.apply)

        def of_component(draw_keys: Key, mean: Params, std: Params, factors: Params | None) -> Array:
            def one(draw_key: Key) -> Array:
                around = centre(keys.named(draw_key, "factors"), mean, factors)
                return draw(draw_key, around, std, batch.inputs)

            return jax.vmap(one)(draw_keys)

        draw_keys = jax.random.split(key, (len(shares), self.num_draws))
        outputs = jax.vmap(of_component)(draw_keys, law.mean, law.std, law.factors)
        if self.likelihood.has_labels:
            each = class_loss(self.loss, shares, outputs, batch.targets)
        else:
            key_targets = keys.named(key, "targets")
            each = real_loss(self.loss, self.likelihood, key_targets, shares, outputs, batch.targets)
        apart = jax.tree.map(divergence, weights["shift"], weights["log_ratio"])
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(apart))
        return jnp.mean(each) + constants["penalty"] * total, constants


def _check_loss(likelihood: Likelihood, loss: str, num_draws: int) -> None:
    if not likelihood.has_labels and likelihood.spread is None:
        raise ValueError(f"refine takes classes or real-valued targets, not those of {likelihood.name}")
    names.lookup(CLASS_LOSSES if likelihood.has_labels else REAL_LOSSES, loss, "loss")
    # The variance of real-valued predictions needs two draws.
    check_count("num_draws", num_draws, least=1 if likelihood.has_labels else 2)


def _checked(
    model: Model, start: Components, inputs: ArrayLike, reference: Any, likelihood: Likelihood
) -> Batch:
    """Inputs and reference as one set of data; `ValueError` if they do not fit the network."""
    mean = tree.take(start.mean, 0)
    if has_batch_statistics(mean):
        raise ValueError("networks with batch statistics cannot be refined; use one without BatchNorm")
    tree.check_same_shapes("posterior.mean", mean, jax.eval_shape(model.init, jax.random.key(0)))
    inputs = jnp.asarray(inputs)
    if model.input_shape is not None and inputs.shape[1:] != tuple(model.input_shape):
        raise ValueError(f"inputs must have shape (inputs, *{model.input_shape}); got {inputs.shape}")
    outputs = jax.eval_shape(model.apply, mean, inputs)
    if likelihood.has_labels:
        return Batch(inputs, _checked_probs(reference, outputs.shape))
    return Batch(inputs, _checked_moments(reference, jax.eval_shape(likelihood.predictive, outputs).shape))


def _checked_probs(reference: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(reference, Mixture):
        raise ValueError(
            "reference_probs are means and stds of real values, but the outputs are taken for logits of "
            "classes; give the likelihood that they were predicted with"
        )
    probs = jnp.asarray(reference)
    if probs.shape != shape:
        raise ValueError(f"reference_probs must have shape {shape}, one row per input; got {probs.shape}")
    if not bool(jnp.all(probs >= 0)) or not bool(jnp.all(jnp.abs(probs.sum(-1) - 1.0) < 1e-3)):
        raise ValueError("reference_probs must be probabilities: at least 0, every row with sum 1")
    return probs


def _checked_moments(reference: Any, shape: tuple[int, ...]) -> Array:
    """Means, then standard deviations, of every input."""
    if not isinstance(reference, Mixture) or reference.mean.shape != shape:
        found = reference.mean.shape if isinstance(reference, Mixture) else type(reference).__name__
        raise ValueError(
            "reference_probs of real values must be what evaluate.predict(..., likelihood=...) gives "
            f"without members=True, with means of shape {shape}; got {found}"
        )
    both = jnp.concatenate([reference.mean, reference.std], axis=-1)
    if not bool(jnp.all(jnp.isfinite(both))) or not bool(jnp.all(reference.std > 0)):
        raise ValueError("reference_probs must have finite means and positive, finite standard deviations")
    return both
