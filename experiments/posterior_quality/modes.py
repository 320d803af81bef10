"""Methods around a few large networks, judged by their predictions: no weights are compared or kept.

Every method runs once around each mode. These draws are its one-mode version, as often as there are modes;
an equal share of them around every mode is its multi-mode version, with as many networks.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import methods, published
from experiments.common.problem import Problem
from experiments.harness.rundir import Run
from experiments.posterior_quality import last_layer, sets
from experiments.posterior_quality.results import ENSEMBLE, MANY, ONE, SINGLE
from experiments.posterior_quality.scores import Predicted, all_images, score_predictions
from symbnn import density, evaluate, keys, tree
from symbnn.posteriors import Empirical
from symbnn.types import Key, Params, Samples

Members = dict[str, jax.Array]
"""Probabilities of every network, (modes, draws, images, classes), by where the images come from."""
TRAINING = "training"


def judge(problem: Problem, run: Run) -> tuple[dict[str, Any], Any]:
    """Scores of all methods, of the modes themselves, and of their ensemble; and which of the networks that
    were trained converged."""
    found = find_modes(problem, run)
    modes = found["networks"]
    held = problem.frozen() if problem.has_batch_statistics else problem
    known = run.stage("features", partial(all_features, held, modes))
    own = {name: each for name, each in known.items() if name != TRAINING}
    members: dict[str, Members] = {SINGLE: _modes_alone(held, modes, own)}
    for name in problem.config.methods:
        around = _around_heads if name in problem.config.last_layer else _around_networks
        members[name] = run.stage(name, partial(around, held, name, modes, known))
    scores = run.stage("scores", partial(score_predictions, problem, all_sets(members)))
    return scores, found["converged"]


def find_modes(problem: Problem, run: Run) -> dict[str, Samples]:
    """Networks that others published, or that are trained here, and which of all of these converged."""
    config = problem.config
    if not config.published:
        return run.stage("trained", partial(sets.train_networks, problem, run, config.num_modes))
    networks = published.read_all(problem.model, config.data.directory, config.published)
    return {"networks": networks, "converged": np.ones(len(config.published), bool)}


def all_features(problem: Problem, modes: Samples) -> dict[str, jax.Array]:
    """What enters the last layer of every mode, (modes, images, features), by where images come from.

    Of training images only where a method is fitted to them.
    """
    head, images = last_layer.find_head(problem), all_images(problem)
    if problem.config.last_layer:
        images[TRAINING] = problem.target.data.inputs
    networks = [tree.take(modes, index) for index in range(tree.num_samples(modes))]
    return {
        name: jnp.stack([last_layer.features(problem, head, network, each) for network in networks])
        for name, each in images.items()
    }


def _modes_alone(problem: Problem, modes: Samples, known: dict[str, jax.Array]) -> Members:
    heads = jax.vmap(last_layer.find_head(problem).of)(modes)
    stacked = jax.tree.map(lambda leaf: leaf[:, None], heads)
    return {name: jax.vmap(last_layer.probabilities)(stacked, each) for name, each in known.items()}


def _around_heads(problem: Problem, name: str, modes: Samples, known: dict[str, jax.Array]) -> Members:
    """Networks that differ from their mode in the last layer only."""
    head, num_features = last_layer.find_head(problem), known[TRAINING].shape[-1]
    model = last_layer.head_model(num_features, problem.data.num_classes or 0)

    def one(index: int, key: Key) -> dict[str, jax.Array]:
        batch = density.Batch(known[TRAINING][index], problem.target.data.targets)
        target = density.target(
            model, batch, likelihood=problem.target.likelihood, prior=problem.target.prior
        )
        heads = _draws(problem, name, key, target, head.of(tree.take(modes, index)))
        return {
            source: last_layer.probabilities(heads, each[index])
            for source, each in known.items()
            if source != TRAINING
        }

    return _over_modes(problem, name, one)


def _around_networks(problem: Problem, name: str, modes: Samples, known: dict[str, jax.Array]) -> Members:
    """Networks that differ from their mode in all weights."""
    images = all_images(problem)

    def one(index: int, key: Key) -> dict[str, jax.Array]:
        samples = _draws(problem, name, key, problem.target, tree.take(modes, index))
        return {
            source: evaluate.predict(problem.model.apply, samples, each, members=True)
            for source, each in images.items()
        }

    return _over_modes(problem, name, one)


def _over_modes(problem: Problem, name: str, one: Any) -> Members:
    mode_keys = keys.indexed(keys.named(problem.key, name), 0, problem.config.num_modes)
    return tree.stack([one(index, key) for index, key in enumerate(mode_keys)])


def _draws(problem: Problem, name: str, key: Key, target: density.Target, mode: Params) -> Samples:
    """`num_samples` networks around one mode."""
    start, config = tree.stack([mode]), problem.config
    if name == "hmc":
        settings, num = config.hmc, config.num_samples
        chain = {"num_chains": 1, "num_samples": num, "thinning": settings.thinning, "initial": start}
        return methods.hmc(key, target, settings, **chain).posterior.samples
    posterior = methods.around_modes(key, target, name, config, start)
    # Draws of a chain are the networks; any other law is drawn from.
    if isinstance(posterior, Empirical):
        return posterior.samples
    return posterior.sample(key, config.num_samples)


def all_sets(members: dict[str, Members]) -> dict[str, list[Predicted]]:
    """Predictions of both versions of every method, of single modes, and of their ensemble."""
    found: dict[str, list[Predicted]] = {}
    for name, each in members.items():
        one, many = (SINGLE, ENSEMBLE) if name == SINGLE else (f"{name}_{ONE}", f"{name}_{MANY}")
        num_modes, num_draws = next(iter(each.values())).shape[:2]
        share = max(1, num_draws // num_modes)
        found[one] = [_joined(tree.take(each, index)) for index in range(num_modes)]
        mixed = {source: part[:, :share].reshape(-1, *part.shape[2:]) for source, part in each.items()}
        found[many] = [_joined(mixed)]
    return found


def _joined(members: dict[str, jax.Array]) -> Predicted:
    """What the networks predict together, and how much they disagree."""
    return {
        source: {
            "probs": jnp.mean(part, axis=0),
            "information": evaluate.mutual_information_score(part),
        }
        for source, part in members.items()
    }
