"""Scores of single inputs and disagreement of members, against formulas in double precision."""

import numpy as np
import pytest

from symbnn import evaluate

RANDOM = np.random.default_rng(0)


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


def test_equal_members_do_not_disagree(members):
    same = np.repeat(members[:1], 5, axis=0)
    for metric in (evaluate.mutual_information, evaluate.disagreement):
        np.testing.assert_allclose(metric(same), 0.0, atol=1e-6)
    with pytest.raises(ValueError, match="at least two members"):
        evaluate.disagreement(members[:1])
