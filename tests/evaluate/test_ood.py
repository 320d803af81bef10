"""Detection, diversity, conformal sets, temperature against scikit-learn, torchmetrics, scipy and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
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


@pytest.fixture(scope="module")
def members():
    logits = 2.0 * RANDOM.normal(size=(6, 30, 4))
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    probs[:, 0] = np.eye(4)[RANDOM.integers(0, 4, 6)]
    return np.float32(probs)


def entropy(probs):
    return -np.sum(np.where(probs > 0, probs * np.log(np.maximum(probs, 1e-300)), 0.0), axis=-1)


def test_scores_of_inputs(members):
    double = members.astype(np.float64)
    mean = np.float32(double.mean(0))
    information = entropy(double.mean(0)) - entropy(double).mean(0)
    np.testing.assert_allclose(evaluate.mutual_information_score(members), information, atol=1e-6)
    np.testing.assert_allclose(evaluate.mutual_information(members), information.mean(), atol=1e-6)
    np.testing.assert_allclose(evaluate.entropy_score(mean), entropy(mean.astype(np.float64)), atol=1e-6)
    np.testing.assert_array_equal(evaluate.max_probability_score(mean), -mean.max(1))
    logits = np.float32(RANDOM.normal(size=(9, 3)))
    energy = -2.0 * np.log(np.exp(logits.astype(np.float64) / 2.0).sum(1))
    np.testing.assert_allclose(evaluate.energy_score(logits, temperature=2.0), energy, atol=1e-6)


def test_disagreement_counts_pairs(members):
    votes = members.argmax(-1)
    pairs = [np.mean(votes[a] != votes[b]) for a in range(6) for b in range(6) if a != b]
    np.testing.assert_allclose(evaluate.disagreement(members), np.mean(pairs), atol=1e-6)
    winner = members.mean(0).argmax(-1)
    np.testing.assert_allclose(evaluate.variation_ratio(members), np.mean(votes != winner), atol=1e-6)
    soft = 1 - np.mean(members.mean(0)[np.arange(30), winner])
    np.testing.assert_allclose(evaluate.soft_variation_ratio(members), soft, atol=1e-6)


def test_equal_members_do_not_disagree(members):
    same = np.repeat(members[:1], 5, axis=0)
    for metric in (evaluate.mutual_information, evaluate.disagreement, evaluate.variation_ratio):
        np.testing.assert_allclose(metric(same), 0.0, atol=1e-6)
    with pytest.raises(ValueError, match="at least two members"):
        evaluate.disagreement(members[:1])


def conformal_case(inputs=4000, classes=6):
    random = np.random.default_rng(3)
    logits = 1.5 * random.normal(size=(inputs, classes))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([random.choice(classes, p=row) for row in probs])
    # Overconfident probabilities: the guarantee must not need calibration.
    sharp = probs**2 / (probs**2).sum(1, keepdims=True)
    return np.float32(sharp), labels.astype(np.int32)


@pytest.mark.parametrize("method", ["threshold", "adaptive", "randomised"])
def test_conformal_sets_cover(method):
    probs, labels = conformal_case()
    first, second = slice(0, 2000), slice(2000, 4000)
    if method == "threshold":
        threshold = evaluate.conformal_threshold(evaluate.threshold_scores(probs[first], labels[first]))
        sets = evaluate.threshold_sets(probs[second], threshold)
    else:
        key_a, key_b = jax.random.split(jax.random.key(0)) if method == "randomised" else (None, None)
        scores = evaluate.adaptive_scores(probs[first], labels[first], key_a)
        threshold = evaluate.conformal_threshold(scores)
        sets = evaluate.adaptive_sets(probs[second], threshold, key_b)
    coverage = evaluate.set_coverage(sets, labels[second])
    # Binomial test set on top of a Beta-distributed coverage: standard deviation about 0.0095.
    assert abs(float(coverage) - 0.9) < 4 * 0.0095
    assert 1.0 < evaluate.set_size(sets) < 6.0


def test_conformal_threshold_is_the_ranked_score():
    scores = np.float32(np.random.default_rng(0).permutation(99))
    assert evaluate.conformal_threshold(scores, alpha=0.1) == 89
    assert evaluate.conformal_threshold(scores[:5], alpha=0.1) == np.inf


def test_adaptive_scores_by_hand():
    probs = np.float32([[0.2, 0.5, 0.3]])
    scores = [float(evaluate.adaptive_scores(probs, np.int32([label]))[0]) for label in range(3)]
    np.testing.assert_allclose(scores, [1.0, 0.5, 0.8], atol=1e-6)


def test_residual_intervals_hold_their_scores():
    mean, std, targets = np.float32(RANDOM.normal(size=(3, 99)))
    std = np.abs(std) + 0.1
    threshold = evaluate.conformal_threshold(evaluate.residual_scores(mean, std, targets))
    low, high = evaluate.residual_interval(mean, std, threshold)
    assert np.sum((targets >= low - 1e-6) & (targets <= high + 1e-6)) == 90


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_temperature_is_the_minimum_of_the_nll(scale):
    random = np.random.default_rng(5)
    logits = random.normal(size=(300, 4))
    labels = np.array([random.choice(4, p=np.exp(row) / np.exp(row).sum()) for row in logits])

    def nll(log_temperature):
        scaled = scale * logits / np.exp(log_temperature)
        return np.mean(np.log(np.exp(scaled).sum(1)) - scaled[np.arange(300), labels])

    best = optimize.minimize_scalar(nll, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).x
    found = evaluate.fit_temperature(np.float32(scale * logits), labels.astype(np.int32))
    np.testing.assert_allclose(found, np.exp(best), rtol=1e-4)


def test_temperature_of_perfect_predictions_is_the_lowest():
    assert evaluate.fit_temperature(jnp.eye(3), jnp.arange(3)) < 0.05
