"""Balance over GL(n) against closed forms, and one point per orbit of networks whose units may be mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import symmetry
from symbnn.symmetry.gauges.mixing import balancing, gram_matrices
from tests.symmetry.cases import draw, inputs
from tests.symmetry.discovery.test_kinds import LINEAR


def found(name):
    network = LINEAR[name]
    params, x = jax.tree.map(jnp.asarray, draw(network.shapes)), inputs(network.input_shape)
    return network, symmetry.discover(network.apply, params, x), params, x


def assert_close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


def test_two_matrices_have_twice_the_nuclear_norm_of_their_product():
    def apply(params, x):
        return jnp.tanh(x @ params["a"] @ params["b"])

    params = jax.tree.map(jnp.asarray, draw({"a": (6, 4), "b": (4, 5)}))
    spec = symmetry.discover(apply, params, inputs((3, 6)))
    result = symmetry.balance(spec, params)
    values = np.linalg.svd(np.float64(params["a"]) @ np.float64(params["b"]), compute_uv=False)
    np.testing.assert_allclose(result.mass_after, 2 * values.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        result.params["a"].T @ result.params["a"], result.params["b"] @ result.params["b"].T, atol=1e-5
    )
    assert result.residual < 1e-8


def test_three_matrices_of_low_rank_share_its_singular_values():
    """The product of 3 × 5, 5 × 4 and 4 × 2 has rank two: what it does not use shrinks to nothing."""
    network, spec, params, x = found("deep linear net")
    result = symmetry.balance(spec, params)
    product = np.linalg.multi_dot([np.float64(params[name]) for name in "abc"])
    values = np.linalg.svd(product, compute_uv=False)
    np.testing.assert_allclose(result.mass_after, 3 * (values ** (2 / 3)).sum(), rtol=1e-5)
    assert_close(network.apply(result.params, x), network.apply(params, x), 1e-5)


@pytest.mark.parametrize("name", ["LoRA", "attention with biases", "state space"])
def test_the_balanced_network_is_the_same_for_the_whole_orbit_up_to_rotations(name):
    network, spec, params, x = found(name)
    moved = symmetry.act(spec, symmetry.random_element(spec, jax.random.key(1)), params)
    first, second = symmetry.balance(spec, params), symmetry.balance(spec, moved)
    np.testing.assert_allclose(first.mass_after, second.mass_after, rtol=1e-5)
    assert first.mass_after < first.mass_before
    assert max(first.residual, second.residual) < 1e-7
    assert_close(network.apply(second.params, x), network.apply(params, x), 1e-4)
    assert_close(symmetry.act(spec, first.element, params), first.params, 1e-5)
    for group in spec.groups:
        if group.kind == "invertible":
            vectors, duals = gram_matrices(spec, group, first.params)
            np.testing.assert_allclose(vectors, duals, atol=2e-5)


def test_balance_of_mixed_groups_jits_and_vmaps():
    _, spec, params, _ = found("LoRA")
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key))(
        jax.random.split(jax.random.key(2), 3)
    )
    samples = jax.vmap(symmetry.act, in_axes=(None, 0, None))(spec, elements, params)
    masses = jax.jit(jax.vmap(lambda one: symmetry.balance(spec, one).mass_after))(samples)
    np.testing.assert_allclose(masses, symmetry.balance(spec, params).mass_after, rtol=1e-5)


def test_matrices_alone_reach_the_least_mass_where_nothing_else_scales():
    _, spec, params, _ = found("LoRA")
    spec = spec.restricted([group.name for group in spec.groups if group.is_linear])
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
        moved = symmetry.act(spec, balancing(spec, wide), wide)
        mass = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(moved))
    np.testing.assert_allclose(mass, symmetry.balance(spec, params).mass_after, rtol=1e-6)


def test_weights_of_zero_can_be_balanced():
    """LoRA starts with `up` at zero: the mass has no minimum, and nothing may become infinite."""
    network, spec, params, x = found("LoRA")
    params = params | {"up": jnp.zeros_like(params["up"])}
    result = symmetry.balance(spec, params)
    assert_close(network.apply(result.params, x), network.apply(params, x), 1e-5)


@pytest.mark.parametrize(
    "name", ["LoRA", "attention", "stream of RMSNorm", "stream of LayerNorm", "tied linear autoencoder"]
)
def test_canonicalise_finds_one_point_of_an_orbit_of_matrices(name):
    network, spec, params, x = found(name)
    canonical = symmetry.canonicalise(spec, params)
    assert_close(network.apply(canonical, x), network.apply(params, x), 1e-4)
    moved = symmetry.act(spec, symmetry.random_element(spec, jax.random.key(3)), params)
    assert_close(symmetry.canonicalise(spec, moved), canonical, 2e-4)
