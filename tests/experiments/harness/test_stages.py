"""Stage files: the same classes come back, what cannot be used is set aside, and nothing is overwritten."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.problem import perceptron
from experiments.harness.rundir import open_run
from experiments.harness.stages import CLASSES
from symbnn import compact, data, io, sharing, symmetry
from symbnn.diagnostics import Summary
from symbnn.inference import Fit
from symbnn.posteriors import Empirical
from tests.experiments.cases import debug_config

CONFIG = debug_config("loss_barriers")
KEY = jax.random.key(0)


def stage(directory, compute, name="some"):
    with open_run("loss_barriers", CONFIG, directory) as run:
        return run.stage(name, compute)


def never():
    raise AssertionError("the stage is there and must not be computed again")


@pytest.fixture(scope="module")
def samples():
    problem = perceptron(CONFIG)
    return problem, jax.vmap(problem.model.init)(jax.random.split(KEY, 5))


MAKERS = {
    "Fit": lambda problem, networks: Fit(Empirical(networks, num_chains=5), {"loss": jnp.ones(3)}),
    "DiagonalGaussian": lambda problem, networks: compact.gaussian(networks),
    "LowRankGaussian": lambda problem, networks: compact.low_rank(networks),
    "Aligned": lambda problem, networks: symmetry.align(problem.model.spec, networks, reference="mean"),
    "Summary": lambda problem, networks: Summary(1.0, 1.1, float("inf"), 0.5, 1.0, 9.0, 8.0, 7.0, 0),
    "Stochastic": lambda problem, networks: sharing.Stochastic(
        jax.tree.map(lambda leaf: leaf[0], networks),
        jnp.ones(3),
        sharing.layout_of(jax.tree.map(lambda leaf: leaf[0], networks)),
        jnp.zeros(2),
    ),
    "dict of such": lambda problem, networks: {
        "first": {"law": compact.gaussian(networks)},
        "pair": (Empirical(networks), [1, "two", None]),
    },
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_stage_comes_back_as_what_it_was(tmp_path, samples, kind):
    made = stage(tmp_path, lambda: MAKERS[kind](*samples))
    read = stage(tmp_path, never)
    assert jax.tree.structure(read) == jax.tree.structure(made)
    assert type(read) is type(made)
    jax.tree.map(np.testing.assert_array_equal, read, made)


def test_the_chains_of_a_fit_are_kept(tmp_path, samples):
    stage(tmp_path, lambda: MAKERS["Fit"](*samples))
    assert stage(tmp_path, never).posterior.num_chains == 5


def test_no_two_classes_share_a_name():
    assert len({cls.__name__ for cls in CLASSES}) == len(CLASSES)


def test_a_class_that_would_not_come_back_is_refused_when_it_is_made(tmp_path):
    with pytest.raises(ValueError, match="stage 'some' returned a Split, which would come back as a dict"):
        stage(tmp_path, lambda: {"inner": [data.Split(np.zeros(2), np.zeros(2))]})
    assert not list(tmp_path.glob("stages/*"))


def spoil(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def test_a_damaged_stage_is_named_kept_aside_and_computed_again(tmp_path, capsys):
    stage(tmp_path, lambda: jnp.arange(3.0))
    path = tmp_path / "stages" / "some.safetensors"
    for aside in ("some.safetensors.damaged", "some.safetensors.damaged1"):
        spoil(path)
        content = path.read_bytes()
        capsys.readouterr()
        assert stage(tmp_path, lambda: jnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
        out = capsys.readouterr().out
        assert str(path) in out
        assert f"kept as {aside}; computing it again" in out
        assert (path.parent / aside).read_bytes() == content


@pytest.mark.parametrize("change", [{"run": "another"}, {"stage": "another"}])
def test_a_stage_of_another_run_is_not_taken_but_kept_aside(tmp_path, capsys, change):
    stage(tmp_path, lambda: jnp.arange(3.0))
    path = tmp_path / "stages" / "some.safetensors"
    tree, metadata = io.load_tree(path)
    io.save_tree(path, tree, metadata | change)
    stage(tmp_path, lambda: jnp.arange(3.0))
    assert (
        f"{path} belongs to another stage or run; kept as some.safetensors.other" in capsys.readouterr().out
    )
    assert io.read_metadata(path.with_name("some.safetensors.other")) == metadata | change
    assert io.read_metadata(path)["run"] == metadata["run"]


def test_a_stage_of_an_older_version_is_refused_with_the_remedy(tmp_path):
    """Without the commit of the code that computed it; run.json may have been lost since."""
    stage(tmp_path, lambda: jnp.arange(3.0))
    path = tmp_path / "stages" / "some.safetensors"
    tree, metadata = io.load_tree(path)
    old = {name: metadata[name] for name in ("stage", "run")} | {"seconds": "1.0"}
    io.save_tree(path, tree, old)
    with pytest.raises(ValueError, match=r"was written by an older version.*use --fresh to start over"):
        stage(tmp_path, never)
    assert io.read_metadata(path) == old


def test_chunks_of_another_commit_are_told_and_recorded(tmp_path, capsys):
    """A stage that was stopped at one commit and finished at another was computed by both."""
    for commit, ending in (("a" * 40, KeyboardInterrupt), ("b" * 40, None)):
        with open_run("loss_barriers", CONFIG, tmp_path) as run:
            run.description["git_commit"] = commit

            def compute(run=run, ending=ending):
                run.chunks("hmc")
                if ending:
                    raise ending
                return jnp.ones(1)

            if ending:
                with pytest.raises(ending):
                    run.stage("hmc", compute)
            else:
                run.stage("hmc", compute)
    assert "hmc: goes on from parts computed at aaaaaaa (this is bbbbbbb)" in capsys.readouterr().out
    recorded = json.loads((tmp_path / "run.json").read_text())["stages"]["hmc"]["commit"]
    assert recorded == f"{'a' * 40}, then {'b' * 40}"
