"""Calibration errors against plain loops and torchmetrics."""

from itertools import pairwise

import numpy as np
import pytest

from symbnn import evaluate
from symbnn.evaluate.calibration import bin_edges
from tests.evaluate.cases import CASES, top


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]


def loop_ece(confidence, correct, bins, combine=sum):
    """Bins [e_b, e_(b+1)), and confidence 1 in a bin of its own."""
    edges = [*bin_edges(bins), np.inf]
    gaps = []
    for low, high in pairwise(edges):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            share = inside.mean() if combine is sum else 1.0
            gaps.append(share * abs(correct[inside].mean() - confidence[inside].mean(dtype=np.float64)))
    return combine(gaps)


@pytest.mark.parametrize(("name", "bins"), [("random", 1), ("random", 10), *((name, 15) for name in CASES)])
def test_equal_width_calibration(name, bins):
    probs, labels = CASES[name]
    confidence, correct = top(probs, labels)
    ece = loop_ece(confidence, correct, bins)
    np.testing.assert_allclose(evaluate.ece(probs, labels, bins=bins), ece, atol=1e-6)
    mce = loop_ece(confidence, correct, bins, combine=max)
    np.testing.assert_allclose(evaluate.mce(probs, labels, bins=bins), mce, atol=1e-6)


def test_classwise_calibration(case):
    probs, labels = case
    each = [loop_ece(probs[:, c], (labels == c).astype(float), 15) for c in range(probs.shape[1])]
    np.testing.assert_allclose(evaluate.classwise_ece(probs, labels), np.mean(each), atol=1e-6)


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_equal_mass_calibration(bins):
    probs, labels = CASES["random"]
    confidence, correct = top(probs, labels)
    order = np.argsort(confidence)
    parts = np.array_split(order, bins)
    gaps = [abs((correct[part] - confidence[part]).sum()) for part in parts]
    np.testing.assert_allclose(
        evaluate.adaptive_ece(probs, labels, bins=bins), sum(gaps) / len(labels), atol=1e-6
    )


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_classwise_equal_mass_calibration(bins):
    probs, labels = CASES["random"]
    gaps = []
    for index in range(probs.shape[1]):
        confidence, correct = probs[:, index], (labels == index).astype(float)
        parts = np.array_split(np.argsort(confidence), bins)
        gaps.append(sum(abs((correct[part] - confidence[part]).sum()) for part in parts) / len(labels))
    found = evaluate.classwise_adaptive_ece(probs, labels, bins=bins)
    np.testing.assert_allclose(found, np.mean(gaps), atol=1e-6)
    # Probabilities that are right on average in each class, whoever is in it, have no error in one bin.
    share = np.bincount(labels, minlength=probs.shape[1]) / len(labels)
    constant = np.tile(share.astype(np.float32), (len(labels), 1))
    assert evaluate.classwise_adaptive_ece(constant, labels, bins=1) < 1e-6


def test_equal_mass_bins_do_not_depend_on_the_order_of_ties():
    probs, labels = CASES["edges"]
    shuffled = np.random.default_rng(0).permutation(len(labels))
    assert evaluate.adaptive_ece(probs, labels, bins=4) == evaluate.adaptive_ece(
        probs[shuffled], labels[shuffled], bins=4
    )


def test_reliability_curve_sums_to_the_calibration_error(case):
    probs, labels = case
    curve = evaluate.reliability_curve(probs, labels)
    gaps = np.nan_to_num(np.abs(curve.accuracy - curve.confidence)) * curve.counts
    np.testing.assert_allclose(gaps.sum() / len(labels), evaluate.ece(probs, labels), atol=1e-6)
    assert curve.counts.sum() == len(labels)


def test_torchmetrics_agrees(case):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    probs, labels = case
    p, y = torch.from_numpy(probs), torch.from_numpy(labels.astype(np.int64))
    classes = probs.shape[1]
    for bins in (10, 15):
        expected = functional.multiclass_calibration_error(p, y, classes, n_bins=bins, norm="l1")
        np.testing.assert_allclose(evaluate.ece(probs, labels, bins=bins), expected, atol=1e-6)
        expected = functional.multiclass_calibration_error(p, y, classes, n_bins=bins, norm="max")
        np.testing.assert_allclose(evaluate.mce(probs, labels, bins=bins), expected, atol=1e-6)


def test_torch_has_the_same_bin_edges():
    torch = pytest.importorskip("torch")
    for bins in range(1, 200):
        np.testing.assert_array_equal(bin_edges(bins), torch.linspace(0, 1, bins + 1).numpy())


def test_inputs_of_equal_confidence_count_as_their_mean():
    """Eighty of a hundred are right at confidence 0.8, in whatever order they are listed and cut to bins."""
    probs = np.tile(np.float32([0.8, 0.2]), (100, 1))
    labels = np.repeat([0, 1], [80, 20])
    for error in (evaluate.adaptive_ece, evaluate.classwise_adaptive_ece):
        assert error(probs, labels) < 1e-6
