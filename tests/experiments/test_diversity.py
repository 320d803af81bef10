"""What the study of diversity refuses, and what it says of its numbers."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.diversity import study
from tests.experiments.cases import debug_config

DEBUG = debug_config("diversity")


@pytest.mark.parametrize("between", [3, 4])
def test_orders_must_divide_the_epochs_into_several_parts(between, tmp_path):
    training = dataclasses.replace(DEBUG.training, epochs_between=between)
    with pytest.raises(ValueError, match=r"--training\.epochs-between must divide --training\.num-epochs 4"):
        study.run(dataclasses.replace(DEBUG, training=training), tmp_path)


def test_more_paired_networks_than_there_are_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--num-paired must be at most --num-networks 20, got 21"):
        study.run(dataclasses.replace(DEBUG, num_paired=21), tmp_path)


@pytest.mark.parametrize(("p_value", "verdict"), [(0.5, "passes"), (0.01, "fails")])
def test_a_chain_is_explained_only_where_it_fails(p_value, verdict):
    tests = {study.ENSEMBLE: SimpleNamespace(p_value=0.9), study.CHAIN: SimpleNamespace(p_value=p_value)}
    said = study.findings(tests, np.array([0.2, 0.3]), np.array([0.4, 0.5]))
    assert f"one HMC chain: p = {p_value:.2g}, {verdict}" in said[0]
    assert ("did not visit all labels" in said[-1]) == (verdict == "fails")


@pytest.mark.parametrize(("least", "words"), [(0.2, "no two networks"), (0.001, "some pairs are close to")])
def test_pairs_that_collapse_are_told(least, words):
    tests = {name: SimpleNamespace(p_value=0.9) for name in (study.ENSEMBLE, study.CHAIN)}
    assert words in study.findings(tests, np.array([least, 0.3, 0.4]), np.array([0.4, 0.5, 0.6]))[1]
