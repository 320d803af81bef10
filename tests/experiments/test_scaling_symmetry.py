"""The law of the imbalance: its formula, and the programs that measure it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.scaling_symmetry import Law, Networks
from experiments.common import convergence, methods
from experiments.scaling_symmetry import law, study
from symbnn import density, models, symmetry, tree
from tests.experiments.cases import debug_config

KEY = jax.random.key(0)


LAW = Law(learning_rates=(0.05,), weight_decays=(0.03, 0.1), num_networks=2, num_steps=200, num_images=16)


@pytest.fixture(scope="module")
def problem():
    inputs = jax.random.normal(jax.random.key(1), (16, 3))
    labels = (inputs[:, 0] > 0).astype(int)
    return models.mlp((3,), 2, hidden=(4,)), density.Batch(inputs, labels)


def swept(problem, batch_size=16):
    return law.sweep(jax.random.key(0), *problem, LAW, optimizer="sgd", batch_size=batch_size)


def test_full_batches_follow_the_law(problem):
    expected = law.left_by_law(np.array(LAW.weight_decays), 0.05 * LAW.num_steps)
    np.testing.assert_allclose(swept(problem), np.broadcast_to(expected[:, None], (1, 2, 2)), rtol=0.1)


@pytest.mark.parametrize("batch_size", [16, 4])
def test_side_by_side_and_one_after_the_other_train_the_same(problem, monkeypatch, batch_size):
    together = swept(problem, batch_size)
    monkeypatch.setattr(law, "has_convolution", lambda program: True)
    law._train.clear_cache()
    apart = swept(problem, batch_size)
    law._train.clear_cache()
    np.testing.assert_allclose(apart, together, rtol=1e-4)


@pytest.mark.slow
def test_imbalance_is_incoming_minus_outgoing():
    model = models.mlp((5,), 2, hidden=(4, 3))
    samples = jax.vmap(model.init)(jax.random.split(KEY, 2))
    first, second, out = (samples[name]["kernel"] for name in ("hidden0", "hidden1", "out"))
    incoming = [(first**2).sum(1) + samples["hidden0"]["bias"] ** 2]
    incoming += [(second**2).sum(1) + samples["hidden1"]["bias"] ** 2]
    outgoing = [(second**2).sum(2), (out**2).sum(2)]
    expected = jnp.concatenate(incoming, axis=1) - jnp.concatenate(outgoing, axis=1)
    found = law.imbalance(model.spec, samples)
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), rtol=1e-5)
    balanced = jax.vmap(lambda params: symmetry.balance(model.spec, params).params)(samples)
    np.testing.assert_allclose(law.imbalance(model.spec, balanced), 0.0, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_the_imbalance_decays_by_the_law_on_full_batches(optimizer):
    settings = Law(learning_rates=(0.005, 0.01), weight_decays=(0.05, 0.1), num_networks=2, num_steps=400)
    model = models.mlp((5,), 3, hidden=(4,))
    batch = density.Batch(jax.random.normal(KEY, (20, 5)), jnp.arange(20) % 3)
    left = law.sweep(KEY, model, batch, settings, optimizer=optimizer, batch_size=20)
    rates = jnp.array(settings.learning_rates)[:, None, None]
    decays = jnp.array(settings.weight_decays)[:, None]
    exponent = jnp.log(left) / jnp.log(law.left_by_law(decays, settings.num_steps * rates))
    np.testing.assert_allclose(exponent, 1.0, atol=0.1)


def test_a_normalised_network_has_no_least_mass():
    inputs = jax.random.normal(KEY, (20, 6))
    apply, params, spec = law.normalised_network(KEY, inputs, hidden=4, num_outputs=3)
    with pytest.raises(ValueError, match="the mass has no minimum"):
        symmetry.balance(spec, params)
    found = law.orbit(apply, spec, params, jnp.array([1.0, 0.5, 0.25, 0.1]), inputs)
    assert np.all(np.diff(found["mass"]) < 0)
    assert found["change"] < 1e-4


def test_findings_about_the_law_speak_of_the_optimisers_that_ran():
    predicted = np.array([[[0.5]]])
    (said,) = study.law_findings({"sgd, full batch": (predicted, 1.02 * predicted), "sgd, minibatches": None})
    assert said.startswith(
        "With sgd on full batches, the share of the imbalance left differs from the law by at"
    )
    assert "at most 2.0 %" in said
    assert "Adam" not in said


def test_an_imbalance_that_changed_its_sign_is_told():
    (said,) = study.law_findings({"adam, full batch": (np.array([0.5]), np.array([-0.1]))})
    assert "some imbalances changed their sign" in said
    assert "Adam's steps are not along the gradient" in said


def test_a_mass_with_a_minimum_is_not_said_to_have_none():
    scales = np.array([0.5, 1.0, 2.0])
    assert "no least mass" in study.orbit_finding(scales, np.array([1.0, 2.0, 3.0]))
    assert "no least mass" not in study.orbit_finding(scales, np.array([2.0, 1.0, 3.0]))


def test_the_imbalance_decays_by_the_law_of_a_rate_that_falls_in_steps():
    settings = Networks(
        num_networks=3,
        num_epochs=400,
        batch_size=20,
        learning_rate=0.01,
        weight_decay=0.1,
        milestones=(100, 200),
    )
    model = models.mlp((5,), 3, hidden=(4,))
    batch = density.Batch(jax.random.normal(KEY, (20, 5)), jnp.arange(20) % 3)
    prior = density.gaussian_prior(float(1 / np.sqrt(settings.weight_decay * 20)))
    target = density.target(model, batch, prior=prior)
    starts = jax.vmap(model.init)(jax.random.split(KEY, 3))
    ends = methods.ensemble(
        KEY, target, settings, num_members=3, optimizer="sgd", initial=starts, **methods.stepped(settings)
    ).posterior.samples
    left = law.share_left(law.imbalance(model.spec, starts), law.imbalance(model.spec, ends))
    total = methods.sum_of_rates(target, settings)
    np.testing.assert_allclose(total, 0.01 * (100 + 50 + 50), rtol=1e-5)
    np.testing.assert_allclose(jnp.log(left) / jnp.log(law.left_by_law(0.1, total)), 1.0, atol=0.1)


def chosen(monkeypatch, flags):
    """Networks converge as told."""
    monkeypatch.setattr(convergence, "converged", lambda *_: np.array(flags))
    config = debug_config("scaling_symmetry")
    networks = dataclasses.replace(config.networks, num_networks=len(flags), least_accuracy=0.5)
    short = dataclasses.replace(config.law, num_steps=2)
    return dataclasses.replace(config, networks=networks, law=short)


@pytest.mark.slow
def test_networks_that_did_not_converge_are_in_no_number_and_counted(monkeypatch, tmp_path):
    seen = []
    masses = study._masses
    monkeypatch.setattr(study, "_masses", lambda problem, kept: seen.append(kept) or masses(problem, kept))
    study.run(chosen(monkeypatch, [True, False, True, True]), tmp_path)
    assert [tree.num_samples(each[name]) for each in seen for name in ("starts", "ends")] == [3, 3]
    text = (tmp_path / "table.md").read_text()
    assert text.count("1 of 4 trained networks did not converge") == 2
    assert "of 3 networks that converged lie strictly above" in text


def test_a_single_network_that_converged_is_refused_with_the_remedy(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"only 1 of 2 networks converged.*--networks\.least-accuracy"):
        study.run(chosen(monkeypatch, [True, False]), tmp_path)
