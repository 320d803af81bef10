"""Stage 3: components and outliers trained by stochastic gradients on the bound of `sharing.objective`.

Trained are the centres, the standard deviations (through softplus), the Cholesky factors (logarithms of the
diagonal, and the slant l₂/l₃) and the outliers' means and standard deviations; labels and blends are not.
Numbers behind softplus and logarithms are kept divided by `scale_speed`, so that Adam moves them as many
times faster: at one speed the centres converge while the noise hardly moves. Running statistics follow the
drawn networks."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbnn import keys, tree
from symbnn.density import Batch, Target, has_batch_statistics
from symbnn.inference import Checkpoint, Recipe, ShowProgress
from symbnn.inference.training.train import Problem, problem_of
from symbnn.models import in_training
from symbnn.sharing.layout import insert
from symbnn.sharing.objective import Objective
from symbnn.sharing.posterior import SharedWeights
from symbnn.sharing.stochastic import Wrap, random_batches, train_one
from symbnn.types import Key, Params

SMALLEST_SCALE = 1e-8


class TrainedSharing(NamedTuple):
    """The trained posterior with the loss of every epoch."""

    shared: SharedWeights
    losses: Array


@dataclass(frozen=True)
class SharedLoss:
    """Negative bound per data point. Statistics are `{"shared": SharedWeights, "prior": PriorTables}`.

    The arrays of the posterior travel with the statistics because a loss is static to jit: labels of ten
    million weights must not become constants of the program.
    """

    problem: Problem
    objective: Objective
    scale_speed: float

    def __call__(
        self, weights: Params, statistics: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Loss, and the statistics with the network's running ones brought up to date."""
        shared = rebuild(statistics["shared"], weights, self.scale_speed)
        loss, fixed = negative_log_likelihood(self.problem, shared, batch, key)
        if self.objective.kl_weight:
            divergence = self.objective.divergence_of(shared, statistics["prior"])
            loss = loss + self.objective.kl_weight * divergence / self.problem.num_data
        carried = dataclasses.replace(statistics["shared"], fixed=fixed)
        return loss, {"shared": carried, "prior": statistics["prior"]}


def negative_log_likelihood(
    problem: Problem, shared: SharedWeights, batch: Batch, key: Key
) -> tuple[Float[Array, ""], Params]:
    """Mean over the batch under one shared draw, and the fixed part with new running statistics."""
    params = insert(shared.layout, shared.fixed, shared.draw(keys.named(key, "weights")))
    outputs, updated = in_training(problem.model, params, batch.inputs, key)
    fixed = shared.fixed
    if has_batch_statistics(fixed):
        fixed = {"params": fixed["params"], "batch_stats": updated["batch_stats"]}
    return -jnp.mean(problem.likelihood.log_prob(outputs, batch.targets)), fixed


def train_shared(
    key: Key,
    target: Target,
    shared: SharedWeights,
    recipe: Recipe,
    *,
    objective: Objective | None = None,
    deterministic: np.ndarray | None = None,
    scale_speed: float = 30.0,
    train_fixed: bool = False,
    wrap: Wrap | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> TrainedSharing:
    """Stage 3: components and outliers trained together.

    Args:
        key: For the batches and the draws.
        target: Model, likelihood and data.
        shared: Where to start, of `share`.
        recipe: Of the training: epochs, batch size, optimiser.
        objective: The bound; by default `Objective()`.
        deterministic: Flat Stage-0 weights, for the prior `pretrained`.
        scale_speed: How much faster than the means the standard deviations are trained.
        train_fixed: Whether biases and normalisation parameters are trained as well.
        wrap: Changes the loss, for instance by augmenting its batches.
        progress: As for every method of `inference`: `"auto"`, a callable, a tuple of such, or None.
        checkpoint: Where the state is kept (`io.TrainingStore(directory)`): a stopped training goes on.
    """
    objective = Objective() if objective is None else objective
    recipe.check_data(target.num_data)
    if not scale_speed > 0:
        raise ValueError(f"train: scale_speed must be positive; got {scale_speed}")
    loss = SharedLoss(problem_of(target), objective, scale_speed)
    weights = _trainable(shared, scale_speed, train_fixed)
    statistics = {"shared": shared, "prior": objective.tables(shared, deterministic)}
    trained = train_one(key, target, loss, recipe, weights, statistics, wrap, progress, checkpoint, "sharing")
    result = _rebuild(trained.statistics["shared"], trained.weights, scale_speed)
    return TrainedSharing(result, trained.losses)


def trainable(shared: SharedWeights, scale_speed: float, train_fixed: bool = False) -> dict[str, Any]:
    """The numbers that are trained; `rebuild` takes them back."""
    first, slant, last = (shared.factors[:, index] for index in range(3))
    last = jnp.maximum(last, SMALLEST_SCALE)
    weights = {
        "centres": shared.means[:, 0],
        "spreads": _inverse_softplus(shared.means[:, 1]) / scale_speed,
        "widths": jnp.log(jnp.stack([jnp.maximum(first, SMALLEST_SCALE), last])) / scale_speed,
        "slants": slant / last,
        "outlier_means": shared.outlier_means,
        "outlier_spreads": _inverse_softplus(shared.outlier_stds) / scale_speed,
    }
    if train_fixed:
        weights["fixed"] = {
            name: leaf
            for name, leaf in tree.named_leaves(shared.fixed).items()
            if leaf.size and not name.startswith("batch_stats/")
        }
    return weights


def rebuild(shared: SharedWeights, weights: Params, scale_speed: float) -> SharedWeights:
    """`shared` with the trained numbers in place of its own."""
    first, last = jnp.exp(scale_speed * weights["widths"])
    spreads = jax.nn.softplus(scale_speed * weights["spreads"])
    trained = weights.get("fixed", {})
    return dataclasses.replace(
        shared,
        means=jnp.stack([weights["centres"], spreads], axis=1),
        factors=jnp.stack([first, weights["slants"] * last, last], axis=1),
        outlier_means=weights["outlier_means"],
        outlier_stds=jax.nn.softplus(scale_speed * weights["outlier_spreads"]),
        fixed=tree.map_named(lambda name, leaf: trained.get(name, leaf), shared.fixed),
    )


_trainable = jax.jit(trainable, static_argnums=(1, 2))
_rebuild = jax.jit(rebuild, static_argnums=2)


def component_gradients(
    key: Key, target: Target, shared: SharedWeights, *, num_batches: int = 8, batch_size: int = 256
) -> np.ndarray:
    """(batches, k, 2): gradient of the loss in every centre, each batch with its own draw; for `merge`."""
    problem = problem_of(target)
    batches = random_batches(key, target.data, num_batches, batch_size)
    return np.stack([np.asarray(_gradient(problem, shared, *each), np.float64) for each in batches])


@functools.partial(jax.jit, static_argnames="problem")
def _gradient(problem: Problem, shared: SharedWeights, batch: Batch, key: Key) -> Float[Array, "k 2"]:
    def loss(means: Array) -> Array:
        return negative_log_likelihood(problem, dataclasses.replace(shared, means=means), batch, key)[0]

    return jax.grad(loss)(shared.means)


def _inverse_softplus(values: Array) -> Array:
    values = jnp.maximum(values, SMALLEST_SCALE)
    # log(e^x - 1) = x + log(1 - e^-x), which keeps the digits of small x.
    return values + jnp.log(-jnp.expm1(-values))
