"""Mean-field variational inference: the diagonal Gaussian nearest to the posterior.

Minimises over q = N(m, diag s²), per data point,

    ( N · E_q[-mean log p(y | x, w)] - E_q[log p(w)] - T · H(q) ) / N

which at temperature T = 1 is the negative evidence lower bound (Blundell et al. 2015). Entropy and, for a
Gaussian prior, the prior's expectation are closed forms; the likelihood's expectation is one draw per step,
of weights or (`reparametrisation="local"`) of pre-activations. The parameters are m and log s.

Why not NumPyro's SVI: it has no local reparametrisation and draws one set of weights per step for all of a
program, while here minibatches, many starts and chunks of epochs are one compiled scan. NumPyro's
`AutoNormal` on the same target is the oracle in the tests.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symbnn import keys, tree
from symbnn.density import Batch, Prior, Target, refuse_batch_statistics
from symbnn.inference.base import Checkpoint, check_count
from symbnn.inference.known import with_statistics
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import ShowProgress
from symbnn.inference.training.recipe import Recipe, trainer
from symbnn.inference.training.train import Problem, problem_of, train, warn_nonfinite
from symbnn.models.base import join_statistics, split_statistics
from symbnn.names import lookup
from symbnn.posteriors import DiagonalGaussian, local_reparametrisation
from symbnn.types import Key, Params, Samples

REPARAMETRISATIONS = {"local": True, "weights": False}
ENTROPY_CONSTANT = 0.5 * (1.0 + math.log(2.0 * math.pi))


@dataclass(frozen=True)
class VariationalLoss:
    """Negative evidence lower bound per data point of `{"mean": ..., "log_std": ...}`."""

    problem: Problem
    local: bool
    gaussian_prior: bool
    num_draws: int

    def __call__(
        self, weights: Params, statistics: Params, batch: Batch, key: Key
    ) -> tuple[Float[Array, ""], Params]:
        """Loss; running statistics stay as they are."""
        mean, std = weights["mean"], jax.tree.map(jnp.exp, weights["log_std"])
        # A generator less to compile in the usual case; with a closed form the prior needs no key.
        draw_keys = [key] if self.num_draws == 1 else list(jax.random.split(key, self.num_draws))
        draws = [self._log_likelihood(draw_key, mean, std, statistics, batch) for draw_key in draw_keys]
        prior = expected_log_prior(
            keys.named(key, "prior"), self.problem.prior, mean, std, exact=self.gaussian_prior
        )
        remainder = prior + self.problem.temperature * entropy(weights["log_std"])
        return -sum(draws) / self.num_draws - remainder / self.problem.num_data, statistics

    def _log_likelihood(
        self, key: Key, mean: Params, std: Params, statistics: Params, batch: Batch
    ) -> Float[Array, ""]:
        """Mean over the minibatch, under one draw."""

        def apply(weights: Params, inputs: Array) -> Array:
            return self.problem.model.apply(join_statistics(weights, statistics), inputs)

        if self.local:
            outputs = local_reparametrisation(apply)(key, mean, std, batch.inputs)
        else:
            outputs = apply(_draw(key, mean, std), batch.inputs)
        return jnp.mean(self.problem.likelihood.log_prob(outputs, batch.targets))


@trainer
def variational(
    *,
    epochs: int = 50,
    batch_size: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    initial: Params | None = None,
    initial_std: float = 0.05,
    reparametrisation: str = "local",
    num_draws: int = 1,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> ModeMethod:
    """The mean-field Gaussian as a `DiagonalGaussian`, by stochastic gradients on minibatches.

    Args:
        epochs: Passes over the data.
        initial_std: Standard deviation of every weight at the start; 0.05 is small beside trained weights.
            The mean starts at `initial`, for instance a trained network.
        reparametrisation: `"local"` draws pre-activations, with less noise in the gradient; `"weights"`
            draws weights.
        num_draws: Draws per step that the likelihood is averaged over.
        (settings of all trainings)

    Diagnostics: `loss` (epochs,), the negative evidence lower bound per data point; `num_nonfinite`, steps
    with a NaN or infinite loss.
    """
    recipe = Recipe(epochs, batch_size, optimizer)
    kept: Any = {"progress": progress, "checkpoint": checkpoint}
    local = lookup(REPARAMETRISATIONS, reparametrisation, "reparametrisation")
    check_count("num_draws", num_draws)
    if not initial_std > 0:
        raise ValueError(f"initial_std must be positive; got {initial_std}")

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        problem = problem_of(target)
        refuse_batch_statistics(starts, target.model)
        loss = VariationalLoss(problem, local, problem.prior.is_gaussian, num_draws)
        means, statistics = split_statistics(starts)
        log_std = jax.tree.map(lambda leaf: jnp.full_like(leaf, math.log(initial_std)), means)
        weights = {"mean": means, "log_std": log_std}
        trained = train(
            loss, recipe, mode_keys, weights, statistics, target.data, stage="variational", **kept
        )
        warn_nonfinite("variational", trained.num_nonfinite)
        std = jax.tree.map(jnp.exp, trained.weights["log_std"])
        gaussians = DiagonalGaussian(trained.weights["mean"], std)
        return with_statistics(gaussians, trained.statistics), trained.diagnostics()

    return ModeMethod(fit_modes, initial)


def entropy(log_std: Params) -> Float[Array, ""]:
    """Entropy of the diagonal Gaussian."""
    return sum(jnp.sum(leaf) + ENTROPY_CONSTANT * leaf.size for leaf in jax.tree.leaves(log_std))


def expected_log_prior(key: Key, prior: Prior, mean: Params, std: Params, *, exact: bool) -> Float[Array, ""]:
    """E_q[log p(w)]: exact for a Gaussian prior, else the log-density of one draw.

    Two Gauss-Hermite points, m ± s, integrate polynomials up to degree three exactly.
    """
    if not exact:
        return prior.log_prob(_draw(key, mean, std))
    upper, lower = (jax.tree.map(lambda m, s, sign=sign: m + sign * s, mean, std) for sign in (1.0, -1.0))
    return 0.5 * (prior.log_prob(upper) + prior.log_prob(lower))


def _draw(key: Key, mean: Params, std: Params) -> Params:
    return jax.tree.map(lambda m, s, e: m + s * e, mean, std, tree.draw_like(key, mean))
