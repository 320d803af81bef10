"""Laplace's approximation: a Gaussian with the curvature of the log-posterior at its mode.

    precision = ( G + diag 1/σ² ) / T,   G the generalised Gauss-Newton matrix, σ the prior's scales

| structure  | of G is kept                 | posterior          |
|------------|------------------------------|--------------------|
| `diagonal` | the diagonal                 | `DiagonalGaussian` |
| `low_rank` | the `rank` largest eigenpairs | `LowRankPrecision` |
| `full`     | everything                   | `LowRankGaussian`  |

`leaves` restricts it to some leaves, with the others known (`FixedLeaves`): `"last_layer"`, or names or
prefixes of names (MacKay 1992; Ritter et al. 2018; Daxberger et al. 2021).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from symbnn import keys, tree
from symbnn.density import Batch, Target, refuse_batch_statistics
from symbnn.inference import curvature
from symbnn.inference.base import Checkpoint, check_count
from symbnn.inference.last_layer import last_layer
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import ShowProgress
from symbnn.inference.training.epochs import require_in_memory
from symbnn.inference.training.recipe import pretraining, trainer
from symbnn.inference.training.train import Problem, pretrain, problem_of
from symbnn.names import lookup, nearest
from symbnn.posteriors import DiagonalGaussian, FixedLeaves, LowRankGaussian, LowRankPrecision
from symbnn.types import Key, Params, Samples


@trainer
def laplace(
    *,
    structure: str = "diagonal",
    leaves: str | Sequence[str] | None = None,
    rank: int = 20,
    pretrain_epochs: int = 50,
    batch_size: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    chunk_size: int = 32,
    initial: Params | None = None,
    progress: ShowProgress = "auto",
    checkpoint: Checkpoint | None = None,
) -> ModeMethod:
    """Train to the mode, then fit the Gaussian around it. The prior must be Gaussian.

    Args:
        structure: What is kept of the curvature: `"diagonal"`, `"low_rank"` or `"full"`.
        leaves: `"last_layer"`, or names or prefixes of names; the other leaves are known. None is all.
        rank: Eigenpairs of `"low_rank"`.
        pretrain_epochs: Passes over the data before the fit; with 0 the start is taken for the mode.
        chunk_size: Inputs that are differentiated at once, which bounds memory.
        (settings of all trainings)

    Diagnostics: `loss` and `num_nonfinite` of the training; `num_nonfinite_values` of the posterior.
    """
    build = lookup(STRUCTURES, structure, "structure")
    recipe = pretraining(pretrain_epochs, batch_size, optimizer)
    kept = {"progress": progress, "checkpoint": checkpoint, "slot": "laplace-pretraining"}
    settings = Settings(build, rank, chunk_size)
    check_count("rank", rank)
    check_count("chunk_size", chunk_size)

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        refuse_batch_statistics(starts)
        problem = problem_of(target)
        if not problem.prior.is_gaussian:
            raise ValueError(f"laplace needs a Gaussian prior; got {problem.prior.name}")
        free = None if leaves is None else free_leaves(leaves, target, tree.take(starts, 0))
        modes, diagnostics = pretrain(mode_keys, target, starts, recipe, **kept)
        posterior = _fit(problem, settings, free, mode_keys, modes, target.data)
        return posterior, diagnostics | {"num_nonfinite_values": _count_nonfinite(posterior)}

    return ModeMethod(fit_modes, initial, functools.partial(require_in_memory, "laplace"))


class Settings(NamedTuple):
    """What the compiled fit depends on."""

    build: Any
    rank: int
    chunk_size: int


class Curved(NamedTuple):
    """A mode with all that its Gaussian is made of."""

    network: curvature.Fitted
    prior_precision: Float[Array, " p"]
    temperature: float
    unravel: Callable[[Array], Params]


def free_leaves(leaves: str | Sequence[str], target: Target, params: Params) -> tuple[str, ...]:
    """Names of the leaves meant: the last layer, or all that start with one of the given names."""
    if leaves == "last_layer":
        return last_layer(target.model.apply, params, target.data.inputs[:1])
    known = tree.named_leaves(params)
    wanted = (leaves,) if isinstance(leaves, str) else tuple(leaves)
    for prefix in wanted:
        if not any(_is_below(name, prefix) for name in known):
            raise ValueError(f"unknown leaf {prefix!r}; {nearest(prefix, [*known, 'last_layer'])}")
    return tuple(name for name in known if any(_is_below(name, prefix) for prefix in wanted))


@functools.partial(jax.jit, static_argnames=("problem", "settings", "free"))
def _fit(
    problem: Problem,
    settings: Settings,
    free: tuple[str, ...] | None,
    mode_keys: Key,
    modes: Samples,
    data: Batch,
) -> Any:
    """The Gaussian around every mode, one mode after the other."""

    def one(pair: tuple[Key, Params]) -> Any:
        key, params = pair
        curved = _curved(problem, free, params)
        gaussian = settings.build(keys.named(key, "curvature"), curved, data, settings)
        return gaussian if free is None else FixedLeaves(params, gaussian)

    return jax.lax.map(one, (mode_keys, modes))


def _curved(problem: Problem, free: tuple[str, ...] | None, params: Params) -> Curved:
    stds = problem.prior.scales(params)
    chosen, precision = (
        params,
        tree.map_named(lambda name, leaf: jnp.full_like(leaf, stds[name] ** -2.0), params),
    )
    if free is not None:
        chosen, precision = (
            {name: tree.named_leaves(part)[name] for name in free} for part in (chosen, precision)
        )
    weights, unravel = ravel_pytree(chosen)

    def outputs(flat: Array, inputs: Array) -> Array:
        moved = unravel(flat)
        if free is not None:
            moved = tree.map_named(lambda name, leaf: moved.get(name, leaf), params)
        return problem.model.apply(moved, inputs)

    network = curvature.Fitted(outputs, problem.likelihood, weights)
    return Curved(network, ravel_pytree(precision)[0], problem.temperature, unravel)


def _diagonal(key: Key, mode: Curved, data: Batch, settings: Settings) -> DiagonalGaussian:
    diagonal = curvature.diagonal(mode.network, data, chunk_size=settings.chunk_size)
    std = jnp.sqrt(mode.temperature / (diagonal + mode.prior_precision))
    return DiagonalGaussian(mode.unravel(mode.network.weights), mode.unravel(std))


def _low_rank(key: Key, mode: Curved, data: Batch, settings: Settings) -> LowRankPrecision:
    how = {"rank": settings.rank, "chunk_size": settings.chunk_size}
    factors = curvature.low_rank(key, mode.network, data, **how)
    std = jnp.sqrt(mode.temperature / mode.prior_precision)
    factors = jax.vmap(mode.unravel)(factors / math.sqrt(mode.temperature))
    return LowRankPrecision(mode.unravel(mode.network.weights), mode.unravel(std), factors)


def _full(key: Key, mode: Curved, data: Batch, settings: Settings) -> LowRankGaussian:
    """precision = L Lᵀ, so the rows of L⁻¹ are factors of the covariance."""
    matrix = curvature.full(mode.network, data, chunk_size=settings.chunk_size)
    precision = (matrix + jnp.diag(mode.prior_precision)) / mode.temperature
    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    factors = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(precision), identity, lower=True)
    return LowRankGaussian(mode.unravel(mode.network.weights), jax.vmap(mode.unravel)(factors))


STRUCTURES: dict[str, Callable[..., Any]] = {"diagonal": _diagonal, "low_rank": _low_rank, "full": _full}


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}/")


def _count_nonfinite(modes: Any) -> Array:
    """Values that are not finite, per mode."""
    bad = [jnp.sum(~jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(modes)]
    return jnp.sum(jnp.stack(bad), axis=0)
