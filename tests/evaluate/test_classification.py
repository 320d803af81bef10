"""Scores, calibration and selective prediction against scikit-learn, torchmetrics and plain loops."""

import math
import os
from itertools import pairwise, permutations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as oracle

from symbnn import evaluate
from symbnn.evaluate.calibration import bin_edges
from symbnn.evaluate.classification import is_most_probable


def random_case(seed, inputs, classes, sharpness=2.0):
    random = np.random.default_rng(seed)
    logits = sharpness * random.normal(size=(inputs, classes))
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs = (probs / probs.sum(1, keepdims=True)).astype(np.float32)
    return probs, random.integers(0, classes, inputs).astype(np.int32)


def edge_case():
    """Confidences on bin edges, exactly 1, exactly tied; a class that is absent; exact zeros."""
    top = np.concatenate([bin_edges(15)[8:], np.full(6, 0.75), bin_edges(15)[9:]]).astype(np.float32)
    probs = np.stack([top, 1 - top, np.zeros_like(top)], axis=1)
    return probs, (np.arange(len(top)) % 3 == 0).astype(np.int32)


CASES = {
    "random": random_case(0, 400, 10),
    "edges": edge_case(),
    "one input": random_case(1, 1, 4),
    "two classes": random_case(2, 100, 2),
    "thousand classes": random_case(3, 300, 1000, sharpness=4.0),
}


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


def top(probs, labels):
    return probs.max(1), (probs.argmax(1) == labels).astype(np.float64)


@settings(deadline=None)
@given(
    arrays(np.float32, (6, 4), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    arrays(np.int32, 6, elements=st.integers(0, 3)),
)
def test_most_probable_is_argmax_with_ties(probs, labels):
    np.testing.assert_array_equal(
        is_most_probable(jnp.asarray(probs), jnp.asarray(labels)), probs.argmax(-1) == labels
    )


def test_label_is_not_most_probable_where_a_number_is_missing():
    probs = jnp.array([[np.nan, 0.5, 0.5], [0.1, np.nan, 0.2], [np.nan, np.nan, np.nan], [0.2, 0.3, 0.5]])
    labels = jnp.array([1, 1, 0, 2])
    np.testing.assert_array_equal(is_most_probable(probs, labels), [False, False, False, True])


def test_accuracy_brier_nll(case):
    probs, labels = case
    one_hot = np.eye(probs.shape[1])[labels]
    np.testing.assert_allclose(
        evaluate.accuracy(probs, labels), oracle.accuracy_score(labels, probs.argmax(1))
    )
    brier = np.mean(np.sum((probs.astype(np.float64) - one_hot) ** 2, axis=1))
    np.testing.assert_allclose(evaluate.brier(probs, labels), brier, atol=1e-6)
    with np.errstate(divide="ignore"):
        nll = -np.mean(np.log(probs[np.arange(len(labels)), labels].astype(np.float64)))
    np.testing.assert_allclose(evaluate.nll(probs, labels), nll, rtol=1e-6)


def test_scikit_learn_agrees_on_brier_and_nll():
    probs, labels = CASES["random"]
    double = probs.astype(np.float64) / probs.sum(1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(evaluate.nll(probs, labels), oracle.log_loss(labels, double), atol=1e-6)
    brier = oracle.brier_score_loss(labels, double, scale_by_half=False, labels=np.arange(10))
    np.testing.assert_allclose(evaluate.brier(probs, labels), brier, atol=1e-6)
    top_5 = oracle.top_k_accuracy_score(labels, double, k=5, labels=np.arange(10))
    np.testing.assert_allclose(evaluate.top_accuracy(probs, labels, k=5), top_5, atol=1e-6)


def test_a_label_of_probability_zero_costs_infinity():
    assert evaluate.nll(jnp.array([[1.0, 0.0]]), jnp.array([1])) == np.inf


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


def test_binary_calibration():
    probs, labels = CASES["two classes"]
    confidence = np.concatenate([probs[:, 1], np.float32([0.0, 1.0, 0.5])])
    labels = np.concatenate([labels, np.int32([0, 1, 1])])
    ece = loop_ece(confidence, labels.astype(float), 15)
    np.testing.assert_allclose(evaluate.binary_ece(confidence, labels), ece, atol=1e-6)
    mce = loop_ece(confidence, labels.astype(float), 15, combine=max)
    np.testing.assert_allclose(evaluate.binary_mce(confidence, labels), mce, atol=1e-6)
    certain = np.maximum(confidence, 1 - confidence)
    pairs = np.stack([1 - certain, certain], axis=1)
    right = ((confidence > 0.5) == (labels == 1)).astype(np.int32)
    adaptive = evaluate.adaptive_ece(np.where(certain[:, None] == 0.5, [[0.5, 0.5]], pairs), right, bins=1)
    np.testing.assert_allclose(adaptive, abs(right.mean() - certain.mean()), atol=0.02)
    binary = evaluate.binary_adaptive_ece(confidence, labels, bins=1)
    np.testing.assert_allclose(binary, abs(right.mean() - certain.mean()), atol=1e-6)


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


def loop_risks(order, errors):
    return [sum(errors[order[: k + 1]]) / (k + 1) for k in range(len(order))]


def loop_areas(order, errors):
    count = len(order)
    risks = np.array(loop_risks(order, errors))
    coverage = np.arange(1, count + 1) / count
    width = 1 - 1 / count
    return np.trapezoid(risks, coverage) / width, np.trapezoid(risks * coverage, coverage) / width


def test_selective_prediction_without_ties():
    probs, labels = CASES["random"]
    confidence, correct = top(probs, labels)
    order = np.argsort(-confidence)
    aurc, augrc = loop_areas(order, 1 - correct)
    np.testing.assert_allclose(evaluate.aurc(probs, labels), aurc, atol=1e-6)
    np.testing.assert_allclose(evaluate.augrc(probs, labels), augrc, atol=1e-6)
    risks = np.array(loop_risks(order, 1 - correct))
    for coverage in (0.01, 0.07, 0.5, 0.8, 1.0):
        found = evaluate.risk_at_coverage(probs, labels, coverage=coverage)
        np.testing.assert_allclose(found, risks[math.ceil(round(400 * coverage, 9)) - 1], atol=1e-6)
    for risk in (0.05, 0.5, 0.88, 1.0):
        within = np.nonzero(risks <= risk + 1e-9)[0]
        expected = (within[-1] + 1) / 400 if len(within) else np.nan
        np.testing.assert_allclose(evaluate.coverage_at_risk(probs, labels, risk=risk), expected, atol=1e-6)


def test_selective_prediction_by_hand():
    probs = np.float32([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    # Risks 0, 0, 1/3: trapezoids of width 1/3 over a width of 2/3.
    np.testing.assert_allclose(evaluate.aurc(probs, np.int32([0, 0, 1])), (0 + 1 / 6) / 2, atol=1e-7)


def test_ties_are_the_mean_over_all_orders():
    probs = np.float32([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.6, 0.4], [0.6, 0.4]])
    labels = np.int32([0, 0, 1, 1, 1, 0])
    errors = (probs.argmax(1) != labels).astype(float)
    orders = [(0, *a, *b) for a in permutations((1, 2, 3)) for b in permutations((4, 5))]
    aurc, augrc = np.mean([loop_areas(np.array(order), errors) for order in orders], axis=0)
    np.testing.assert_allclose(evaluate.aurc(probs, labels), aurc, atol=1e-6)
    np.testing.assert_allclose(evaluate.augrc(probs, labels), augrc, atol=1e-6)


def test_one_input_has_no_curve_area():
    assert np.isnan(evaluate.aurc(*CASES["one input"]))


def test_agreement_and_total_variation(case):
    probs, _ = case
    other = np.roll(probs, 1, axis=0)
    assert evaluate.agreement(probs, probs) == 1.0
    assert evaluate.total_variation(probs, probs) == 0.0
    same = np.mean(probs.argmax(1) == other.argmax(1))
    np.testing.assert_allclose(evaluate.agreement(probs, other), same, atol=1e-6)
    distance = 0.5 * np.abs(probs.astype(np.float64) - other).sum(1).mean()
    np.testing.assert_allclose(evaluate.total_variation(probs, other), distance, atol=1e-6)


def test_reference_ceiling_is_the_mean_over_pairs():
    chains = np.stack([random_case(seed, 50, 4)[0] for seed in range(3)])
    ceiling = evaluate.reference_ceiling(chains)
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    same = [evaluate.agreement(chains[a], chains[b]) for a, b in pairs]
    apart = [evaluate.total_variation(chains[a], chains[b]) for a, b in pairs]
    np.testing.assert_allclose(ceiling.agreement, np.mean(same), atol=1e-6)
    np.testing.assert_allclose(ceiling.total_variation, np.mean(apart), atol=1e-6)
    np.testing.assert_allclose(ceiling.pairwise_total_variation[0, 1], apart[0], atol=1e-6)


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
        binary = functional.binary_calibration_error(
            p[:, 1].contiguous(), (y == 1).long(), n_bins=bins, norm="l1"
        )
        found = evaluate.binary_ece(probs[:, 1], (labels == 1).astype(np.int32), bins=bins)
        np.testing.assert_allclose(found, binary, atol=1e-6)
    expected = functional.multiclass_accuracy(p, y, classes, average="micro")
    np.testing.assert_allclose(evaluate.accuracy(probs, labels), expected, atol=1e-6)


def test_torch_has_the_same_bin_edges():
    torch = pytest.importorskip("torch")
    for bins in range(1, 200):
        np.testing.assert_array_equal(bin_edges(bins), torch.linspace(0, 1, bins + 1).numpy())


@pytest.fixture(scope="module")
def hmc():
    """Published predictions of full-batch HMC on CIFAR-10 (Izmailov et al. 2021), in test-set order."""
    folder = os.environ.get("SYMBNN_DATA_DIR")
    if folder is None:
        pytest.skip("SYMBNN_DATA_DIR is not set")
    return np.load(Path(folder) / "hmc_reference" / "cifar10_probs.npy")


def test_published_hmc_predictions(hmc):
    assert evaluate.agreement(hmc, hmc) == 1.0
    assert evaluate.total_variation(hmc, hmc) == 0.0
    one_hot = np.eye(10, dtype=np.float32)[hmc.argmax(1)]
    assert evaluate.agreement(one_hot, hmc) == 1.0
    np.testing.assert_allclose(evaluate.total_variation(one_hot, hmc), 0.1376, atol=5e-5)


def test_published_hmc_predictions_against_labels(hmc):
    folder = os.environ.get("SYMBNN_CIFAR10_DIR")
    if folder is None:
        pytest.skip("SYMBNN_CIFAR10_DIR is not set: the folder of test_batch.bin")
    rows = np.fromfile(Path(folder) / "test_batch.bin", np.uint8).reshape(10_000, 3073)
    labels = rows[:, 0].astype(np.int32)
    np.testing.assert_allclose(evaluate.accuracy(hmc, labels), 0.9144, atol=5e-5)
    np.testing.assert_allclose(evaluate.nll(hmc, labels), 0.2773, atol=5e-5)


def test_metrics_compile_once():
    probs, labels = CASES["random"]
    traces = []

    @jax.jit
    def all_of_them(probs, labels):
        traces.append(1)
        return [
            metric(probs, labels) for metric in (evaluate.accuracy, evaluate.ece, evaluate.aurc, evaluate.nll)
        ]

    all_of_them(probs, labels)
    together = all_of_them(probs[::-1], labels)
    assert len(traces) == 1
    np.testing.assert_allclose(together[1], evaluate.ece(probs[::-1], labels), atol=1e-6)
    both = jax.vmap(evaluate.ece)(np.stack([probs, probs[::-1]]), np.stack([labels, labels]))
    np.testing.assert_allclose(both[1], together[1], atol=1e-6)
