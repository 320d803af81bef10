"""Matching by rotations: against scipy, and on copies of one network that matrices have mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from symbnn import diagnostics, symmetry, tree
from symbnn.posteriors import Empirical
from symbnn.symmetry.alignment.passes import single_and_mixed
from symbnn.symmetry.group.matrices import fixing_ones, procrustes, random_orthogonal
from tests.symmetry.cases import draw, inputs
from tests.symmetry.discovery.test_kinds import LINEAR


def found(name):
    network = LINEAR[name]
    params, x = jax.tree.map(jnp.asarray, draw(network.shapes)), inputs(network.input_shape)
    return network, symmetry.discover(network.apply, params, x), params, x


def rotated(spec, params, count, seed=0):
    """Copies that are relabelled, flipped and rotated, but not rescaled."""

    def one(key):
        element = symmetry.random_element(spec, key)
        matrices = {
            name: value if spec.group(name).centred else jnp.linalg.qr(value)[0]
            for name, value in element.matrices.items()
        }
        return symmetry.act(spec, element._replace(scales={}, matrices=matrices), params)

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), count))


def distance(samples, params):
    """Largest between the weights of the samples and those of a network."""
    return max(jax.tree.leaves(jax.tree.map(lambda leaf, one: jnp.abs(leaf - one).max(), samples, params)))


def assert_close(a, b, tolerance=1e-4):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


def test_procrustes_is_scipys():
    left, right = np.random.default_rng(0).normal(size=(2, 7, 5))
    expected, value = scipy.linalg.orthogonal_procrustes(left, right)
    matrix, best = procrustes(jnp.float32(left.T @ right))
    np.testing.assert_allclose(matrix, expected, atol=1e-5)
    np.testing.assert_allclose(best, value, rtol=1e-5)


def test_no_rotation_that_fixes_ones_is_better():
    overlap = jnp.float32(np.random.default_rng(1).normal(size=(6, 6)))
    matrix, best = procrustes(overlap, centred=True)
    np.testing.assert_allclose(matrix.sum(-1), np.ones(6), atol=1e-5)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(jnp.sum(matrix * overlap), best, rtol=1e-5)
    # The tangent of the group at the optimum: turning it a little by any of these never helps.
    turned = fixing_ones(random_orthogonal(jax.random.key(0), 500, 5))
    assert float(jnp.einsum("sij,ij->s", turned, overlap).max()) < best
    generator = np.random.default_rng(2).normal(size=(100, 5, 5)) * 1e-2
    near = fixing_ones(jnp.asarray(scipy.linalg.expm(generator - generator.swapaxes(-1, -2)), jnp.float32))
    assert float(jnp.einsum("sij,jk,ik->s", near, matrix, overlap).max()) < best


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("LoRA", "attention with biases", "stream of RMSNorm", "grouped queries")
        ),
        "stream of LayerNorm",
    ],
)
def test_rotated_copies_become_one(name):
    """Heads change places and their channels are rotated at once: rotations enter the assignment of heads."""
    _, spec, params, _ = found(name)
    samples = rotated(spec, params, 4)
    aligned = symmetry.align(spec, samples, reference=params)
    jax.tree.map(
        lambda leaf, one: assert_close(leaf, jnp.broadcast_to(one, leaf.shape)), aligned.samples, params
    )
    assert (np.diff(aligned.objective, axis=0) >= 0).all()
    moved = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, aligned.elements, samples)
    assert_close(moved, aligned.samples)
    # Relabelling and flipping alone does not get there.
    plain = symmetry.align(spec.permutations_only(), samples, reference=params)
    assert distance(plain.samples, params) > 0.1


def mixed(spec, params, count, seed=0):
    """Copies moved by anything but scales of single units."""

    def one(key):
        return symmetry.act(spec, symmetry.random_element(spec, key, log_scale=0.0), params)

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), count))


def test_copies_mixed_by_any_matrix_become_the_reference():
    """Nobody has to balance anything, and the result is where the reference is."""
    network, spec, params, x = found("attention")
    samples = mixed(spec, params, 3)
    aligned = symmetry.align(spec, samples, reference=params)
    jax.tree.map(
        lambda leaf, one: assert_close(leaf, jnp.broadcast_to(one, leaf.shape), 1e-3),
        aligned.samples,
        params,
    )
    assert_close(aligned.reference, params)
    moved = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, aligned.elements, samples)
    assert_close(moved, aligned.samples, 1e-3)
    outputs = jax.vmap(network.apply, in_axes=(0, None))(aligned.samples, x)
    assert_close(outputs, jnp.broadcast_to(network.apply(params, x), outputs.shape), 1e-3)


@pytest.mark.slow
def test_units_that_cannot_be_balanced_are_rotated_only():
    """A product of rank two through five units: in three directions they are free, with no least mass."""
    network, spec, params, x = found("deep linear net")
    with pytest.warns(RuntimeWarning, match="cannot be balanced"):
        aligned = symmetry.align(spec, mixed(spec, params, 3), reference=params)
    outputs = jax.vmap(network.apply, in_axes=(0, None))(aligned.samples, x)
    assert_close(outputs, jnp.broadcast_to(network.apply(params, x), outputs.shape), 1e-5)
    for matrices in aligned.elements.matrices.values():
        size = matrices.shape[-1]
        assert_close(matrices @ jnp.swapaxes(matrices, -1, -2), jnp.tile(jnp.eye(size), (3, 1, 1)), 1e-5)


def test_copies_mixed_by_any_matrix_have_a_mean():
    _, spec, params, _ = found("attention")
    aligned = symmetry.align(spec, mixed(spec, params, 3), reference="mean")
    spread = jax.tree.map(lambda leaf: jnp.abs(leaf - leaf[0]).max(), aligned.samples)
    assert max(jax.tree.leaves(spread)) < 1e-3
    assert_close(aligned.reference, jax.tree.map(lambda leaf: leaf[0], aligned.samples), 1e-3)


@pytest.mark.slow
def test_chains_of_gauged_copies_agree_once_they_are_aligned():
    """R-hat of weights: draws near one network, every chain in a gauge of its own."""
    _, spec, params, _ = found("LoRA")
    chains, draws = 4, 30
    noisy = jax.tree.map(
        lambda leaf: leaf + 1e-2 * jax.random.normal(jax.random.key(leaf.size), (chains, draws, *leaf.shape)),
        params,
    )
    elements = jax.vmap(lambda key: symmetry.random_element(spec, key, log_scale=0.0))(
        jax.random.split(jax.random.key(5), chains)
    )
    moved = jax.vmap(lambda g, some: jax.vmap(lambda one: symmetry.act(spec, g, one))(some))(elements, noisy)
    posterior = Empirical.from_chains(moved)
    raw = diagnostics.weight_space(posterior)
    aligned = diagnostics.weight_space(symmetry.align(spec, posterior))
    assert raw.median_rhat > 1.5
    # A draw of R-hat of 4 x 30 independent draws is below 1.1.
    assert aligned.median_rhat < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stream of LayerNorm", "grouped queries"])
def test_rotated_copies_find_a_mean_as_good_as_if_they_had_never_been_rotated(name):
    """Each is rotated onto the mean of the others, with noise on every weight as large as the weight."""
    _, spec, params, _ = found(name)
    copies = rotated(spec, params, 6)
    noise = tree.draw_like(jax.random.key(7), copies)
    aligned = symmetry.align(spec, jax.tree.map(jnp.add, copies, noise), reference="mean")
    total = aligned.objective.sum(axis=1)
    assert np.all(np.diff(total) >= -1e-6 * np.abs(total[:-1]))
    # Noise that was drawn for rotated copies is as good as any for straight ones. Where invertible matrices
    # may mix units, networks are compared at their least mass, where all inner products are smaller.
    straight = jax.tree.map(lambda one, more: one + more, params, noise)
    if any(group.kind == "invertible" for group in spec.groups):
        straight = jax.vmap(lambda one: symmetry.balance(spec, one).params)(straight)
    arrays = [np.asarray(leaf, np.float64).reshape(6, -1) for leaf in jax.tree.leaves(straight)]
    flat = np.concatenate(arrays, axis=1)
    expected = (np.sum(flat.sum(axis=0) ** 2) - np.sum(flat**2)) / 30
    assert aligned.objective[-1].mean() > expected


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"precision_weighted": True}, marks=pytest.mark.slow), {"method": "activations"}],
)
def test_units_that_are_mixed_are_matched_by_weights_whatever_single_units_are_matched_by(settings):
    network, spec, params, x = found("LoRA")
    assert {group.kind for group in spec.groups} == {"permutation", "invertible"}
    if "method" in settings:
        settings = settings | {"apply": network.apply, "inputs": x}
    samples = mixed(spec, params, 3)
    aligned = symmetry.align(spec, samples, reference=params, **settings)
    assert distance(aligned.samples, params) < 1e-3
    moved = jax.vmap(symmetry.act, in_axes=(None, 0, 0))(spec, aligned.elements, samples)
    assert_close(moved, aligned.samples)
    assert aligned.converged.all()


def test_heads_go_with_the_units_that_are_mixed_in_them():
    _, spec, _, _ = found("attention")
    single, both = single_and_mixed(spec)
    assert not single.groups
    assert both == spec
    _, spec, _, _ = found("stream of RMSNorm")
    single, both = single_and_mixed(spec)
    assert [group.kind for group in single.groups] == ["permutation"]
    assert [group.kind for group in both.groups] == ["orthogonal"]
    # A leaf keeps its shape, and the axis of a group that is left out is one that nothing moves.
    assert {leaf.name: leaf.shape for leaf in single.leaves} == {
        leaf.name: leaf.shape for leaf in spec.leaves
    }
    assert {f.group for leaf in single.leaves for _, f in leaf.factors()} == {None, single.groups[0].name}


def test_gaussians_stay_independent():
    _, spec, means, _ = found("LoRA")
    samples = rotated(spec.permutations_only(), means, 3)
    stds = jax.tree.map(lambda leaf: 0.1 + jnp.abs(leaf), samples)
    aligned = symmetry.align_gaussians(spec, samples, stds)
    jax.tree.map(lambda leaf: assert_close(leaf, jnp.broadcast_to(leaf[0], leaf.shape)), aligned.samples)
    np.testing.assert_array_equal(aligned.elements.matrices["down"], np.tile(np.eye(2), (3, 1, 1)))
