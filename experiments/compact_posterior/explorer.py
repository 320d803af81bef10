"""What a reader of the report can look at: draws of HMC, raw and aligned to their mean."""

import itertools
from typing import Any

import numpy as np

from experiments.common import weight_space
from experiments.common.problem import Problem
from experiments.harness.explorer import Case, Explorer, Layer, Line, Reliability
from symbnn import compact, evaluate, keys, tree
from symbnn.plot.choice import Weight
from symbnn.plot.reliability import wilson_interval
from symbnn.types import Samples

MOST_DRAWS = 200
MOST_CASES = 20
# All numbers take less than a megabyte: two for every weight and draw, seven letters each.
MOST_LAYERS, MOST_WEIGHTS, MOST_OF_A_LAYER = 32, 192, 64
NUM_ENDS = 4
"""Networks between which lines are drawn: all pairs of different chains."""
NUM_POINTS = 21
NUM_BINS = 10
TINY = 1e-12
"""Keeps quotients and logarithms finite, and is no part of any number that is shown."""
LAWS = ("HMC samples", "HMC q_d", "q_r, mean")
"""As the tables call them."""


def compute(problem: Problem, samples: Samples, aligned: Samples) -> dict[str, Any]:
    """Predictions of single draws, calibration of the laws, and losses between draws of different chains."""
    apply, inputs = problem.model.apply, problem.inputs
    rows, chains = shown_draws(problem, samples)
    shown = tree.take(samples, rows)
    settings: Any = {"key": keys.named(problem.key, "explorer"), "num_samples": len(rows)}
    fitted = [compact.gaussian(each) for each in (samples, aligned)]
    probs = [
        evaluate.predict(apply, shown, inputs),
        *(evaluate.predict(apply, law, inputs, **settings) for law in fitted),
    ]
    cases = shown_cases(np.asarray(probs[0]))
    curves = [evaluate.reliability_curve(each, problem.labels, bins=NUM_BINS) for each in probs]
    first, second = shown_pairs(chains).T
    raw, moved = (
        weight_space.barriers(
            problem, tree.take(each, rows[first]), tree.take(each, rows[second]), points=NUM_POINTS
        )
        for each in (samples, aligned)
    )
    return {
        "cases": cases,
        "probs": evaluate.predict(apply, shown, inputs[cases], members=True),
        "reliability": {name: curve._asdict() for name, curve in zip(LAWS, curves, strict=True)},
        "along": raw.weights,
        "raw": raw.loss,
        "aligned": moved.loss,
    }


def explorer(problem: Problem, samples: Samples, aligned: Samples, found: Any) -> Explorer:
    """The explorer of the draws, and of what `compute` found."""
    rows, chains = shown_draws(problem, samples)
    raw, moved = (tree.named_leaves(tree.take(each, rows)) for each in (samples, aligned))
    names = [name for name, leaf in raw.items() if leaf[0].size > 1]
    narrowed = {name: float(np.median(_spread(moved[name]) / _spread(raw[name]))) for name in names}
    names = sorted(names, key=lambda name: narrowed[name])[:MOST_LAYERS]
    most = min(MOST_OF_A_LAYER, max(2, MOST_WEIGHTS // len(names)))
    length = tree.num_samples(samples) // problem.config.inference.num_chains
    ends = [f"chain {chain}, draw {row % length}" for row, chain in zip(rows, chains, strict=True)]
    return Explorer(
        chains=chains,
        layers=[_layer(name, np.asarray(raw[name]), np.asarray(moved[name]), most) for name in names],
        cases=_cases(problem, found),
        reliability=[_reliability(name, found["reliability"][name]) for name in LAWS],
        lines=[
            Line(f"{ends[one]} and {ends[other]}", *(np.asarray(found[part][index]) for part in _CURVES))
            for index, (one, other) in enumerate(shown_pairs(chains))
        ],
        notes=[
            f"{len(rows)} of the {tree.num_samples(samples)} HMC draws, evenly spaced, raw and aligned to "
            "the mean of all. Layers are listed from the one that alignment narrows most, weights from the "
            "most certain after alignment (mean over standard deviation), test inputs from the least certain "
            "prediction."
        ],
    )


_CURVES = ("along", "raw", "aligned")


def shown_draws(problem: Problem, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Rows of draws evenly spaced over all chains, and the chain of each."""
    count = tree.num_samples(samples)
    rows = np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int)
    return rows, rows // (count // problem.config.inference.num_chains)


def shown_pairs(chains: np.ndarray) -> np.ndarray:
    """Pairs of places in `chains`, of different chains if there are several."""
    ends = np.linspace(0, len(chains) - 1, min(len(chains), NUM_ENDS)).astype(int)
    pairs = list(itertools.combinations(ends, 2))
    apart = [pair for pair in pairs if chains[pair[0]] != chains[pair[1]]]
    return np.array(apart or pairs)


def shown_cases(probs: np.ndarray) -> np.ndarray:
    """Inputs by entropy of the prediction: half the most uncertain, half evenly spaced over all others."""
    entropy = -np.sum(probs * np.log(probs + TINY), axis=1)
    order = np.argsort(-entropy, kind="stable")
    half = min(len(order), MOST_CASES) // 2
    places = np.linspace(half, len(order) - 1, min(len(order), MOST_CASES) - half).astype(int)
    return np.concatenate([order[:half], order[places]])


def _layer(name: str, raw: np.ndarray, aligned: np.ndarray, most: int) -> Layer:
    """Weights evenly spaced over all, ordered by how certain they are after alignment."""
    flat, moved = (each.reshape(len(each), -1) for each in (raw, aligned))
    order = np.argsort(-np.abs(moved.mean(0)) / _spread(moved), kind="stable")
    kept = order[np.linspace(0, len(order) - 1, min(len(order), most)).astype(int)]
    places = [np.unravel_index(place, raw.shape[1:]) for place in kept]
    weights = [str(Weight(name, tuple(map(int, place)))) for place in places]
    return Layer(name, weights, flat[:, kept].T, moved[:, kept].T)


def _spread(draws: np.ndarray) -> np.ndarray:
    """Standard deviation over the draws, never zero."""
    return np.std(np.asarray(draws, np.float64), axis=0) + TINY


def _cases(problem: Problem, found: Any) -> list[Case]:
    cases, probs = np.asarray(found["cases"]), np.asarray(found["probs"])
    images = _images(problem, cases)
    labels = np.asarray(problem.labels)[cases]
    return [
        Case(f"test input {case}, class {label}", int(label), probs[:, index], images[index])
        for index, (case, label) in enumerate(zip(cases, labels, strict=True))
    ]


def _images(problem: Problem, cases: np.ndarray) -> list[np.ndarray | None]:
    """Pixels from 0 to 1, on one scale for all; None where inputs are no images."""
    shape = problem.image_shape
    if len(shape) != 3 or shape[-1] not in (1, 3):
        return [None] * len(cases)
    pixels = np.asarray(problem.data.test.inputs)[cases].reshape(-1, *shape)
    low, high = float(pixels.min()), float(pixels.max())
    return list((pixels - low) / ((high - low) or 1.0))


def _reliability(name: str, curve: Any) -> Reliability:
    is_full = np.asarray(curve["counts"]) > 0
    confidence, accuracy, counts = (
        np.asarray(curve[part], np.float64)[is_full] for part in ("confidence", "accuracy", "counts")
    )
    low, high = wilson_interval(accuracy * counts, counts)
    return Reliability(name, confidence, accuracy, low, high, counts.astype(int))
