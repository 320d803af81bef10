"""Scores of sets of networks: predictions on test images and out of distribution, discrepancy of weights.

All methods see the same resampled images, so differences between methods have intervals of their own. The
discrepancy is the mean of the unbiased MMD² over kernels and bandwidths: zero on average for equal laws,
which the largest of them would not be. Symmetries are removed in the paper's order: units are scaled (see
`gauge`), then sorted, or aligned to one more network.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from experiments.common.problem import Problem
from symbnn import evaluate, keys, symmetry, tree
from symbnn.types import Key, Params, Samples

RAW, SORTED, ALIGNED = "raw", "sorted", "aligned"
VERSIONS = (RAW, SORTED, ALIGNED)
INSIDE = ("accuracy", "ece", "ace", "classwise_ace", "brier", "nll", "information")
OUTSIDE = ("aupr", "fpr95", "auroc", "information")
BLOCK = 512
"""Weights whose distances are summed at once: the sets are hundreds of networks, most of them small."""


Predicted = dict[str, dict[str, jax.Array]]
"""Probabilities and mutual information at all images, by where these come from."""


def score(problem: Problem, sets: dict[str, Samples]) -> dict[str, dict[str, jax.Array]]:
    """Every score of every set of networks; leaves of the sets have axes (repetition, sample, ...)."""
    images = all_images(problem)

    def predicted(repetitions: Samples) -> Iterator[Predicted]:
        for index in range(tree.num_samples(repetitions)):
            yield _predict(problem, images, tree.take(repetitions, index))

    return score_predictions(problem, {name: predicted(each) for name, each in sets.items()})


def score_predictions(
    problem: Problem, sets: Mapping[str, Iterable[Predicted]]
) -> dict[str, dict[str, jax.Array]]:
    """Every score of what sets of networks predict, in every repetition, as arrays (repetitions, 1 +
    resamples): as it is, then on resampled images. Scores are times 100, information in 0.01 nats."""
    num, key = problem.config.num_bootstrap, keys.named(problem.key, "resampled images")
    rows: dict[str, jax.Array] = {}
    found = {}
    for name, repetitions in sets.items():
        each = []
        for predicted in repetitions:
            rows = rows or {
                source: _resampled(keys.named(key, source), len(part["probs"]), num)
                for source, part in predicted.items()
            }
            each.append(_scores(predicted, problem.labels, rows))
        found[name] = tree.stack(each)
    return found


def all_images(problem: Problem) -> dict[str, jax.Array]:
    """Those that are judged as `inside`, and images out of distribution by the name of their source."""
    return {"inside": problem.inputs} | {name: problem.outside(name) for name in problem.config.outside}


def doubt(probs: jax.Array) -> jax.Array:
    """One minus the largest probability, as the sum of the others: sure predictions are no ties."""
    return jnp.sum(jnp.sort(probs, axis=-1)[..., :-1], axis=-1)


def _predict(problem: Problem, images: dict[str, jax.Array], samples: Samples) -> Predicted:
    """What a set of networks predicts."""
    found = {}
    for name, each in images.items():
        uncertainty = evaluate.predict_uncertainty(problem.model.apply, samples, each)
        found[name] = {"probs": uncertainty.probs, "information": uncertainty.epistemic}
    return found


def _resampled(key: Key, num_images: int, num: int) -> jax.Array:
    """Indices of all images, then of `num` resamples of them."""
    drawn = jax.random.randint(key, (num, num_images), 0, num_images)
    return jnp.concatenate([jnp.arange(num_images)[None], drawn])


@jax.jit
def _scores(predicted: Predicted, labels: jax.Array, rows: dict[str, jax.Array]) -> dict[str, jax.Array]:
    def one(chosen: dict[str, jax.Array]) -> dict[str, jax.Array]:
        taken = {name: tree.take(predicted[name], index) for name, index in chosen.items()}
        inside = taken.pop("inside")
        probs, targets = inside["probs"], labels[chosen["inside"]]
        found = {
            "accuracy": evaluate.accuracy(probs, targets),
            "ece": evaluate.ece(probs, targets),
            "ace": evaluate.adaptive_ece(probs, targets),
            "classwise_ace": evaluate.classwise_adaptive_ece(probs, targets),
            "brier": evaluate.brier(probs, targets),
            "nll": evaluate.nll(probs, targets),
            "information": jnp.mean(inside["information"]),
        }
        known = doubt(probs)
        for name, outside in taken.items():
            strange = doubt(outside["probs"])
            found[f"{name}_aupr"] = evaluate.aupr(known, strange)
            found[f"{name}_fpr95"] = evaluate.fpr_at(known, strange)
            found[f"{name}_auroc"] = evaluate.auroc(known, strange)
            found[f"{name}_information"] = jnp.mean(outside["information"])
        return jax.tree.map(lambda value: 100.0 * value, found)

    with evaluate.unchecked():
        return jax.lax.map(one, rows)


def compare(
    problem: Problem, sets: dict[str, Samples], references: dict[str, Samples], anchor: Params
) -> dict[str, Any]:
    """MMD² of every set to every other reference, by version: arrays (repetitions, ...), times 100."""
    others = {name: without_symmetries(problem, each, anchor) for name, each in references.items()}
    found: dict[str, Any] = {name: {} for name in references}
    for entry, repetitions in sets.items():
        each = [
            without_symmetries(problem, tree.take(repetitions, index), anchor)
            for index in range(tree.num_samples(repetitions))
        ]
        for name in [name for name in references if name != entry]:
            found[name][entry] = tree.stack(
                [
                    {key: _discrepancy(problem, one[key], others[name][key]) for key in VERSIONS}
                    for one in each
                ]
            )
    return found


def without_symmetries(problem: Problem, samples: Samples, anchor: Params) -> dict[str, Samples]:
    """The networks as they are, scaled and sorted, and scaled and aligned to the scaled anchor."""
    spec = problem.model.spec
    # Together, so that one program is compiled.
    both = _scale(spec, gauge(problem), tree.concatenate([tree.stack([anchor]), samples]))
    target, scaled = tree.take(both, 0), tree.take(both, slice(1, None))
    return {
        RAW: samples,
        SORTED: _sort(spec, problem.config.sort_key, scaled),
        ALIGNED: symmetry.align(spec, scaled, reference=target).samples,
    }


def gauge(problem: Problem) -> str:
    """How scales are fixed, if there are any: by least mass, else by the length of incoming weights.

    Weight decay leaves dead units whose weights are rounding errors. Brought to length one, these would be
    most of the distance between networks; least mass leaves them at zero.
    """
    if not any(group.num_scales for group in problem.model.spec.groups):
        return "none"
    try:
        problem.require_least_mass()
    except ValueError:
        return "norm"
    return "mass"


GAUGES: dict[str, Callable[[symmetry.SymmetrySpec, Params], Params]] = {
    "mass": lambda spec, params: symmetry.balance(spec, params).params,
    "norm": symmetry.normalise,
    "none": lambda spec, params: params,
}


@partial(jax.jit, static_argnums=(0, 1))
def _scale(spec: symmetry.SymmetrySpec, name: str, samples: Samples) -> Samples:
    return jax.vmap(partial(GAUGES[name], spec))(samples)


@partial(jax.jit, static_argnums=(0, 1))
def _sort(spec: symmetry.SymmetrySpec, key: str, samples: Samples) -> Samples:
    return jax.vmap(partial(symmetry.sort_units, spec, key=key))(samples)


def _discrepancy(problem: Problem, samples: Samples, reference: Samples) -> dict[str, jax.Array]:
    num = problem.config.num_bootstrap
    found = evaluate.mmd(
        weights(problem, samples),
        weights(problem, reference),
        key=keys.named(problem.key, "discrepancy"),
        aggregate="mean",
        num_permutations=num,
        num_bootstrap=num,
        block=BLOCK,
    )
    layers = list(found.layers.values())
    return {
        "value": 100.0 * found.total.value,
        "interval": 100.0 * jnp.asarray(found.total.interval),
        "p_value": jnp.asarray(found.total.p_value),
        "layers": 100.0 * jnp.stack([layer.value for layer in layers]),
        "layer_intervals": 100.0 * jnp.stack([jnp.asarray(layer.interval) for layer in layers]),
    }


def weights(problem: Problem, samples: Samples) -> Samples:
    """The weights alone: running statistics follow from them and from the data."""
    return samples["params"] if problem.has_batch_statistics else samples


def layer_names(problem: Problem) -> list[str]:
    """Layers in the order of the discrepancies."""
    leaves = tree.named_leaves(weights(problem, problem.shapes))
    return list(dict.fromkeys(name.rpartition("/")[0] or name for name in leaves))
