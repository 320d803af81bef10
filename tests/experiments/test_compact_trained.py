"""The ensemble and VI at the paper's full size."""

import pytest

from configs import STUDIES
from experiments.common import problem
from experiments.compact_trained import study
from tests.experiments.cases import full_size, stop_before_training


@pytest.mark.slow
def test_the_papers_ensemble_starts_and_stops(tmp_path, monkeypatch):
    """Full size up to the first compiled chunk of epochs: built, not run, and nothing half-done is kept."""
    monkeypatch.setattr(problem.data, "load", full_size)
    stop_before_training(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        study.run(STUDIES["compact_trained"].configs["mnist"][1], tmp_path)
    assert (tmp_path / "run.json").exists()
    assert not list(tmp_path.glob("stages/*"))
