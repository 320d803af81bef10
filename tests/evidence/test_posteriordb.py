"""Posteriordb in short: all ports have the parameters of their reference, HMC finds the eight schools."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import inference
from tests.evidence import posteriordb
from tests.evidence.evidence_posteriordb import Size, as_target, ours, score
from tests.evidence.posteriors import POSTERIORS, load, named_numbers

pytestmark = pytest.mark.skipif(
    posteriordb() is None, reason="needs the posteriors of posteriordb: set SYMBNN_DATA_DIR to their folder"
)
SCHOOLS = "eight_schools-eight_schools_noncentered"


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_port_has_the_parameters_of_its_reference_and_a_finite_density(name):
    posterior, reference = load(posteriordb(), name)
    start = as_target(posterior).init(jax.random.key(0))
    stacked = jax.tree.map(lambda leaf: leaf[None, None], start)
    assert named_numbers(jax.vmap(jax.vmap(posterior.constrain))(stacked)).keys() == reference.mean.keys()
    value, gradient = jax.jit(jax.value_and_grad(posterior.log_density))(start)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((value, gradient)))


def test_the_jacobian_is_that_of_the_transformation():
    """Where all z are zero the data say nothing of τ: there is its half-Cauchy prior, times dτ / d log τ."""
    posterior, _ = load(posteriordb(), SCHOOLS)
    zeros = {"z": jnp.zeros(8), "mu": jnp.zeros(())}
    raw = jnp.linspace(-3, 3, 7)
    found = jax.vmap(lambda x: posterior.log_density({**zeros, "log_tau": x}))(raw)
    expected = raw - np.log1p(np.square(np.exp(raw) / 5))
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-4, atol=1e-4)


def test_hmc_finds_the_eight_schools():
    """3,200 draws: the mean is known to 0.03 sd, and of all parameters that of τ is farthest off."""
    posterior, reference = load(posteriordb(), SCHOOLS)
    draw = ours(inference.hmc, mass="diagonal", jitter=0.5, max_num_steps=100)
    size = Size(num_chains=32, num_samples=100, num_burnin=150)
    found = score(draw, posterior, as_target(posterior), reference, size)
    assert found.ess > 400
    assert found.bias < 0.15
    assert abs(found.spread - 1) < 0.15
