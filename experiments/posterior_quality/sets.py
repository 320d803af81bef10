"""Problem and methods of the study of posterior quality, every method as equally many networks.

All methods start from the same trained networks, the modes: the one-mode version from one of them, the
multi-mode version from `num_modes` of them, with `num_samples` networks drawn from either.
"""

import jax
import numpy as np

from configs.posterior_quality import PosteriorQuality
from experiments.common import convergence, methods, published
from experiments.common.problem import Problem, load
from experiments.harness.rundir import Run
from symbnn import keys, tree
from symbnn.inference import Fit
from symbnn.posteriors import Empirical
from symbnn.types import Key, Samples

REMEDY = (
    "train more (--training.num-spare) or longer (--training.num-epochs), or ask for less "
    "(--training.least-accuracy)"
)


def load_problem(config: PosteriorQuality) -> Problem:
    """The problem of a config; `ValueError` for settings that do not go together."""
    if config.num_samples % config.num_modes or config.num_single > config.num_modes:
        raise ValueError(
            f"--num-modes must divide --num-samples {config.num_samples} and be at least --num-single "
            f"{config.num_single}, got {config.num_modes}"
        )
    _check_modes(config)
    network = config.network
    problem = load(
        config,
        network.name,
        hidden=network.hidden,
        width=network.width,
        prior_scale=network.prior_scale,
        num_held_out=config.num_validation,
        scale=published.SCALE if config.published else None,
    )
    if problem.has_batch_statistics and "hmc" in config.methods and "hmc" not in config.last_layer:
        raise ValueError(
            f"--methods hmc moves all leaves, but running statistics of {problem.network} must stay; leave "
            "it out, choose another network, or vary the last layer only (--no-is-compared --last-layer hmc)"
        )
    return problem


def _check_modes(config: PosteriorQuality) -> None:
    """`ValueError` for modes that are no such thing for this study."""
    if config.is_compared and (config.published or config.last_layer):
        raise ValueError(
            "--published and --last-layer go with --no-is-compared: weights are compared with those of "
            "networks that the study trains itself, and whole networks only"
        )
    published.check(
        config.published,
        config,
        network=("--network.name", config.network.name),
        number=("--num-modes", config.num_modes),
    )
    if not config.is_compared and config.num_single != config.num_modes:
        raise ValueError(
            "--no-is-compared runs every method around every mode, so --num-single must be --num-modes "
            f"{config.num_modes}, got {config.num_single}"
        )


def train(problem: Problem, run: Run) -> dict[str, Samples]:
    """Reference, deep ensemble and one more network, which the others are aligned to: all independent; and
    which of those that were trained converged."""
    num = problem.config.num_samples
    trained = train_networks(problem, run, 2 * num + 1)
    networks = trained["networks"]
    return {
        "reference": tree.take(networks, slice(0, num)),
        "ensemble": tree.take(networks, slice(num, 2 * num)),
        "anchor": tree.take(networks, 2 * num),
        "converged": trained["converged"],
    }


def train_networks(problem: Problem, run: Run, num: int) -> dict[str, Samples]:
    """The first `num` networks, from independent starts, that converged; and which of all did."""
    settings = problem.config.training
    found = methods.ensemble(
        keys.named(problem.key, "networks"),
        problem.target,
        settings,
        num_members=num + settings.num_spare,
        optimizer=settings.optimizer,
        members_per_block=settings.members_per_block,
        checkpoint=run.training("trained"),
        **methods.stepped(settings, otherwise="cosine"),
    ).posterior.samples
    is_converged = convergence.converged(problem, found, settings)
    convergence.require(is_converged, num, settings, REMEDY)
    return {"networks": tree.take(found, np.flatnonzero(is_converged)[:num]), "converged": is_converged}


def fit(problem: Problem, name: str, modes: Samples) -> dict[str, Samples]:
    """Networks of both versions: `one` has axes (mode, sample, ...), `many` (sample, ...)."""
    key = keys.named(problem.key, name)
    single_keys = keys.indexed(keys.named(key, "one"), 0, problem.config.num_single)
    one = [
        _draw(problem, name, single_key, tree.take(modes, slice(index, index + 1)))
        for index, single_key in enumerate(single_keys)
    ]
    return {"one": tree.stack(one), "many": _draw(problem, name, keys.named(key, "many"), modes)}


def sample_reference(problem: Problem, run: Run) -> Fit:
    """HMC chains from fresh networks: the second reference, which knows nothing of the trained ones.

    From draws of the prior a chain of twenty did not move at a step size that suits all others.
    """
    key, num_chains = keys.named(problem.key, "chains"), problem.config.hmc.num_reference_chains
    starts = jax.vmap(problem.model.init)(keys.indexed(keys.named(key, "starts"), 0, num_chains))
    return _chains(problem, key, starts, sink=run.chunks("chains"))


def _draw(problem: Problem, name: str, key: Key, modes: Samples) -> Samples:
    """`num_samples` networks from the equal mixture over all modes."""
    if name == "hmc":
        return _chains(problem, key, modes).posterior.samples
    # SWAG trains as usual and measures the statistics of its mean; the others need a likelihood.
    held = problem.frozen() if problem.has_batch_statistics and name != "swag" else problem
    posterior = methods.around_modes(key, held.target, name, problem.config, modes)
    # Draws of chains are the networks; any other law is drawn from.
    if isinstance(posterior, Empirical):
        return posterior.samples
    return posterior.sample(key, problem.config.num_samples)


def _chains(problem: Problem, key: Key, starts: Samples, *, sink: object = None) -> Fit:
    """A chain from every start, together with `num_samples` networks."""
    settings, num = problem.config.hmc, problem.config.num_samples
    num_chains = tree.num_samples(starts)
    if num % num_chains:
        raise ValueError(
            f"--hmc.num-reference-chains must divide --num-samples, got {num_chains} chains, {num} samples"
        )
    return methods.hmc(
        key,
        problem.target,
        settings,
        num_chains=num_chains,
        num_samples=num // num_chains,
        thinning=settings.thinning,
        initial=starts,
        sink=sink,
    )
