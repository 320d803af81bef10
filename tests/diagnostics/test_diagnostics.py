"""Function space sees what matters, weight space sees labels, the control always looks perfect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import diagnostics, models, symmetry

CHAINS, DRAWS, HIDDEN = 4, 200, 6


def apply(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]


PARAMS = {"w": jnp.zeros((3, HIDDEN)), "v": jnp.zeros((HIDDEN, 2))}
SPEC = symmetry.from_axes({"w": (None, "h"), "v": ("h", None)}, PARAMS)
INPUTS = jax.random.normal(jax.random.key(9), (5, 3))


def draws(seed: int, *, spread: float = 0.05):
    """Independent draws around one network."""
    random = np.random.default_rng(seed)
    centre = {name: random.normal(size=leaf.shape) for name, leaf in PARAMS.items()}
    return {
        name: jnp.asarray(value + spread * random.normal(size=(CHAINS * DRAWS, *value.shape)), jnp.float32)
        for name, value in centre.items()
    }


def permuted_per_chain(samples):
    elements = jax.vmap(lambda key: symmetry.random_element(SPEC, key))(
        jax.random.split(jax.random.key(1), CHAINS)
    )
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, DRAWS, axis=0), elements)
    return jax.vmap(symmetry.act, in_axes=(None, 0, 0))(SPEC, repeated, samples)


@pytest.mark.slow
def test_labels_spoil_weight_space_and_not_function_space():
    samples = permuted_per_chain(draws(0))
    function = diagnostics.function_space(apply, samples, INPUTS, num_chains=CHAINS)
    weights = diagnostics.weight_space(samples, num_chains=CHAINS)
    control = diagnostics.relabelling_control(SPEC, samples, jax.random.key(0), num_chains=CHAINS)
    assert function.rhat_95 < 1.02
    assert weights.median_rhat > 2
    assert control.rhat_95 < 1.02


def test_the_control_hides_a_real_fault_that_function_space_shows():
    """One chain sits elsewhere: random relabelling makes most weights look converged all the same."""
    samples = draws(1, spread=0.2)
    samples["v"] = samples["v"].at[:DRAWS].multiply(2.0)
    function = diagnostics.function_space(apply, samples, INPUTS, num_chains=CHAINS)
    control = diagnostics.relabelling_control(SPEC, samples, jax.random.key(0), num_chains=CHAINS)
    assert control.median_rhat < 1.01 < function.median_rhat
    assert "Not converged" in diagnostics.verdict(function, num_chains=CHAINS)


def test_the_control_turns_units_where_the_network_is_odd_in_them():
    """Chains that differ in signs alone: `align` could turn every unit, so the control does it at random."""
    samples = draws(3)
    turned = jax.tree.map(lambda leaf: leaf.at[:DRAWS].multiply(-1.0), samples)
    spec = symmetry.discover(apply, PARAMS, INPUTS)
    labels_only = diagnostics.relabelling_control(SPEC, turned, jax.random.key(0), num_chains=CHAINS)
    control = diagnostics.relabelling_control(spec, turned, jax.random.key(0), num_chains=CHAINS)
    assert control.median_rhat < 1.01 < labels_only.median_rhat
    moved, _ = diagnostics.relabelled(spec, samples, jax.random.key(1))
    outputs = jax.vmap(apply, in_axes=(0, None))
    np.testing.assert_allclose(outputs(moved, INPUTS), outputs(samples, INPUTS), atol=1e-5)


def test_verdict_of_converged_and_of_one_chain():
    function = diagnostics.function_space(apply, draws(2), INPUTS, num_chains=CHAINS)
    assert diagnostics.verdict(function, num_chains=CHAINS).startswith("Converged in function space")
    assert "One chain only" in diagnostics.verdict(function, num_chains=1)


def test_a_chain_of_another_spread_is_not_converged():
    samples = draws(6, spread=0.2)
    for name, leaf in samples.items():
        samples[name] = leaf.at[:DRAWS].set(leaf.mean(0) + 0.05 * (leaf[:DRAWS] - leaf.mean(0)))
    function = diagnostics.function_space(apply, samples, INPUTS, num_chains=CHAINS)
    assert function.median_split_rhat < 1.01 < function.median_rhat
    assert diagnostics.verdict(function, num_chains=CHAINS).startswith("Not converged")


def test_regression_outputs_are_not_centred():
    samples = draws(7)
    shifts = jnp.repeat(jnp.arange(4.0), DRAWS)

    def shifted(params, x):
        return apply(params, x) + params["shift"]

    samples["shift"] = shifts
    classes = diagnostics.function_space(shifted, samples, INPUTS, num_chains=CHAINS)
    values = diagnostics.function_space(
        shifted, samples, INPUTS, num_chains=CHAINS, quantity=lambda outputs: outputs
    )
    assert classes.median_rhat < 1.02
    assert values.median_rhat > 2


def test_constant_quantities_are_counted_not_nan():
    samples = draws(3)
    samples["v"] = jnp.zeros_like(samples["v"])
    summary = diagnostics.weight_space(samples, num_chains=CHAINS)
    assert summary.num_constant == HIDDEN * 2
    assert np.isfinite(summary.max_rhat)


def test_quantities_at_which_chains_are_stuck_apart_are_counted_and_infinite():
    """Five of eighteen, so that 95 % lies among them, and then ten, so that the median does."""
    for num, expected in ((5, False), (10, True)):
        samples = draws(3)
        stuck = jnp.repeat(jnp.arange(1.0, CHAINS + 1), DRAWS)[:, None]
        flat = samples["w"].reshape(-1, 3 * HIDDEN).at[:, :num].set(0.1 * stuck)
        summary = diagnostics.weight_space({"w": flat}, num_chains=CHAINS)
        assert summary.num_constant == num
        assert summary.rhat_95 == summary.max_rhat == np.inf
        assert (summary.median_rhat == np.inf) is expected
        assert (summary.median_split_rhat == np.inf) is expected
        assert "Not converged" in diagnostics.verdict(summary, num_chains=CHAINS)


@pytest.mark.parametrize("num_bad", [1, 5])
def test_draws_that_are_not_finite_are_counted_and_never_converged(num_bad):
    def overflowing(params, x):
        return apply(params, x).at[:num_bad, 0].set(jnp.nan)

    function = diagnostics.function_space(
        overflowing, draws(2), INPUTS, num_chains=CHAINS, quantity=lambda outputs: outputs
    )
    assert function.num_nonfinite == num_bad
    assert np.isnan(function.max_rhat)
    assert np.isnan(function.share_above)
    for num_chains in (1, CHAINS):
        sentence = diagnostics.verdict(function, num_chains=num_chains)
        assert sentence.startswith(f"Not converged in function space: {num_bad} quantities have draws")


def stuck(num_stuck: int, num_quantities: int):
    """Independent draws, but one chain is elsewhere in some of the quantities."""
    values = np.random.default_rng(8).normal(size=(CHAINS * DRAWS, num_quantities))
    values[:DRAWS, :num_stuck] += 5
    return diagnostics.weight_space({"w": jnp.asarray(values, jnp.float32)}, num_chains=CHAINS)


@pytest.mark.parametrize(
    ("num_stuck", "num_quantities", "words", "share"),
    [(4, 10, "Not converged", "40.0%"), (1, 50, "Converged", "2.0%"), (1, 10, "Not converged", "10.0%")],
)
def test_the_verdict_names_the_share_of_quantities_that_are_stuck(num_stuck, num_quantities, words, share):
    sentence = diagnostics.verdict(stuck(num_stuck, num_quantities), num_chains=CHAINS)
    assert sentence.startswith(f"{words} in function space")
    assert f"above the limit of 1.01 for {share} of quantities" in sentence
    assert "More draws" not in sentence


def test_more_draws_are_advised_where_only_their_number_is_short():
    short = stuck(0, 10)._replace(low_ess=10.0)
    sentence = diagnostics.verdict(short, num_chains=CHAINS)
    assert sentence.startswith("Mostly converged")
    assert sentence.endswith("More draws would settle the rest.")


def test_independent_networks_are_exchangeable_and_one_basin_is_not():
    independent = {
        name: jax.random.normal(jax.random.key(i), (600, *leaf.shape))
        for i, (name, leaf) in enumerate(PARAMS.items())
    }
    passed = diagnostics.exchangeability(SPEC, independent, group="h")
    assert passed.p_value > 0.05
    assert passed.counts.sum() == 600
    assert diagnostics.exchangeability(SPEC, draws(4), group="h").p_value < 1e-6


def test_few_samples_have_the_p_value_of_all_their_outcomes():
    """Three samples of three units: all at one unit 3 of 27 outcomes, at two units 18, at three 6."""
    spec = symmetry.from_axes(
        {"w": (None, "h"), "v": ("h", None)}, {"w": np.zeros((1, 3)), "v": np.zeros((3, 1))}
    )
    for largest, expected in (((0, 0, 0), 3 / 27), ((0, 0, 2), 21 / 27), ((1, 0, 2), 1.0)):
        kernel = jnp.eye(3)[jnp.array(largest)]
        found = diagnostics.exchangeability(spec, {"w": kernel[:, None], "v": kernel[..., None]}, group="h")
        # Four standard errors of 20,000 simulated outcomes.
        assert found.p_value == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 20_000))


def test_units_that_are_a_segment_of_an_axis_are_found_and_counted_there():
    model = models.resnet20((8, 8, 1), 10, width=0.5)
    groups = {group.name: group.size for group in model.spec.groups}
    assert groups["layer2_0/conv2[1]"] == 4
    samples = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 6))
    kernel = samples["params"]["layer2_0"]["conv2"]["kernel"]
    # Sixteen filters: four new ones, the eight of the stream before, four new ones.
    samples["params"]["layer2_0"]["conv2"]["kernel"] = kernel.at[..., 13].set(9.0)
    found = diagnostics.exchangeability(model.spec, samples, group="layer2_0/conv2[1]")
    assert found.leaf == "params/layer2_0/conv2/kernel"
    np.testing.assert_array_equal(found.counts, [0, 6, 0, 0])
    for name, size in groups.items():
        assert len(diagnostics.exchangeability(model.spec, samples, group=name).counts) == size


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="800 samples do not divide into 3 chains"):
        diagnostics.weight_space(draws(5), num_chains=3)
    with pytest.raises(ValueError, match="unknown group 'x'; known: h"):
        diagnostics.exchangeability(SPEC, draws(5), group="x")
