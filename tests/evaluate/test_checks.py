"""What is wrong is said before anything is computed, and nothing is said about arrays being traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import evaluate

PROBS = np.float32([[0.2, 0.8], [0.5, 0.5]])
LABELS = np.int32([1, 0])
LABEL_METRICS = [
    evaluate.accuracy,
    evaluate.nll,
    evaluate.brier,
    evaluate.ece,
    evaluate.mce,
    evaluate.adaptive_ece,
    evaluate.classwise_adaptive_ece,
    evaluate.classwise_ece,
    evaluate.aurc,
    evaluate.risk_coverage_curve,
]


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (PROBS * 2, LABELS, r"probs: .* sums to 2"),
        (PROBS - np.float32([0.5, -0.5]), LABELS, r"probs: .* values in \[-0.3, 1.3\].*logits"),
        (np.float32([[3.0, -1.0], [0.2, 5.0]]), LABELS, "apply softmax first"),
        (PROBS * np.float32([[1.0], [np.nan]]), LABELS, "probs: expected probabilities, got NaN"),
        (PROBS[0], LABELS, r"probs: expected shape \(inputs, classes\), got \(2,\)"),
        (PROBS[:0], LABELS[:0], r"at least one number, got shape \(0, 2\)"),
        (np.int32([[0, 1], [1, 0]]), LABELS, "floating-point"),
        (PROBS, LABELS + 1, r"labels: expected labels in \[0, 2\), got values in \[1, 2\]"),
        (PROBS, LABELS - 1, r"labels: expected labels in \[0, 2\), got values in \[-1, 0\]"),
        (PROBS, LABELS[:, None], r"labels: expected shape \(2,\), got \(2, 1\)"),
        (PROBS, np.float32(LABELS), "labels: expected integers, got float32"),
    ],
)
def test_bad_predictions(probs, labels, message):
    for metric in LABEL_METRICS:
        with pytest.raises(ValueError, match=message):
            metric(probs, labels)
    with pytest.raises(ValueError, match=message):
        metric(probs, labels=labels)


def test_other_boundaries():
    with pytest.raises(ValueError, match=r"reference: expected the first argument's shape \(2, 2\)"):
        evaluate.agreement(PROBS, np.float32([[0.2, 0.8]]))
    with pytest.raises(ValueError, match="in_scores: expected real numbers, got NaN"):
        evaluate.auroc(np.float32([0.0, np.nan]), np.float32([1.0]))
    with pytest.raises(ValueError, match="out_scores: expected at least one number"):
        evaluate.fpr_at(np.float32([0.0]), np.float32([]))
    with pytest.raises(ValueError, match="recall"):
        evaluate.fpr_at(np.float32([0.0]), np.float32([1.0]), recall=1.5)
    with pytest.raises(ValueError, match=r"member_probs: expected shape \(members, inputs, classes\)"):
        evaluate.mutual_information(PROBS)
    with pytest.raises(ValueError, match="bins: expected between 1 and the 2 inputs, got 15"):
        evaluate.adaptive_ece(PROBS, LABELS, bins=15)
    with pytest.raises(ValueError, match="stds: expected positive numbers, got 0"):
        evaluate.mixture_nll(
            np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), np.zeros(2, np.float32)
        )


def test_checks_can_be_switched_off_and_come_back():
    with evaluate.unchecked():
        evaluate.accuracy(PROBS * 2, LABELS)
    with pytest.raises(ValueError, match="sums to 2"):
        evaluate.accuracy(PROBS * 2, LABELS)


def test_traced_arrays_are_let_through():
    assert jax.jit(evaluate.accuracy)(PROBS * 2, LABELS) == 1.0
    stacked = jax.vmap(evaluate.brier, in_axes=(0, None))(np.stack([PROBS, PROBS]), LABELS)
    assert stacked.shape == (2,)
    gradient = jax.grad(lambda probs: evaluate.nll(probs, jnp.asarray(LABELS)))(jnp.asarray(PROBS))
    np.testing.assert_allclose(gradient, [[0.0, -0.625], [-1.0, 0.0]], atol=1e-6)
    with pytest.raises(ValueError, match=r"labels: expected shape"):
        jax.jit(evaluate.accuracy)(PROBS, LABELS[:1])


def test_low_precision_probabilities_pass():
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (50, 100)))
    labels = jnp.arange(50)
    rounded = evaluate.ece(probs.astype(jnp.bfloat16), labels)
    np.testing.assert_allclose(rounded, evaluate.ece(probs, labels), atol=0.01)
