"""Agreement and total variation, also of the published predictions of full-batch HMC."""

import os
from pathlib import Path

import numpy as np
import pytest

from symbnn import evaluate
from tests.evaluate.cases import CASES


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]


def test_agreement_and_total_variation(case):
    probs, _ = case
    other = np.roll(probs, 1, axis=0)
    assert evaluate.agreement(probs, probs) == 1.0
    assert evaluate.total_variation(probs, probs) == 0.0
    same = np.mean(probs.argmax(1) == other.argmax(1))
    np.testing.assert_allclose(evaluate.agreement(probs, other), same, atol=1e-6)
    distance = 0.5 * np.abs(probs.astype(np.float64) - other).sum(1).mean()
    np.testing.assert_allclose(evaluate.total_variation(probs, other), distance, atol=1e-6)


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
