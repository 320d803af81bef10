"""Ensembles at several widths."""

import dataclasses

import numpy as np
import pytest

from configs import STUDIES
from experiments.common import problem
from experiments.widths import study
from tests.experiments.cases import debug_config, full_size, stop_before_training


def scores(variation, barrier):
    """Of one width, with one number for every state."""
    one = {"mean": np.array([0.9, variation, 0.9, 0.3, 0.01]), "loss_barrier": np.array([barrier, barrier])}
    return dict.fromkeys(study.STATES, one)


def test_findings_say_what_was_measured_and_name_the_paper_at_its_width_only():
    narrow = study.findings({32: scores(0.6, 0.2), 128: scores(0.25, 0.125)})
    assert len(narrow) == 2
    assert "0.6000 to 0.2500 (q_d)" in narrow[0]
    assert "From width 32 to 128" in narrow[0]
    assert "0.1250 nats (q_r, to the mean)" in narrow[1]
    paper = study.findings({32: scores(0.6, 0.2), 512: scores(0.0625, 0.01)})[2]
    assert "is 0.0625 from the ensemble" in paper
    assert "between 0.0266 and 0.0724" in paper


def test_one_width_is_no_comparison_but_runs():
    assert len(study.findings({32: scores(0.6, 0.2)})) == 1


def test_widths_must_rise(tmp_path):
    config = dataclasses.replace(debug_config("widths"), widths=(8, 4))
    with pytest.raises(ValueError, match=r"--widths must rise, got \(8, 4\)"):
        study.run(config, tmp_path)


@pytest.mark.slow
def test_wide_networks_match_better(tmp_path):
    """On digits the Gaussian of wide aligned networks is nearer to them than that of narrow ones."""
    config = dataclasses.replace(
        debug_config("widths"),
        data=dataclasses.replace(debug_config("widths").data, num_train=1000, num_test=300),
        ensemble=dataclasses.replace(debug_config("widths").ensemble, num_epochs=60),
        widths=(4, 64),
    )
    table = study.run(config, tmp_path)
    values = {row.name: [cell.value for cell in row.cells] for row in table.rows}
    raw, aligned = (values[f"TV to the ensemble: {state}"] for state in (study.RAW, study.TO_FIRST))
    assert aligned[1] < raw[1]
    assert aligned[1] < aligned[0]


@pytest.mark.slow
def test_the_papers_width_starts_and_stops(tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    monkeypatch.setattr(problem.data, "load", full_size)
    stop_before_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        study.run(dataclasses.replace(STUDIES["widths"].configs["mnist"][1], widths=(512,)), tmp_path)
    assert not list(tmp_path.glob("stages/*"))
