"""Numbers of weight sharing, from predictions that are kept: quality, distance to a reference, OOD scores."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from experiments.common.problem import Problem
from experiments.common.published import folder
from experiments.weight_sharing.predictions import Predictions, entropy
from symbnn import evaluate

Scores = dict[str, Any]
# Share of in-distribution images that the paper's false-positive rate is at.
RECALL = 0.85


def scores(problem: Problem, judged: dict[str, Any], num_bytes: int) -> Scores:
    """Accuracy, NLL and ECE of the mean prediction, accuracy of single draws, counts, bytes, OOD scores."""
    labels, inside = np.asarray(problem.labels), judged["inside"]
    probs = probabilities(inside)
    found = {
        "accuracy": evaluate.accuracy(probs, problem.labels),
        # From logarithms: a probability that is 0 in float32 has a finite one.
        "nll": -np.mean(np.take_along_axis(inside["log_probs"], labels[:, None], axis=1)),
        "ece": evaluate.ece(probs, problem.labels),
        "bytes": num_bytes,
        **judged.get("counts", {}),
    }
    if (reference := reference_of(problem)) is not None:
        found["agreement"] = evaluate.agreement(probs, reference)
        found["total_variation"] = evaluate.total_variation(probs, reference)
    if len(inside["singles"]) > 1:
        found |= {"single_mean": inside["singles"].mean(), "single_worst": inside["singles"].min()}
    found = {name: np.asarray(value, np.float64) for name, value in found.items()}
    outside = {name: against(inside, each) for name, each in judged["outside"].items()}
    return found | ({"outside": outside} if outside else {})


def difference(problem: Problem, judged: dict[str, Any], base: dict[str, Any]) -> Scores:
    """Accuracy and NLL above those of `base`, each with its standard error over the same examples.

    Two predictions err on much the same examples, so their difference is known better than either.
    """
    labels = np.asarray(problem.labels)

    def of_examples(each: dict[str, Any]) -> dict[str, np.ndarray]:
        log_probs = each["inside"]["log_probs"].astype(np.float64)
        return {
            "accuracy": log_probs.argmax(axis=1) == labels,
            "nll": -np.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0],
        }

    own, other = of_examples(judged), of_examples(base)
    apart = {name: own[name].astype(np.float64) - other[name] for name in own}
    means = {name: values.mean() for name, values in apart.items()}
    errors = {f"{name}_error": values.std(ddof=1) / np.sqrt(len(values)) for name, values in apart.items()}
    return means | errors


def probabilities(found: Predictions) -> Any:
    """Mean probabilities; normalised again, as float32 logarithms are rounded."""
    probs = np.exp(found["log_probs"].astype(np.float64))
    return jnp.asarray((probs / probs.sum(axis=1, keepdims=True)).astype(np.float32))


def reference_of(problem: Problem) -> Any:
    """Probabilities that predictions are compared with, or None; `ValueError` if they are of other images."""
    name = problem.config.judging.reference
    if name is None or problem.config.judging.holdout:
        return None
    path = folder(problem.config.data.directory) / name
    if not path.is_file():
        raise ValueError(f"--judging.reference: {path} is not there; set SYMBNN_DATA_DIR to where it is")
    found = np.load(path)
    expected = (len(problem.labels), problem.data.num_classes)
    if found.shape != expected:
        raise ValueError(
            f"--judging.reference: {path} has shape {found.shape}; the judged images and classes are "
            f"{expected}: judge all test images (no --data.num-test), or leave the reference out"
        )
    return jnp.asarray(found, jnp.float32)


def against(inside: Predictions, outside: Predictions) -> Scores:
    """AUROC by every score, and the paper's three numbers by the largest probability.

    The paper's positives are in-distribution images.
    """
    own, other = doubts(inside), doubts(outside)
    ranked = {name: _ranks(values, other[name]) for name, values in own.items()}
    inner, outer = ranked["largest probability"]
    return {
        "auroc": {name: float(evaluate.auroc(*both)) for name, both in ranked.items()},
        "aupr": float(evaluate.aupr(-outer, -inner)),
        "fpr85": float(evaluate.fpr_at(-outer, -inner, recall=RECALL)),
    }


def doubts(found: Predictions) -> dict[str, np.ndarray]:
    """Scores that are high out of distribution; in logarithms, so that sure predictions are no ties.

    One minus the largest probability is the sum of the others, whose logarithm falls on without end where the
    largest itself is 1 in float32.
    """
    log_probs = found["log_probs"].astype(np.float64)
    total = entropy(log_probs)
    return {
        "largest probability": logsumexp(np.sort(log_probs, axis=1)[:, :-1], axis=1),
        "entropy": total,
        "mutual information": total - found["aleatoric"],
        "largest logit": -found["logits"].max(axis=1).astype(np.float64),
        "energy": found["energy"].astype(np.float64),
    }


def _ranks(inside: np.ndarray, outside: np.ndarray) -> tuple[Any, Any]:
    """Places of both among all values, from 0; equal values share one. Whole numbers, exact in float32."""
    _, places = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    places = places.astype(np.float32)
    return jnp.asarray(places[: len(inside)]), jnp.asarray(places[len(inside) :])
