"""Rate and distortion: files keep what they say, sizes are the files' own, words follow the numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from configs import STUDIES
from experiments.common.problem import perceptron
from experiments.rate_distortion import laws, report, storage, tables
from experiments.rate_distortion.laws import ALIGNED, GAUSSIAN, MIXTURE, NETWORKS, RANDOM, RAW, REFINED
from symbnn import diagnostics, models, posteriors, tree
from symbnn.posteriors import DiagonalGaussian, Empirical, LowRankGaussian
from tests.experiments.cases import debug_config

MODEL = models.mlp((6,), 3, hidden=(5,))
MEAN = MODEL.init(jax.random.key(0))
STD = jax.tree.map(lambda leaf: jnp.exp(jax.random.normal(jax.random.key(1), leaf.shape) - 3), MEAN)
LAWS = {
    "Gaussian": DiagonalGaussian(MEAN, STD),
    "low rank": LowRankGaussian(MEAN, tree.stack([MEAN, STD]), STD),
    "mixture": posteriors.mixture([DiagonalGaussian(MEAN, STD), DiagonalGaussian(STD, STD)], [0.3, 0.7]),
    "networks": Empirical(tree.stack([MEAN, STD])),
}
ERRORS = {"float32": 0.0, "float16": 1e-3, "int8": 0.06}
"""Of a number, over the largest in its column; of a standard deviation, over itself: half a step of 0.054."""


@pytest.mark.parametrize("form", ERRORS)
@pytest.mark.parametrize("kind", LAWS)
def test_a_file_gives_the_law_back_as_precisely_as_its_format(kind, form, tmp_path):
    law, path = LAWS[kind], tmp_path / "law"
    size = storage.save(path, law, form)
    assert size == path.stat().st_size
    found = storage.load(path, law, form)
    assert type(found) is type(law)

    def check(name, one, other):
        one, other = np.asarray(one), np.asarray(other)
        unit = one if "std" in name else np.abs(one).max(axis=-2 if one.ndim > 1 else -1, keepdims=True)
        assert np.all(np.abs(one - other) <= ERRORS[form] * np.abs(unit) + 1e-30), name

    tree.map_named(check, law, found)


def test_smaller_formats_make_smaller_files(tmp_path):
    wide = models.mlp((60,), 10, hidden=(50,)).init(jax.random.key(0))
    law = Empirical(tree.stack([wide] * 8))
    sizes = [storage.save(tmp_path / form, law, form) for form in ERRORS]
    numbers = tree.num_weights(law)
    assert sizes == sorted(sizes, reverse=True)
    for size, width in zip(sizes, (4, 2, 1), strict=True):
        assert width * numbers < size < 1.25 * width * numbers


def test_a_known_weight_stays_known(tmp_path):
    law = DiagonalGaussian(MEAN, jax.tree.map(jnp.zeros_like, STD))
    storage.save(tmp_path / "law", law, "int8")
    found = storage.load(tmp_path / "law", law, "int8")
    assert all(not leaf.any() for leaf in jax.tree.leaves(found.std))


def test_the_draws_are_those_of_table_one():
    for name, (_, config) in STUDIES["rate_distortion"].configs.items():
        if name == "airfoil":  # Table one has no table of rows.
            continue
        other = STUDIES["compact_posterior"].configs[name][1]
        for part in ("data", "model", "inference", "seed"):
            assert getattr(config, part) == getattr(other, part)


def test_no_fit_sees_what_candidates_are_judged_on():
    problem = perceptron(debug_config("rate_distortion"))
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    given = laws.images(problem, samples)
    seen = {row.tobytes() for row in np.asarray(given.inputs)}
    assert not seen & {row.tobytes() for row in np.asarray(given.held_inputs)}
    held = problem.config.fits.num_validation
    assert len(given.held_inputs) == 2 * held
    assert len(given.inputs) == 2 * problem.config.fits.mixed * (problem.target.num_data - held)
    assert given.probs.shape == (len(given.inputs), 10)


def test_too_many_held_out_images_are_named():
    config = debug_config("rate_distortion")
    fits = dataclasses.replace(config.fits, num_validation=200)
    problem = perceptron(dataclasses.replace(config, fits=fits))
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    with pytest.raises(ValueError, match=r"--fits.num-validation must be below 200"):
        laws.images(problem, samples)


@pytest.mark.parametrize(("most", "taken"), [(3, [0, 2, 4]), (4, [0, 1, 3, 4]), (6, range(6)), (9, range(6))])
def test_laws_are_made_of_evenly_spaced_draws(most, taken):
    problem = perceptron(dataclasses.replace(debug_config("rate_distortion"), num_fitted=most))
    found = laws.spaced(problem, {"weight": jnp.arange(6.0)})
    np.testing.assert_array_equal(found["weight"], taken)
    said = report.introduction(problem)[1]
    assert (f"fitted to {most} of the draws as they are, evenly spaced, aligned" in said) == (
        problem.config.inference.num_chains * problem.config.inference.num_samples > most
    )


def test_random_starts_have_the_numbers_of_the_laws_they_stand_beside():
    problem = perceptron(debug_config("rate_distortion"))
    samples = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 6))
    made = laws.plain(problem, samples)
    for family, size in laws.families(problem.config):
        start, law = laws.random_start(problem, family, size), made[laws.label(family, size)]
        assert jax.tree.structure(start) == jax.tree.structure(law)
        assert [leaf.shape for leaf in jax.tree.leaves(start)] == [
            leaf.shape for leaf in jax.tree.leaves(law)
        ]


def point(state, family, size, num_bytes, distance, form="float32"):
    return {
        **{"state": state, "family": family, "size": size, "format": form},
        **{"bytes": num_bytes, "distance": np.array([distance])},
    }


KEPT = [point(RAW, NETWORKS, n, 10_000 * n, 0.08 / np.sqrt(n)) for n in (1, 2, 4, 8, 16, 64, 200)]


def test_the_winner_is_the_one_of_the_numbers():
    good = [*KEPT, point(REFINED, GAUSSIAN, 1, 20_000, 0.02)]
    assert report.findings(good)[0] == (
        "In 20 kB a refined Gaussian has TV 0.0200, nearer to HMC than kept draws in as much (0.0566)."
    )
    bad = [*KEPT, point(REFINED, MIXTURE, 2, 20_000, 0.07)]
    assert "a refined mixture has TV 0.0700, farther from HMC than kept draws" in report.findings(bad)[0]
    assert report.findings(KEPT[:1]) == []


def test_where_draws_win_is_said():
    """The kept draws' TV is 0.02 at 160 kB and 0.01 at 640 kB."""
    fit = point(REFINED, GAUSSIAN, 1, 20_000, 0.015)
    assert any(said.startswith("From 640,000 bytes on, kept draws") for said in report.findings([*KEPT, fit]))
    equal = point(REFINED, GAUSSIAN, 1, 20_000, 0.02)
    assert any(said.startswith("From 640,000 bytes on") for said in report.findings([*KEPT, equal]))
    worse = point(REFINED, GAUSSIAN, 1, 20_000, 0.056)
    assert any(said.startswith("From 40,000 bytes on") for said in report.findings([*KEPT, worse]))
    coarse = point(RAW, NETWORKS, 200, 700_000, 0.03, "int8")
    assert any(said.startswith("From 640,000 bytes on") for said in report.findings([*KEPT, coarse, fit]))
    large = point(REFINED, GAUSSIAN, 1, 3_000_000, 0.001)
    assert any(said.startswith("From 10,000 bytes on") for said in report.findings([*KEPT, large]))
    best = point(REFINED, GAUSSIAN, 1, 9_000, 0.001)
    assert any(said.startswith("At every size some refined law") for said in report.findings([*KEPT, best]))


def test_worth_is_counted_in_draws():
    said = report.findings([*KEPT, point(REFINED, GAUSSIAN, 1, 20_000, 0.02)])
    assert "The refined Gaussian (TV 0.0200) is worth 16 draws." in said
    said = report.findings([*KEPT, point(ALIGNED, GAUSSIAN, 1, 20_000, 0.7)])
    assert "The aligned Gaussian (TV 0.7000) is worth less than one draw." in said


def test_the_control_is_told_where_it_wins_and_not_where_it_did_not_run():
    refined = point(REFINED, GAUSSIAN, 1, 20_000, 0.02)
    lost = report.findings([*KEPT, refined, point(RANDOM, GAUSSIAN, 1, 20_000, 0.01)])
    assert "in 1 of 1 cases: Gaussian." in lost[-1]
    won = report.findings([*KEPT, refined, point(RANDOM, GAUSSIAN, 1, 20_000, 0.03)])
    assert "in 0 of 1 cases." in won[-1]
    assert "untrained" not in " ".join(report.findings([*KEPT, refined]))


def test_twice_the_floor_names_the_smallest_file():
    two = [
        point(REFINED, MIXTURE, 8, 150_000, 0.010),
        point(REFINED, MIXTURE, 8, 77_000, 0.011, "float16"),
        point(REFINED, GAUSSIAN, 1, 20_000, 0.03),
    ]
    said = " ".join(report.findings([*KEPT, *two]))
    assert "the smallest refined file is mixture 8 in float16: 77,000 bytes, TV 0.0110" in said
    assert "No refined law comes within twice that." in " ".join(report.findings([*KEPT, two[-1]]))


def test_a_size_is_a_limit():
    assert report.best(KEPT, RAW, NETWORKS, 9_000) is None
    assert report.best(KEPT, RAW, NETWORKS, 40_000) == pytest.approx(0.04)


def test_bins_have_the_masses_of_the_gaussian_that_the_network_gives():
    """Against scipy; far from every bin as well, where masses vanish and the gradient must not be NaN."""
    network = models.mlp((2,), 2, hidden=(3,))
    params, inputs = network.init(jax.random.key(0)), jnp.array([[0.3, -1.0], [2.0, 0.5], [400.0, 1.0]])
    found = jax.nn.softmax(tables.binned(network, 20).apply(params, inputs))
    outputs = network.apply(params, inputs)
    mean, std = np.asarray(outputs[:, :1], float), np.asarray(tables.LIKELIHOOD.spread(outputs), float)
    edges = np.array([-np.inf, *np.linspace(-tables.REACH, tables.REACH, 19), np.inf])
    expected = np.diff(stats.norm.cdf(edges, mean, std), axis=1)
    assert found.shape == (3, 20)
    np.testing.assert_allclose(found, expected, atol=1e-5)

    def score(params):
        return jnp.sum(tables.binned(network, 20).apply(params, inputs))

    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.grad(score)(params)))


def test_a_table_is_judged_by_bins_and_sampled_by_its_own_likelihood(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    folder = tmp_path / "uci" / "airfoil"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", random.normal(size=(1503, 6)))
    np.savetxt(folder / "index_features.txt", np.arange(5), fmt="%d")
    np.savetxt(folder / "index_target.txt", [5], fmt="%d")
    monkeypatch.setenv("SYMBNN_DATA_DIR", str(tmp_path))
    sampled = tables.load(STUDIES["rate_distortion"].configs["airfoil"][1])
    assert not sampled.target.likelihood.has_labels
    assert (sampled.target.num_data, sampled.labels.shape) == (1202, (301, 1))
    judged = tables.as_judged(sampled)
    params = sampled.model.init(jax.random.key(0))
    assert judged.model.apply(params, judged.inputs).shape == (301, 100)
    assert "masses of 100 bins" in report.introduction(judged)[-1]
    images = tables.load(debug_config("rate_distortion"))
    assert tables.as_judged(images) is images
    assert "bins" not in " ".join(report.introduction(images))


@pytest.mark.parametrize(
    ("rhat", "ess", "said"), [(1.005, 500, "agree"), (1.2, 500, "NOT"), (1.0, 20, "NOT")]
)
def test_chains_that_have_not_converged_are_called_so(rhat, ess, said):
    summary = diagnostics.Summary(*[0.0] * len(diagnostics.Summary._fields))
    words = report.of_chains(summary._replace(rhat_95=rhat, low_ess=ess))
    assert said in words
    assert f"{rhat:.3f}" in words
