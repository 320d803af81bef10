"""Risk and coverage against plain loops, and over all orders of tied inputs."""

from itertools import permutations

import numpy as np

from symbnn import evaluate
from tests.evaluate.cases import CASES, top


def loop_risks(order, errors):
    return [sum(errors[order[: k + 1]]) / (k + 1) for k in range(len(order))]


def loop_area(order, errors):
    count = len(order)
    risks = np.array(loop_risks(order, errors))
    coverage = np.arange(1, count + 1) / count
    return np.trapezoid(risks, coverage) / (1 - 1 / count)


def test_selective_prediction_without_ties():
    probs, labels = CASES["random"]
    confidence, correct = top(probs, labels)
    order = np.argsort(-confidence)
    np.testing.assert_allclose(evaluate.aurc(probs, labels), loop_area(order, 1 - correct), atol=1e-6)
    curve = evaluate.risk_coverage_curve(probs, labels)
    np.testing.assert_allclose(curve.risk, loop_risks(order, 1 - correct), atol=1e-6)
    np.testing.assert_allclose(curve.coverage, np.arange(1, 401) / 400, atol=1e-6)


def test_selective_prediction_by_hand():
    probs = np.float32([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    # Risks 0, 0, 1/3: trapezoids of width 1/3 over a width of 2/3.
    np.testing.assert_allclose(evaluate.aurc(probs, np.int32([0, 0, 1])), (0 + 1 / 6) / 2, atol=1e-7)


def test_ties_are_the_mean_over_all_orders():
    probs = np.float32([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.6, 0.4], [0.6, 0.4]])
    labels = np.int32([0, 0, 1, 1, 1, 0])
    errors = (probs.argmax(1) != labels).astype(float)
    orders = [(0, *a, *b) for a in permutations((1, 2, 3)) for b in permutations((4, 5))]
    expected = np.mean([loop_area(np.array(order), errors) for order in orders])
    np.testing.assert_allclose(evaluate.aurc(probs, labels), expected, atol=1e-6)


def test_one_input_has_no_curve_area():
    assert np.isnan(evaluate.aurc(*CASES["one input"]))
