"""Pruning looks at the posteriors of the compact posterior: makes them alike, or borrows them."""

import dataclasses
import json

import pytest

from configs import STUDIES
from experiments.common import methods
from experiments.common.problem import perceptron
from experiments.harness.rundir import open_run
from experiments.pruning import study
from tests.experiments.cases import debug_config


def test_pruning_looks_at_the_posteriors_of_table_one():
    """The same data, network, sampler and seed under the same name."""
    for name, (_, config) in STUDIES["pruning"].configs.items():
        other = STUDIES["compact_posterior"].configs[name][1]
        for part in ("data", "model", "inference", "ensemble", "variational", "compact", "seed"):
            assert getattr(config, part) == getattr(other, part)


@pytest.mark.slow
def test_borrowed_posteriors_give_the_same_table(tmp_path):
    config, lender = debug_config("compact_posterior"), tmp_path / "lender"
    problem = perceptron(config)
    with open_run("compact_posterior", config, lender) as run:
        run.stage("hmc", lambda: methods.sample(problem, run))
        run.stage("ensemble", lambda: methods.train_ensemble(problem, run))
        run.stage("variational", lambda: methods.fit_variational(problem, run))
    own = debug_config("pruning")
    made = study.run(own, tmp_path / "made")
    borrowed = study.run(dataclasses.replace(own, posteriors=str(lender)), tmp_path / "borrowed")
    assert borrowed == made
    recorded = json.loads((tmp_path / "borrowed" / "run.json").read_text())["stages"]
    assert [name for name, stage in recorded.items() if stage["lender"]] == ["hmc", "ensemble", "variational"]
