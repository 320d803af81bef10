"""Accuracy, log-loss and Brier score against scikit-learn, and all metrics under jit and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as oracle

from symbnn import evaluate
from symbnn.evaluate.classification import is_most_probable
from tests.evaluate.cases import CASES


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]


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


def test_a_label_of_probability_zero_costs_infinity():
    assert evaluate.nll(jnp.array([[1.0, 0.0]]), jnp.array([1])) == np.inf


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
