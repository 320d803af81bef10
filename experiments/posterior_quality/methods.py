"""Methods of the study of posterior quality, every one as equally many networks.

All methods start from the same trained networks, the modes: the one-mode version from one of them, the
multi-mode version from `num_modes` of them, with `num_samples` networks drawn from either.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from configs.posterior_quality import PosteriorQuality
from experiments.common.methods import optimizer, steps_per_epoch
from experiments.harness import progress
from experiments.posterior_quality.problem import Problem
from symbnn import inference, io, keys, tree
from symbnn.inference.multimode import ModeMethod
from symbnn.posteriors import Empirical
from symbnn.types import Key, Samples


def train(problem: Problem, chunks: Path) -> dict[str, Samples]:
    """Reference, deep ensemble and one more network, which the others are aligned to: all independent."""
    settings, num = problem.config.training, problem.config.num_samples
    with progress.show() as show:
        method = inference.ensemble(
            num_members=2 * num + 1,
            epochs=settings.num_epochs,
            batch_size=settings.batch_size,
            optimizer=optimizer(
                settings, steps_per_epoch(problem.target, settings.batch_size), schedule="cosine"
            ),
            members_per_block=settings.members_per_block,
            progress=show,
            checkpoint=io.TrainingStore(chunks),
        )
        networks = method(keys.named(problem.key, "networks"), problem.target).posterior.samples
    return {
        "reference": tree.take(networks, slice(0, num)),
        "ensemble": tree.take(networks, slice(num, 2 * num)),
        "anchor": tree.take(networks, 2 * num),
    }


def fit(problem: Problem, name: str, modes: Samples) -> dict[str, Samples]:
    """Networks of both versions: `one` has axes (mode, sample, ...), `many` (sample, ...)."""
    key, config = keys.named(problem.key, name), problem.config
    single_keys = keys.indexed(keys.named(key, "one"), 0, config.num_single)
    with progress.show() as show:
        draw = _hmc if name == "hmc" else _around_modes
        one = [
            draw(problem, name, single_key, tree.take(modes, slice(index, index + 1)), show)
            for index, single_key in enumerate(single_keys)
        ]
        many = draw(problem, name, keys.named(key, "many"), modes, show)
    return {"one": tree.stack(one), "many": many}


def sample_reference(problem: Problem, chunks: Path) -> dict[str, Any]:
    """HMC chains from fresh networks: the second reference, which knows nothing of the trained ones.

    From draws of the prior a chain of twenty did not move at a step size that suits all others.
    """
    key, num_chains = keys.named(problem.key, "chains"), problem.config.hmc.num_reference_chains
    starts = jax.vmap(problem.model.init)(keys.indexed(keys.named(key, "starts"), 0, num_chains))
    with progress.show() as show:
        fit = _chains(problem, key, starts, show, sink=io.ChunkStore(chunks))
    return {"samples": fit.posterior.samples, "diagnostics": fit.diagnostics}


def _around_modes(problem: Problem, name: str, key: Key, modes: Samples, show: Any) -> Samples:
    """`num_samples` networks from the equal mixture over all modes."""
    num = problem.config.num_samples
    method = MODE_METHODS[name](problem.config, num // tree.num_samples(modes), show)
    posterior = inference.multimode(method, members=modes)(key, problem.target).posterior
    # Draws of chains are the networks; any other law is drawn from.
    return posterior.samples if isinstance(posterior, Empirical) else posterior.sample(key, num)


def _hmc(problem: Problem, name: str, key: Key, modes: Samples, show: Any) -> Samples:
    return _chains(problem, key, modes, show).posterior.samples


def _chains(
    problem: Problem,
    key: Key,
    starts: Samples,
    show: Any,
    *,
    sink: Any = None,
) -> inference.Fit:
    """A chain from every start, together with `num_samples` networks."""
    settings, num = problem.config.hmc, problem.config.num_samples
    num_chains = tree.num_samples(starts)
    if num % num_chains:
        raise ValueError(
            f"--hmc.num-reference-chains must divide --num-samples, got {num_chains} chains, {num} samples"
        )
    method = inference.hmc(
        num_chains=num_chains,
        num_samples=num // num_chains,
        num_burnin=settings.num_burnin,
        thinning=settings.thinning,
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        initial=starts,
        progress=show,
        sink=sink,
    )
    return method(key, problem.target)


def _dropout(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.dropout(
        rate=config.dropout.rate,
        masks_per_batch=config.dropout.masks_per_batch,
        epochs=config.dropout.num_epochs,
        batch_size=config.training.batch_size,
        optimizer=optimizer(config.dropout, 1, optimizer="adam"),
        progress=show,
    )


def _variational(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.variational(
        epochs=config.variational.num_epochs,
        batch_size=config.variational.batch_size,
        optimizer=optimizer(config.variational, 1),
        initial_std=config.variational.initial_std,
        progress=show,
    )


def _swag(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.swag(
        rank=config.swag.rank,
        epochs=config.swag.num_epochs,
        optimizer=optimizer(config.swag, 1, optimizer="momentum"),
        pretrain_epochs=0,
        batch_size=config.training.batch_size,
        progress=show,
    )


def _laplace(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.laplace(
        structure=config.laplace.structure,
        leaves=None if config.laplace.leaves == "all" else config.laplace.leaves,
        pretrain_epochs=0,
        progress=show,
    )


def _sghmc(config: PosteriorQuality, num_draws: int, show: Any) -> ModeMethod:
    return inference.sgmcmc(
        num_samples=num_draws,
        step_size=config.sghmc.step_size,
        friction=config.sghmc.friction,
        num_burnin=config.sghmc.num_burnin,
        thinning=config.sghmc.thinning,
        batch_size=config.training.batch_size,
        progress=show,
    )


MODE_METHODS: dict[str, Callable[[PosteriorQuality, int, Any], ModeMethod]] = {
    "dropout": _dropout,
    "variational": _variational,
    "swag": _swag,
    "laplace": _laplace,
    "sghmc": _sghmc,
}
"""(config, draws for each mode, progress) -> method."""
