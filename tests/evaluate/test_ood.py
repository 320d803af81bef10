"""Detection against scikit-learn, torchmetrics and loops."""

import numpy as np
import pytest
from sklearn import metrics as oracle

from symbnn import evaluate

RANDOM = np.random.default_rng(0)
SCORES = {
    "random": (RANDOM.normal(size=211), RANDOM.normal(1.0, 1.0, 97)),
    "ties": (RANDOM.integers(0, 6, 211).astype(float), RANDOM.integers(1, 8, 97).astype(float)),
    "all equal": (np.ones(5), np.ones(3)),
    "one each": (np.array([0.3]), np.array([0.1])),
    "separated": (-np.arange(40.0), np.arange(1.0, 20.0)),
    "infinite": (np.array([-np.inf, 0.0, 1.0]), np.array([np.inf, 0.0, 2.0])),
}


@pytest.fixture(params=SCORES, scope="module")
def scores(request):
    return tuple(np.float32(part) for part in SCORES[request.param])


def labelled(in_scores, out_scores):
    joined = np.concatenate([in_scores, out_scores])
    return np.repeat([0, 1], [len(in_scores), len(out_scores)]), np.nan_to_num(
        joined, posinf=1e9, neginf=-1e9
    )


def loop_fpr(in_scores, out_scores, recall):
    for threshold in sorted(set(out_scores) | set(in_scores), reverse=True):
        if np.mean(out_scores >= threshold) >= recall:
            return np.mean(in_scores >= threshold)
    raise AssertionError("the lowest threshold has recall one")


def test_area_under_the_curves(scores):
    labels, joined = labelled(*scores)
    np.testing.assert_allclose(evaluate.auroc(*scores), oracle.roc_auc_score(labels, joined), atol=1e-6)
    expected = oracle.average_precision_score(labels, joined)
    np.testing.assert_allclose(evaluate.aupr(*scores), expected, atol=1e-6)


@pytest.mark.parametrize("recall", [0.05, 0.95, 1.0])
def test_false_positives_at_recall(scores, recall):
    np.testing.assert_allclose(evaluate.fpr_at(*scores, recall=recall), loop_fpr(*scores, recall), atol=1e-6)


def test_detection_is_invariant_under_increasing_maps(scores):
    mapped = [np.float32(np.arctan(part)) for part in scores]
    for metric in (evaluate.auroc, evaluate.aupr, evaluate.fpr_at):
        np.testing.assert_allclose(metric(*mapped), metric(*scores), atol=1e-6)


def test_torchmetrics_agrees(scores):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    labels, joined = labelled(*scores)
    # torchmetrics takes scores outside [0, 1] for logits: keep the order, and ties, inside it.
    ranks = np.unique(joined, return_inverse=True)[1] / max(len(joined), 1)
    p, y = torch.from_numpy(ranks.astype(np.float32)), torch.from_numpy(labels)
    np.testing.assert_allclose(evaluate.auroc(*scores), functional.binary_auroc(p, y), atol=1e-6)
    np.testing.assert_allclose(evaluate.aupr(*scores), functional.binary_average_precision(p, y), atol=1e-6)


def test_a_large_auroc_keeps_its_digits():
    in_scores, out_scores = np.float32(RANDOM.normal(size=20_000)), np.float32(RANDOM.normal(0.1, 1, 20_000))
    labels, joined = labelled(in_scores, out_scores)
    np.testing.assert_allclose(
        evaluate.auroc(in_scores, out_scores), oracle.roc_auc_score(labels, joined), atol=1e-6
    )
