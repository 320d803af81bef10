"""Stage 1: a mean and a standard deviation for every shared weight, trained around a deterministic network.

Per data point, with one draw w = μ + σ ε of the shared weights a step, the loss is

    -mean log p(y | x, w) + kl_weight · KL(N(μ, σ²) ‖ N(0, prior_std²)) / N

The released code trains without the KL and with small steps, which leaves σ where it started; with a
tempered KL and faster scales the plane of (μ, σ) really has two dimensions. Scales are kept divided by
`scale_speed`, so that a step of Adam moves them as many times faster than the means. Everything that is not
shared is trained too."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import keys, tree
from symbnn.density import Batch, Target
from symbnn.inference import Checkpoint, Recipe, ShowProgress
from symbnn.inference.training.epochs import Loss, fetch
from symbnn.inference.training.train import (
    NetworkLoss,
    Problem,
    Trained,
    problem_of,
    train,
    warn_nonfinite,
)
from symbnn.models import in_training
from symbnn.models.base import join_statistics, split_statistics
from symbnn.names import lookup
from symbnn.posteriors import DiagonalGaussian
from symbnn.sharing.layout import Layout, flatten, insert, is_kernel, layout_of
from symbnn.types import Key, Params

Wrap = Callable[[Loss], Loss]
"""Changes a loss, for instance by augmenting its batches; the result must be hashable."""


class ScaleMap(NamedTuple):
    """A map from an unbounded number to a standard deviation, and its inverse."""

    forward: Callable[[Array], Array]
    inverse: Callable[[float], float]


DELTA = 0.03
SCALE_MAPS = {
    "softplus": ScaleMap(jax.nn.softplus, lambda std: std + math.log(-math.expm1(-std))),
    # The released form, negative for small arguments; its absolute value is what multiplies the noise.
    "log_delta_exp": ScaleMap(
        lambda rho: jnp.abs(jnp.log(DELTA + jnp.exp(rho))), lambda std: math.log(math.exp(std) - DELTA)
    ),
}


class Stochastic(NamedTuple):
    """A stochastic network: means in `params` (with what is not shared), standard deviations flat."""

    params: Params
    stds: Array
    layout: Layout
    losses: Array

    def points(self) -> np.ndarray:
        """(mean, standard deviation) of every shared weight, (n, 2)."""
        return np.stack([np.asarray(flatten(self.layout, self.params)), np.asarray(self.stds)], axis=1)

    def posterior(self) -> DiagonalGaussian:
        """The same law as independent Gaussians, for evaluators."""
        zeros = jax.tree.map(jnp.zeros_like, self.params)
        return DiagonalGaussian(self.params, insert(self.layout, zeros, self.stds))


@dataclass(frozen=True)
class StochasticLoss:
    """The loss of `{"network": ..., "scales": (n,)}`."""

    problem: Problem
    layout: Layout
    scale_map: str
    scale_speed: float
    kl_weight: float
    prior_std: float

    def __call__(
        self, weights: Params, statistics: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Loss per data point and the new running statistics."""
        params = join_statistics(weights["network"], statistics)
        mean = flatten(self.layout, params)
        std = self.stds(weights["scales"])
        noise = jax.random.normal(keys.named(key, "weights"), mean.shape, mean.dtype)
        drawn = insert(self.layout, params, mean + std * noise)
        outputs, updated = in_training(self.problem.model, drawn, batch.inputs, key)
        loss = -jnp.mean(self.problem.likelihood.log_prob(outputs, batch.targets))
        if self.kl_weight:
            divergence = jnp.sum(gaussian_kl(mean, std**2, 0.0, self.prior_std**2))
            loss = loss + self.kl_weight * divergence / self.problem.num_data
        return loss, split_statistics(updated)[1]

    def stds(self, scales: Array) -> Array:
        """Standard deviations from the trained numbers."""
        return SCALE_MAPS[self.scale_map].forward(self.scale_speed * scales)


def gaussian_kl(mean: Any, variance: Any, prior_mean: Any, prior_variance: Any) -> Array:
    """KL(N(mean, variance) ‖ N(prior_mean, prior_variance)) in one dimension."""
    ratio = variance / prior_variance
    return 0.5 * (ratio + (mean - prior_mean) ** 2 / prior_variance - 1.0 - jnp.log(ratio))


def pretrain(
    key: Key,
    target: Target,
    recipe: Recipe,
    *,
    initial: Params | None = None,
    wrap: Wrap | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> tuple[Params, Array]:
    """Stage 0: one deterministic network by MAP training, with the loss of every epoch.

    `initial` is where it starts, by default the model's initialisation. `key`, `target`, `recipe`, `wrap`,
    `progress` (`"auto"`: a bar where somebody watches) and `checkpoint` are those of `train_stochastic`.
    """
    recipe.check_data(target.num_data)
    start = target.model.init(keys.named(key, "init")) if initial is None else initial
    tree.check_same_shapes("initial", start, jax.eval_shape(target.model.init, key))
    loss: Loss = NetworkLoss(problem_of(target), with_prior=True)
    weights, statistics = split_statistics(start)
    trained = train_one(
        key, target, loss, recipe, weights, statistics, wrap, progress, checkpoint, "pretraining"
    )
    return join_statistics(trained.weights, trained.statistics), trained.losses


def train_stochastic(
    key: Key,
    target: Target,
    recipe: Recipe,
    *,
    initial: Params | None = None,
    initial_std: float = 0.03,
    scale_map: str = "softplus",
    scale_speed: float = 100.0,
    kl_weight: float = 0.1,
    prior_std: float = 0.1,
    select: Callable[[str], bool] = is_kernel,
    wrap: Wrap | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> Stochastic:
    """Stage 1: a mean and a standard deviation for every weight that may be shared.

    Args:
        key: For the start, the batches and the draws.
        target: Model, likelihood and data.
        recipe: Of the training: epochs, batch size, optimiser.
        initial: A trained network; by default the model's initialisation.
        initial_std: Where the standard deviations start.
        scale_map: `"softplus"` or `"log_delta_exp"`: trained number to standard deviation.
        scale_speed: How much faster than the means the standard deviations are trained.
        kl_weight: Of the divergence from the prior.
        prior_std: Of the prior, a Gaussian about zero.
        select: Which leaves, by name, may be shared; by default kernels.
        wrap: Changes the loss, for instance by augmenting its batches.
        progress: As for every method of `inference`: `"auto"`, a callable, a tuple of such, or None.
        checkpoint: Where the state is kept (`io.TrainingStore(directory)`): a stopped training goes on.
    """
    recipe.check_data(target.num_data)
    mapping = lookup(SCALE_MAPS, scale_map, "scale map")
    if not initial_std > 0 or not scale_speed > 0 or not prior_std > 0 or kl_weight < 0:
        raise ValueError(
            "stochastic: initial_std, scale_speed and prior_std must be positive and kl_weight not negative; "
            f"got {initial_std}, {scale_speed}, {prior_std}, {kl_weight}"
        )
    start = target.model.init(keys.named(key, "init")) if initial is None else initial
    tree.check_same_shapes("initial", start, jax.eval_shape(target.model.init, key))
    layout = layout_of(start, select=select)
    # A dtype of its own: a weakly typed start would compile the training twice.
    scales = jnp.full((layout.num_weights,), mapping.inverse(initial_std) / scale_speed, jnp.float32)
    loss = StochasticLoss(problem_of(target), layout, scale_map, scale_speed, kl_weight, prior_std)
    network, statistics = split_statistics(start)
    weights = {"network": network, "scales": scales}
    trained = train_one(
        key, target, loss, recipe, weights, statistics, wrap, progress, checkpoint, "stochastic"
    )
    params = join_statistics(trained.weights["network"], trained.statistics)
    return Stochastic(params, loss.stds(trained.weights["scales"]), layout, trained.losses)


def gradient_magnitudes(
    key: Key, target: Target, stochastic: Stochastic, *, num_batches: int = 16, batch_size: int = 256
) -> Float[Array, " n"]:
    """Mean over `num_batches` batches of |∂ loss / ∂ μ_i|, each with its own draw of the weights."""
    loss = StochasticLoss(problem_of(target), stochastic.layout, "softplus", 1.0, 0.0, 1.0)
    network, statistics = split_statistics(stochastic.params)
    scales = jnp.log(jnp.expm1(stochastic.stds))
    weights = {"network": network, "scales": scales}
    total = jnp.zeros(stochastic.layout.num_weights)
    for batch, batch_key in random_batches(key, target.data, num_batches, batch_size):
        total = _add_magnitude(total, loss, weights, statistics, batch, batch_key)
    return total / num_batches


@functools.partial(jax.jit, static_argnames="loss", donate_argnames="total")
def _add_magnitude(
    total: Array, loss: StochasticLoss, weights: Params, statistics: Params, batch: Batch, key: Key
) -> Float[Array, " n"]:
    gradient, _ = jax.grad(loss, has_aux=True)(weights, statistics, batch, key)
    return total + jnp.abs(flatten(loss.layout, join_statistics(gradient["network"], statistics)))


def random_batches(key: Key, data: Batch, num_batches: int, batch_size: int) -> Iterator[tuple[Batch, Key]]:
    """Random examples with a key each; a batch is never larger than the data."""
    num_data = data.inputs.shape[0]
    shape = (num_batches, min(batch_size, num_data))
    indices = np.asarray(jax.random.randint(keys.named(key, "batches"), shape, 0, num_data))
    batch_keys = keys.indexed(key, 0, num_batches)
    for index in range(num_batches):
        yield fetch(data, indices[index]), batch_keys[index]


def train_one(
    key: Key,
    target: Target,
    loss: Loss,
    recipe: Recipe,
    weights: Params,
    statistics: Params,
    wrap: Wrap | None,
    progress: ShowProgress,
    checkpoint: Checkpoint | None,
    stage: str,
) -> Trained:
    """One run of `inference.training.train`; `ValueError` if it did not stay finite."""
    weights, statistics = _with_axis((weights, statistics))
    trained = train(
        loss if wrap is None else wrap(loss),
        recipe,
        keys.indexed(key, 0, 1),
        weights,
        statistics,
        target.data,
        progress=progress,
        checkpoint=checkpoint,
        stage=stage,
    )
    warn_nonfinite(stage, trained.num_nonfinite)
    result = _without_axis(trained)
    if not bool(jnp.isfinite(result.losses[-1])):
        raise ValueError(
            f"{stage}: the loss ended at {result.losses[-1]}; try an optimizer with a smaller learning rate"
        )
    return result


# Compiled as one program each: leaf by leaf every shape would be a program of its own.
_with_axis = jax.jit(lambda params: tree.take(params, None))
_without_axis = jax.jit(lambda params: tree.take(params, 0))
