"""The study of UCI tables: lengths, scores against oracles, numbers stored, words, bde by its own Python."""

import dataclasses
import math
import os
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import root_mean_squared_error

from configs.uci import CHAINS, CONFIGS, METHODS, UCI, Peer
from experiments.harness.rundir import Run, open_run
from experiments.uci import compact, findings, peer, scores, tables
from symbnn.data.uci import NUM_ROWS
from symbnn.evaluate import Mixture
from symbnn.posteriors import Empirical

DEBUG = CONFIGS["debug"][1]
ALL = CONFIGS["all"][1]


def test_every_table_has_a_config_and_those_of_bde_have_its_lengths():
    assert set(UCI) == set(NUM_ROWS)
    assert set(CONFIGS) == {*UCI, "all", "small", "debug"}
    assert all(NUM_ROWS[name] <= 1600 for name in CONFIGS["small"][1].sets)
    for name in ("airfoil", "bikesharing"):
        config = CONFIGS[name][1]
        assert tables.HIDDEN[name] == (16, 16, 16, 16)
        assert config.peer.num_warmup == 50_000
        assert config.mclmc.num_samples == config.peer.num_samples // config.peer.thinning
        assert tables.shortened(config, 17_379 if name == "bikesharing" else 1202) == config


def test_small_tables_run_in_full_and_large_ones_in_proportion():
    assert tables.shortened(ALL, 1500) == ALL
    short = tables.shortened(ALL, 6000)
    assert short.ensemble.num_epochs == ALL.ensemble.num_epochs / 4
    assert short.mclmc.num_burnin == ALL.mclmc.num_burnin / 4
    assert short.mclmc.num_samples == ALL.mclmc.num_samples
    assert short.hmc.num_burnin == ALL.hmc.num_burnin / 2
    assert short.hmc.max_num_steps == ALL.hmc.max_num_steps / 2
    assert short.nuts.max_doublings == ALL.nuts.max_doublings - 1
    shortest = tables.shortened(ALL, 10**9)
    assert shortest.ensemble.num_epochs == tables.LEAST_EPOCHS
    assert shortest.mclmc.num_burnin == tables.LEAST_STEPS
    assert shortest.hmc.num_samples == tables.LEAST_TRANSITIONS
    assert tables.shortened(dataclasses.replace(ALL, rows_at_full_length=None), 10**9).hmc == ALL.hmc


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"hmc": dataclasses.replace(DEBUG.hmc, num_chains=4)},
            "--hmc.num-chains must be at most .*, 3, .* 4",
        ),
        ({"methods": ("ensemble", "hmc")}, "--compact.source is mclmc, .* --methods are ensemble hmc"),
        (
            {"compact": dataclasses.replace(DEBUG.compact, rank=18)},
            "--compact.rank must be at most 17 .*; got 18",
        ),
        (
            {"compact": dataclasses.replace(DEBUG.compact, num_components=4)},
            "--compact.num-components must be at most 3 .*; got 4",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        tables.check(dataclasses.replace(DEBUG, **changes))


def test_scores_are_those_of_oracles():
    random = np.random.default_rng(0)
    means, stds = random.normal(size=(7, 30, 1)), np.exp(0.3 * random.normal(size=(7, 30, 1)))
    targets = random.normal(size=(30, 1)).astype(np.float32)
    mixture = Mixture(*map(jnp.asarray, (means, stds, stds, stds)))
    found = scores.judge(mixture, targets)
    centre, width = means.mean(0), np.sqrt((stds**2).mean(0) + means.var(0))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(targets, centre), rel=1e-5)
    assert found["nll"] == pytest.approx(-stats.norm.logpdf(targets, centre, width).mean(), rel=1e-5)
    each = stats.norm.pdf(targets, means, stds).mean(0)
    assert found["mixture_nll"] == pytest.approx(-np.log(each).mean(), rel=1e-5)
    cdf = stats.norm.cdf(targets, means, stds).mean(0)
    for level in (0.5, 0.9, 0.95):
        inside = np.abs(2 * cdf - 1) <= level
        assert found[f"coverage_{round(100 * level)}"] == pytest.approx(inside.mean(), abs=1e-6)
    # CRPS as the integral of the squared difference of distribution functions.
    grid = np.linspace(-15, 15, 6001)[:, None, None, None]
    steps = (stats.norm.cdf(grid, means, stds).mean(1) - (grid[:, 0] >= targets)) ** 2
    assert found["crps"] == pytest.approx(np.trapezoid(steps, grid[:, 0], axis=0).mean(), rel=2e-3)


def test_a_network_that_overflows_has_no_scores():
    stds = jnp.ones((3, 4, 1)).at[1, 2].set(jnp.inf)
    found = scores.judge(Mixture(jnp.zeros((3, 4, 1)), stds, stds, stds), np.zeros((4, 1), np.float32))
    assert math.isnan(found["nll"])
    assert scores.known(found["nll"]) is None
    assert found["num_draws"] == 3


@pytest.fixture(scope="module")
def problem():
    return tables.load(DEBUG, "diabetes")


def test_numbers_of_laws_are_counted_as_they_are_stored(problem):
    weights = sum(leaf.size for leaf in jax.tree.leaves(problem.shapes))
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 18))
    draws = Empirical(samples, num_chains=3)
    laws = {
        "q_r": {"law": compact.compact.gaussian(samples), "std_ratio": math.nan},
        "low rank": {"law": compact.compact.low_rank(samples, 2), "std_ratio": math.nan},
        "mixture": {"law": compact._of_chains(problem, samples, 3, aligned=True), "std_ratio": math.nan},
    }
    found = compact.score(problem, draws, laws)
    assert {name: each["numbers"] for name, each in found.items()} == {
        "draws": 18 * weights,
        "q_r": 2 * weights,
        "low rank": 3 * weights,
        # Two components, and their weights.
        "mixture": 4 * weights + 2,
    }
    assert found["q_r"]["fewer"] == 9
    assert found["draws"]["gap"] == 0
    assert found["q_r"]["gap"] == pytest.approx(found["q_r"]["nll"] - found["draws"]["nll"])


def test_balancing_changes_no_prediction(problem):
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 4))
    before, after = (
        jax.vmap(problem.model.apply, (0, None))(some, problem.inputs)
        for some in (samples, compact._balanced(problem, samples))
    )
    np.testing.assert_allclose(before, after, atol=1e-4)


def made_up(nll, **others):
    return dict.fromkeys(scores.ROWS, 1.0) | {"nll": nll} | others


def test_findings_follow_the_numbers():
    judged = {
        "airfoil": {"ensemble": made_up(-0.3), "mclmc": made_up(-0.9, rhat_95=1.5), "bde": made_up(-0.8)},
        "yacht": {"ensemble": made_up(math.nan), "mclmc": made_up(-2.9, rhat_95=1.005)},
    }
    said = findings.of_methods(judged)
    assert said[0] == "Least NLL of the Gaussian with the predictive moments: MCLMC on 2 of 2."
    assert "on 1 of 2 tables for MCLMC (median over the tables 1.25). Where it is larger" in said[1]
    assert said[2].startswith("airfoil: bde has RMSE 1.0000 and NLL -0.800")
    assert "published are 0.1215 and -0.913" in said[2]
    table = findings.nll_table(judged)
    assert table.columns == ["ensemble", "MCLMC", "bde"]
    assert [cell.value for cell in table.rows[1].cells] == [None, -2.9, None]


def test_a_law_that_loses_little_but_is_not_small_does_not_count():
    names = [name for law, controls in compact.CONTROLS.items() for name in (law, *controls)]
    kept = {name: {"gap": 0.01, "mixture_gap": 0.01, "fewer": 60.0} for name in names}
    large = kept | {
        "refined q_r": {"gap": 0.01, "mixture_gap": 0.5, "fewer": 40.0},
        "random q": {"gap": 0.5, "mixture_gap": 0.5, "fewer": 60.0},
        "thinned draws": {"gap": 0.0, "mixture_gap": 0.5, "fewer": 60.0},
    }
    said = findings.of_laws({"yacht": kept, "energy": large})
    assert "on 1 of 2 tables (yacht); by the NLL of the whole mixture of networks on 1; its" in said[0]
    assert said[0].endswith("its controls: refined q_d on 2, random q on 1.")
    assert "on 2 of 2 tables (yacht, energy)" in said[1]
    assert said[1].endswith("its controls: raw mixture on 2, random mixture on 2, thinned draws on 2.")
    assert "lose less than the refined mixture on 1 of 2 tables, by the NLL of the whole" in said[2]
    assert "networks on 0: there" in said[2]
    assert "there" not in findings.of_laws({"yacht": kept})[2]


def test_a_law_far_below_the_draws_is_not_called_near_them():
    names = [name for law, controls in compact.CONTROLS.items() for name in (law, *controls)]
    far = {name: {"gap": -0.3, "mixture_gap": -0.3, "fewer": 60.0} for name in names}
    said = findings.of_laws({"yacht": far})[0]
    assert (
        "on 1 of 1 tables (yacht), as far or further below it, so not near what draws predict, on yacht;"
        in said
    )


def test_thinned_draws_are_evenly_spaced_and_no_more_numbers_than_the_mixture():
    samples = {"weight": np.arange(1000.0)[:, None]}
    kept = np.asarray(compact._thinned(samples, 18).samples["weight"])[:, 0]
    assert len(kept) == 18
    assert set(np.diff(kept)) <= {55.0, 56.0}
    assert kept[0] == 1000 // 36
    assert kept[-1] == 999 - 1000 // 36


FAKE = """
    import importlib.metadata, runpy, sys, types
    import numpy as np

    class BdeRegressor:
        def __init__(self, **settings):
            self.settings = settings

        def fit(self, x, y):
            assert y.ndim == 1 and len(x) == len(y)

        def predict(self, x, raw):
            assert raw
            kept = self.settings["n_samples"] // self.settings["n_thinning"]
            means = np.tile(x[:, 0], (self.settings["n_members"], kept, 1))
            return np.stack([means, np.zeros_like(means)], axis=-1)

    sys.modules["bde"] = types.SimpleNamespace(BdeRegressor=BdeRegressor)
    sys.modules["bde.loss"] = types.SimpleNamespace(GaussianNLL=object)
    importlib.metadata.version = lambda name: "0"
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_arrays_go_to_the_peer_and_come_back(problem, tmp_path, monkeypatch):
    """With a stand-in for bde: what our side hands over, runs and reads."""
    (tmp_path / "fake.py").write_text(textwrap.dedent(FAKE))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path / "fake.py"}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(peer.VARIABLE, str(python))
    config = dataclasses.replace(problem.config, peer=Peer(num_members=2, num_samples=12, thinning=2))
    asked = dataclasses.replace(problem, config=config)
    with open_run("uci", config, tmp_path / "run") as run:
        found = peer.fit(run, asked, "diabetes")
        # A finished stage needs no Python any more.
        monkeypatch.delenv(peer.VARIABLE)
        again = peer.fit(run, asked, "diabetes")
    assert found["means"].shape == (2, 6, 50)
    np.testing.assert_allclose(found["means"][1, 5], problem.data.test.inputs[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found["stds"], np.log(2) + 1e-6, rtol=1e-6)
    assert found["processor"] > 0
    np.testing.assert_array_equal(again["means"], found["means"])
    assert scores.score_peer(asked, found)["num_draws"] == 12


@pytest.mark.parametrize(
    ("python", "message"), [(sys.executable, "No module named 'bde'"), ("/no/python", "cannot be run")]
)
def test_a_python_without_bde_is_named(problem, tmp_path, monkeypatch, python, message):
    monkeypatch.setenv(peer.VARIABLE, python)
    with (
        open_run("uci", problem.config, tmp_path) as run,
        pytest.raises(ValueError, match=f"{message}.*pip install sklearn-contrib-bde"),
    ):
        peer.fit(run, problem, "diabetes")


def test_without_a_python_the_peer_is_left_out(problem, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(peer.VARIABLE, raising=False)
    with open_run("uci", problem.config, tmp_path) as run:
        assert peer.fit(run, problem, "diabetes") is None
    assert "diabetes-bde: left out, as SYMBNN_PEER_PYTHON names no Python" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(peer.VARIABLE not in os.environ, reason=f"no {peer.VARIABLE}")
def test_bde_itself_runs(problem, tmp_path):
    tiny = Peer(num_members=2, num_epochs=5, num_warmup=50, num_samples=8, thinning=2)
    asked = dataclasses.replace(problem, config=dataclasses.replace(problem.config, peer=tiny))
    with open_run("uci", asked.config, tmp_path) as run:
        found = peer.fit(run, asked, "diabetes")
    assert found["means"].shape == found["stds"].shape == (2, 4, 50)
    assert "sklearn-contrib-bde" in found["version"]
    assert np.isfinite(scores.score_peer(asked, found)["nll"])


def test_seconds_of_a_sampler_that_went_on_are_not_told(problem, tmp_path, monkeypatch):
    from experiments.uci import fits

    monkeypatch.setitem(fits.SAMPLERS, "mclmc", lambda *_, **__: jnp.zeros(()))
    with open_run("uci", problem.config, tmp_path) as run:
        assert fits._sample(run, problem, {}, "mclmc", "diabetes-mclmc")["processor"] >= 0
        monkeypatch.setattr(Run, "has_parts", lambda self, name: True)
        assert math.isnan(fits._sample(run, problem, {}, "mclmc", "diabetes-mclmc")["processor"])


def test_all_methods_have_words_and_samplers():
    from experiments.uci import fits

    assert set(METHODS) < set(scores.WORDS)
    assert set(fits.SAMPLERS) == set(CHAINS)
    assert set(fits.ONE_MODE) | set(fits.SAMPLERS) | {"ensemble"} == set(METHODS)
