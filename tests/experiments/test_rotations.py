"""What the study of rotations computes, apart from any training."""

import jax
import numpy as np
import pytest

from experiments.rotations import study
from symbnn import data, tree
from tests.experiments.cases import debug_config

DEBUG = debug_config("rotations")


@pytest.mark.slow
def test_a_moved_copy_becomes_its_partner_once_its_symmetry_is_removed():
    problem = study.load(DEBUG)
    network = problem.model.init(jax.random.key(0))
    removes = {
        "heads rotated": (study.HEADS, study.STREAM),
        "heads mixed": (study.HEADS, study.STREAM),
        "heads mixed, stream rotated": (study.STREAM,),
    }
    for kind, move in study.MOVES.items():
        copy = tree.stack([move(problem, network, jax.random.key(1))])
        outputs = problem.model.apply(network, problem.judged.inputs)
        np.testing.assert_allclose(
            problem.model.apply(tree.take(copy, 0), problem.judged.inputs), outputs, atol=1e-4
        )
        for variant in removes[kind]:
            moved, reference = study.aligned(problem, variant, copy, network)
            jax.tree.map(
                lambda leaf, one: np.testing.assert_allclose(leaf[0], one, atol=1e-4), moved, reference
            )


def test_a_text_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    with pytest.raises(data.DataError, match=r"no file text/shakespeare\.txt"):
        study.run(study.Rotations(), tmp_path)
