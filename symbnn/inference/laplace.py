"""Laplace's approximation: a Gaussian with the curvature of the log-posterior at its mode.

    precision = ( G + diag 1/σ² ) / T,   G the generalised Gauss-Newton matrix, σ the prior's scales

of which `structure` says what is kept (`inference.structures`). `leaves` restricts it to some leaves, with
the others known (`FixedLeaves`): `"last_layer"`, or names or prefixes of names. `tune` sets the prior's
scales and the noise by the marginal likelihood (`inference.evidence`), the weights staying as they are
(MacKay 1992; Ritter et al. 2018; Immer et al. 2021; Daxberger et al. 2021).

G is the Hessian of the network linearised at its mode, so predictions are best made by that linear network,
`evaluate.predict_linearised`; networks drawn from the Gaussian underfit.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from symbnn import keys, tree
from symbnn.density import Batch, Likelihood, Target, refuse_batch_statistics
from symbnn.inference import curvature, evidence
from symbnn.inference.base import Checkpoint, check_count
from symbnn.inference.last_layer import last_layer
from symbnn.inference.multimode import ModeMethod
from symbnn.inference.progress import ShowProgress
from symbnn.inference.structures import ALL, STRUCTURES, Mode, Structure
from symbnn.inference.training.epochs import require_in_memory
from symbnn.inference.training.recipe import pretraining, trainer
from symbnn.inference.training.train import Problem, pretrain, problem_of
from symbnn.models.base import has_batch_statistics, named_weights, split_statistics
from symbnn.names import lookup, nearest
from symbnn.posteriors import FixedLeaves
from symbnn.types import Key, Params, Samples

TUNED = ("prior", "prior_by_leaf", "noise")


@trainer
def laplace(
    *,
    structure: str = "diagonal",
    leaves: str | Sequence[str] | None = None,
    rank: int = 20,
    tune: Sequence[str] = (),
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
        structure: What is kept of the curvature: `"diagonal"`, `"kronecker"`, `"low_rank"` or `"full"`.
        leaves: `"last_layer"`, or names or prefixes of names; the other leaves are known. None is all.
        rank: Eigenpairs of `"low_rank"`.
        tune: What the marginal likelihood sets after training: `"prior"` one factor of all prior scales,
            `"prior_by_leaf"` one for every leaf (`"diagonal"` and `"kronecker"` only), `"noise"` that of
            `density.gaussian`.
        pretrain_epochs: Passes over the data before the fit; with 0 the start is taken for the mode.
        chunk_size: Inputs that are differentiated at once, which bounds memory.
        (settings of all trainings)

    Diagnostics: `loss` and `num_nonfinite` of the training; `num_nonfinite_values` of the posterior;
    `log_marginal_likelihood`, of temperature 1; where tuned, `prior_factor`, which multiplies the prior's
    scales (a dict by leaf name for `"prior_by_leaf"`), and `noise`, the standard deviation.
    """
    kept_curvature = lookup(STRUCTURES, structure, "structure")
    tuned = _check_tuned(tune, structure, kept_curvature)
    recipe = pretraining(pretrain_epochs, batch_size, optimizer)
    kept = {"progress": progress, "checkpoint": checkpoint, "slot": "laplace-pretraining"}
    settings = Settings(kept_curvature, tuned, rank, chunk_size)
    check_count("rank", rank)
    check_count("chunk_size", chunk_size)

    def fit_modes(mode_keys: Key, target: Target, starts: Samples) -> tuple[Any, dict[str, Any]]:
        refuse_batch_statistics(starts, target.model)
        problem = problem_of(target)
        if not problem.prior.is_gaussian:
            raise ValueError(f"laplace needs a Gaussian prior; got {problem.prior.name}")
        _check_noise(tuned, problem.likelihood)
        start = tree.take(starts, 0)
        is_whole = leaves is None and not has_batch_statistics(start)
        free = None if is_whole else free_leaves(leaves, target, start)
        mode = _mode(problem, free, start)
        kept_curvature.check(mode.apply, mode.params, target.data.inputs[0])
        modes, diagnostics = pretrain(mode_keys, target, starts, recipe, **kept)
        posterior, measured = _fit(problem, settings, free, mode_keys, modes, target.data)
        return posterior, diagnostics | measured | {"num_nonfinite_values": _count_nonfinite(posterior)}

    return ModeMethod(fit_modes, initial, functools.partial(require_in_memory, "laplace"))


class Settings(NamedTuple):
    """What the compiled fit depends on."""

    structure: Structure
    tune: tuple[str, ...]
    rank: int
    chunk_size: int


def free_leaves(leaves: str | Sequence[str] | None, target: Target, params: Params) -> tuple[str, ...]:
    """Names of the leaves meant: all, the last layer, or those that start with one of the given names.

    Running statistics are known, so they are never among them.
    """
    known = named_weights(params)
    if leaves is None:
        return tuple(known)
    if leaves == "last_layer":
        found = last_layer(target.model.apply, params, target.data.inputs[:1])
        return tuple(name for name in found if name in known)
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
) -> tuple[Any, dict[str, Any]]:
    """The Gaussian around every mode, and what was measured there, one mode after the other."""

    def one(pair: tuple[Key, Params]) -> tuple[Any, dict[str, Any]]:
        key, params = pair
        mode = _mode(problem, free, params)
        gaussian, measured = _around(keys.named(key, "curvature"), mode, settings, data)
        return (gaussian if free is None else FixedLeaves(params, gaussian)), measured

    return jax.lax.map(one, (mode_keys, modes))


def _around(key: Key, mode: Mode, settings: Settings, data: Batch) -> tuple[Any, dict[str, Any]]:
    """The Gaussian around one mode, with the prior and the noise of most evidence if they are tuned."""
    found = settings.structure.factor(key, mode, data, settings.rank, settings.chunk_size)
    masses = {
        name: jnp.sum(jnp.square(leaf)) * mode.prior_precision[name]
        for name, leaf in tree.named_leaves(mode.params).items()
    }
    fit = evidence.fit_to_data(mode.network, data, chunk_size=settings.chunk_size)
    known = evidence.Evidence(found.spectra, masses, *fit, data.targets.size)
    by_leaf, with_noise = "prior_by_leaf" in settings.tune, "noise" in settings.tune
    with_prior = by_leaf or "prior" in settings.tune
    known = known if by_leaf else evidence.joined(known)
    tuned = evidence.tune(known, prior=with_prior, noise=with_noise)
    measured: dict[str, Any] = {"log_marginal_likelihood": evidence.log_marginal_likelihood(known, tuned)}
    if with_prior:
        factors = {name: factor**-0.5 for name, factor in tuned.precision.items()}
        measured["prior_factor"] = factors if by_leaf else factors[ALL]
    if with_noise:
        measured["noise"] = jnp.asarray(mode.network.likelihood.noise) * tuned.noise
    precision = {
        name: before * tuned.precision[name if by_leaf else ALL]
        for name, before in mode.prior_precision.items()
    }
    return found.gaussian(tuned.noise**-2.0, precision), measured


def _mode(problem: Problem, free: tuple[str, ...] | None, params: Params) -> Mode:
    """A network at the weights that vary."""
    # The prior knows weights by their own names, which in the whole tree may have more in front.
    by_weight = problem.prior.scales(split_statistics(params)[0])
    scales = dict(zip(named_weights(params), by_weight.values(), strict=True))
    chosen = params if free is None else {name: tree.named_leaves(params)[name] for name in free}
    weights, unravel = ravel_pytree(chosen)

    def apply(some: Params, inputs: Any) -> Any:
        if free is not None:
            some = tree.map_named(lambda name, leaf: some.get(name, leaf), params)
        return problem.model.apply(some, inputs)

    network = curvature.Fitted(lambda flat, inputs: apply(unravel(flat), inputs), problem.likelihood, weights)
    precision = {name: scales[name] ** -2.0 for name in tree.named_leaves(chosen)}
    return Mode(chosen, apply, network, precision, problem.temperature, unravel)


def _check_tuned(tune: Sequence[str], structure: str, kept: Structure) -> tuple[str, ...]:
    """What is tuned, in one order; `ValueError` for what is not known or does not go together."""
    wanted = (tune,) if isinstance(tune, str) else tuple(tune)
    for name in wanted:
        lookup(dict.fromkeys(TUNED), name, "tune")
    if "prior" in wanted and "prior_by_leaf" in wanted:
        raise ValueError("tune: give prior (one factor for all leaves) or prior_by_leaf, not both")
    if "prior_by_leaf" in wanted and not kept.by_leaf:
        able = [name for name, each in STRUCTURES.items() if each.by_leaf]
        raise ValueError(
            f"tune: prior_by_leaf needs a structure that keeps leaves apart, {' or '.join(able)}; got "
            f"{structure}"
        )
    return tuple(name for name in TUNED if name in wanted)


def _check_noise(tuned: tuple[str, ...], likelihood: Likelihood) -> None:
    if "noise" in tuned and likelihood.noise is None:
        raise ValueError(
            "tune: noise is that of a regression with one known noise, likelihood=density.gaussian(noise); "
            f"the target has {likelihood.name}"
        )


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}/")


def _count_nonfinite(modes: Any) -> Array:
    """Values that are not finite, per mode."""
    bad = [jnp.sum(~jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(modes)]
    return jnp.sum(jnp.stack(bad), axis=0)
