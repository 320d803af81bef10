"""What outside code hands to the public functions: half precision, bare models, lists, keys of both kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import compact, density, evaluate, inference, io, models, posteriors, symmetry, tree

KEY = jax.random.key(0)


def apply(params, inputs):
    return jax.nn.relu(inputs @ params["in"]) @ params["out"]


def networks(num, units=4, dtype=jnp.float32):
    first, second = jax.random.split(KEY)
    return {
        "in": jax.random.normal(first, (num, 3, units)).astype(dtype),
        "out": jax.random.normal(second, (num, units, 2)).astype(dtype),
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_predictions_of_half_precision_are_probabilities(dtype):
    samples, inputs = networks(5, dtype=dtype), jax.random.normal(KEY, (7, 3)).astype(dtype)
    for probs in (
        evaluate.predict(apply, samples, inputs),
        evaluate.predict(apply, samples, inputs, members=True)[0],
        evaluate.predict_uncertainty(apply, samples, inputs).probs,
    ):
        assert float(evaluate.nll(probs, jnp.zeros(7, jnp.int32))) > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_rank_of_half_precision(dtype):
    samples = networks(5, dtype=dtype)
    exact = compact.low_rank(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), samples), 2)
    found = compact.low_rank(samples, 2)
    assert found.factors["in"].dtype == jnp.dtype(dtype)
    for name, factors in exact.factors.items():
        flat, half = (np.asarray(law, np.float32).reshape(2, -1) for law in (factors, found.factors[name]))
        covariance = flat.T @ flat
        np.testing.assert_allclose(half.T @ half, covariance, atol=0.05 * np.abs(covariance).max())


def test_a_model_of_three_functions_is_enough_to_sample_and_to_train():
    spec = symmetry.discover(apply, tree.take(networks(1), 0), jnp.zeros((1, 3)))
    model = models.Model(lambda key: tree.take(networks(1), 0), apply, spec)
    inputs = np.asarray(jax.random.normal(KEY, (20, 3)))
    target = density.target(model, density.Batch(inputs, (inputs[:, 0] > 0).astype(np.int32)))
    hmc = inference.hmc(num_chains=1, num_samples=4, num_burnin=4, step_size=0.05, num_steps=5)
    trained = inference.ensemble(num_members=2, epochs=2, batch_size=10)
    for method in (hmc, trained):
        fit = method(KEY, target)
        probs = evaluate.predict(apply, fit.posterior.samples, inputs)
        assert np.isfinite(probs).all()
    law = compact.gaussian(networks(5))
    refined = compact.refine(law, model, inputs, probs, KEY, epochs=1)
    assert np.isfinite(refined.posterior.mean["in"]).all()


def test_verify_takes_keys_of_either_kind_by_place_or_name():
    params, inputs = tree.take(networks(1), 0), jnp.ones((2, 3))
    spec = symmetry.discover(apply, params, inputs)
    reports = [
        symmetry.verify(spec, apply, params, inputs, KEY),
        symmetry.verify(spec, apply, params, inputs, jax.random.PRNGKey(0)),
        symmetry.verify(spec, apply, params, inputs, key=KEY),
    ]
    assert all(reports)
    assert reports[0].errors == reports[1].errors == reports[2].errors
    with pytest.raises(ValueError, match="must be a key"):
        symmetry.verify(spec, apply, params, inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_verify_knows_the_rounding_of_half_precision(dtype):
    params, inputs = tree.take(networks(1, dtype=dtype), 0), jnp.ones((2, 3), dtype)
    spec = symmetry.discover(apply, params, inputs)
    assert symmetry.verify(spec, apply, params, inputs, KEY)
    wrong = symmetry.from_axes({"in": (None, "units"), "out": (None, None)}, jax.eval_shape(lambda: params))
    assert not symmetry.verify(wrong, apply, params, inputs, KEY)


def test_a_known_weight_has_no_density_and_no_other_value():
    law = posteriors.DiagonalGaussian({"a": jnp.zeros(2)}, {"a": jnp.array([0.0, 1.0])})
    np.testing.assert_allclose(law.log_prob({"a": jnp.zeros(2)}), -0.5 * np.log(2 * np.pi), rtol=1e-6)
    assert float(law.log_prob({"a": jnp.array([0.1, 0.0])})) == -np.inf
    assert float(evaluate.kl(law, law)) == 0.0
    moved = posteriors.DiagonalGaussian({"a": jnp.array([1.0, 0.0])}, law.std)
    assert float(evaluate.kl(law, moved)) == np.inf


def test_a_balancing_element_can_be_kept(tmp_path):
    params = tree.take(networks(1), 0)
    spec = symmetry.discover(apply, params, jnp.ones((2, 3)))
    element = symmetry.balance(spec, params).element
    assert {leaf.dtype for leaf in element.permutations.values()} == {jnp.dtype("int32")}
    io.save_tree(tmp_path / "element", element._asdict())
    kept = symmetry.Element(**io.load_tree(tmp_path / "element")[0])
    jax.tree.map(np.testing.assert_array_equal, kept, element)


def test_an_element_with_matrices_can_be_kept(tmp_path):
    params = {"a": jnp.ones((3, 4)), "b": jnp.ones((4, 2))}
    spec = symmetry.discover(lambda p, x: x @ p["a"] @ p["b"], params, jnp.ones((2, 3)))
    element = symmetry.random_element(spec, KEY)
    assert element.matrices["a"].shape == (4, 4)
    io.save_tree(tmp_path / "element", element._asdict())
    kept = symmetry.Element(**io.load_tree(tmp_path / "element")[0])
    jax.tree.map(np.testing.assert_array_equal, kept, element)


def test_lists_are_arrays():
    assert float(evaluate.accuracy([[0.9, 0.1], [0.2, 0.8]], [0, 0])) == 0.5


def test_transpositions_out_of_range_are_refused_in_any_form():
    for number in (5, -1, jnp.array(7), np.int32(-2)):
        with pytest.raises(ValueError, match=r"must be in \[0, 4\]"):
            symmetry.random_permutation(KEY, 5, transpositions=number)


def test_a_reference_that_is_not_finite_is_named():
    samples = networks(3)
    spec = symmetry.discover(apply, tree.take(samples, 0), jnp.ones((2, 3)))
    broken = {**tree.take(samples, 0), "out": jnp.full((4, 2), jnp.nan)}
    with pytest.raises(ValueError, match="leaf 'out' of the reference has values that are not finite"):
        symmetry.align(spec, samples, reference=broken)


def test_kernels_of_a_discrepancy_may_be_a_list():
    assert np.isfinite(evaluate.mmd(networks(4), networks(4), kernels=["gaussian"]).total.value)
