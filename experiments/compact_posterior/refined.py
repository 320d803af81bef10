"""The refined compact posterior: which recipe, chosen without the test images, and what a random start does.

Some training images are kept from the fit (HMC itself was conditioned on them). Every candidate is fitted to
HMC's predictions on the other training images and on as many mixed-up ones; the chosen candidate is the one
nearest to HMC on the kept images, by total variation, of those that stayed near the aligned Gaussian.
"""

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.parts import Refinement
from experiments.common import columns
from experiments.common.problem import Problem
from experiments.harness.progress import SHOWN
from experiments.harness.tables import Row, Table
from symbnn import compact, keys, tree
from symbnn.posteriors import DiagonalGaussian
from symbnn.types import Samples

CONTROL_STD = 0.05
"""Of the random start: an untrained network with little noise, as variational inference starts."""

CONTROL_RATES = (3.0, 10.0)
"""Steps count in standard deviations of the start, and those of the random start are small: so that it is no
straw man, it takes larger steps, and of these the better on the held-out images."""

BYTES_PER_NUMBER = 4


class Data(NamedTuple):
    """What a candidate is fitted to, and what it is judged on."""

    inputs: jax.Array
    probs: jax.Array
    held_inputs: jax.Array
    held_probs: jax.Array


def refine(
    problem: Problem, settings: Refinement, samples: Samples, start: DiagonalGaussian
) -> dict[str, Any]:
    """All candidates with their scores, the chosen law, and the same recipe from a random start."""
    data = split_images(problem, settings, samples)
    recipes = candidates(settings)
    fits = [_fit(problem, settings, data, start, loss, penalty) for loss, penalty in recipes]
    validation = np.array([_validate(problem, data, fit)["mean"] for fit in fits])
    moved = np.array([[float(value) for value in compact.displacement(fit, start)] for fit in fits])
    chosen = choose(validation[:, 1], moved[:, 0], settings.max_divergence)
    return {
        "validation": validation,
        "displacement": moved,
        "chosen": np.asarray(chosen),
        "law": fits[chosen],
        "control": _control(problem, settings, data, recipes[chosen][0]),
    }


def candidates(settings: Refinement) -> list[tuple[str, float]]:
    """Loss and penalty of every candidate."""
    return list(itertools.product(settings.losses, settings.penalties))


def choose(distances: np.ndarray, divergences: np.ndarray, max_divergence: float) -> int:
    """The nearest in function space of those near enough in weight space; if none is, the nearest there."""
    allowed = divergences <= max_divergence
    return int(np.argmin(np.where(allowed, distances, np.inf)) if allowed.any() else np.argmin(divergences))


def candidate_table(settings: Refinement, refined: Any) -> Table:
    """Every candidate on the held-out training images."""
    chosen = int(refined["chosen"])
    values = np.concatenate([refined["validation"], refined["displacement"]], axis=1)
    names = ("validation agreement", "validation TV", *DISPLACEMENT_ROWS)
    return Table(
        f"Recipes of the refinement, judged on {settings.num_validation} training images that no fit saw; "
        f"chosen: the lowest TV with KL at most {settings.max_divergence:g} per weight",
        tuple(
            f"{loss}, penalty {penalty:g}{' (chosen)' if index == chosen else ''}"
            for index, (loss, penalty) in enumerate(candidates(settings))
        ),
        tuple(
            Row.of(name, column, 4 if "TV" in name else 3)
            for name, column in zip(names, values.T, strict=True)
        ),
    )


DISPLACEMENT_ROWS = ("KL to q_r per weight", "ratio of standard deviations", "shift of the means, in σ_r")


def displacement_rows(laws: dict[str, Any], start: DiagonalGaussian, names: tuple[str, ...]) -> list[Row]:
    """How far every diagonal law is from `start`; dashes for other laws."""
    found = {name: compact.displacement(law, start) for name, law in laws.items()}
    return [
        Row.of(words, (found[name][index] if name in found else None for name in names), 3)
        for index, words in enumerate(DISPLACEMENT_ROWS)
    ]


def stored_bytes(posterior: Any) -> int:
    """Bytes of all numbers of a law or of samples, as float32."""
    return BYTES_PER_NUMBER * tree.num_weights(posterior)


def split_images(problem: Problem, settings: Refinement, samples: Samples) -> Data:
    """Images to judge on, all others with as many mixed-up ones to fit to, and HMC's predictions on both."""
    images = jnp.asarray(problem.data.train.inputs)
    most = len(images) - max(1, math.ceil(settings.batch_size / 2))
    if settings.num_validation > most:
        raise ValueError(
            f"--refinement.num-validation must be at most {most} of {len(images)} training examples, so that "
            f"the others and as many mixed-up ones fill a batch; got {settings.num_validation}"
        )
    order = jax.random.permutation(keys.named(problem.key, "validation"), len(images))
    held, rest = images[order[: settings.num_validation]], images[order[settings.num_validation :]]
    mixed = compact.mixed_up(keys.named(problem.key, "mixed up"), rest, len(rest))
    inputs = jnp.concatenate([rest, mixed])
    return Data(
        inputs,
        columns.reference(problem, samples, inputs),
        held,
        columns.reference(problem, samples, held),
    )


def _control(problem: Problem, settings: Refinement, data: Data, loss: str) -> DiagonalGaussian:
    """The same fit from a random start, without a penalty: its start is nothing to stay near to."""
    network = problem.model.init(keys.named(problem.key, "random start"))
    start = DiagonalGaussian(network, jax.tree.map(lambda leaf: jnp.full_like(leaf, CONTROL_STD), network))
    rates = [rate * settings.learning_rate for rate in CONTROL_RATES]
    fits = [
        _fit(problem, dataclasses.replace(settings, learning_rate=rate), data, start, loss, 0.0)
        for rate in rates
    ]
    return min(fits, key=lambda fit: _validate(problem, data, fit)["mean"][1])


def _validate(problem: Problem, data: Data, fit: DiagonalGaussian) -> dict[str, Any]:
    return columns.distances(
        columns.predictions(problem, "validation", fit, data.held_inputs), data.held_probs
    )


def _fit(
    problem: Problem, settings: Refinement, data: Data, start: DiagonalGaussian, loss: str, penalty: float
) -> DiagonalGaussian:
    return compact.refine(
        start,
        problem.model,
        data.inputs,
        data.probs,
        keys.named(problem.key, "refinement"),
        epochs=settings.num_epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        num_draws=settings.num_draws,
        loss=loss,
        penalty=penalty,
        progress=SHOWN,
    ).posterior
