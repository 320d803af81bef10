"""Loops over BlackJAX kernels as their users write them; the axes are told, checked, never guessed."""

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbnn import density, diagnostics, inference, interop, io, tree
from tests.inference.cases import small_network

KEY = jax.random.key(0)
CHAINS, DRAWS = 2, 6
TARGET = density.target(*small_network())
SIZE = tree.num_weights(jax.eval_shape(TARGET.init, KEY))
STARTS = jax.vmap(TARGET.init)(jax.random.split(KEY, CHAINS))
SCANNED = ("draws", "chains")


def algorithm():
    return blackjax.nuts(
        TARGET.log_density, step_size=0.05, inverse_mass_matrix=jnp.ones(SIZE), max_num_doublings=2
    )


def loop(key, start, nuts):
    """One chain, as in BlackJAX's introduction."""

    def one_step(state, key):
        state, info = nuts.step(key, state)
        return state, (state, info)

    return jax.lax.scan(one_step, nuts.init(start), jax.random.split(key, DRAWS))[1]


# A scan for every chain: (chains, draws, ...).
run_chains = jax.jit(jax.vmap(lambda key, start: loop(key, start, algorithm())))


@functools.cache
def mapped():
    return run_chains(jax.random.split(KEY, CHAINS), STARTS)


def swapped(values):
    """What a scan over mapped kernels would have given: (draws, chains, ...)."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), values)


def alone(values):
    """What one chain would have given: (draws, ...)."""
    return tree.take(values, 0)


def test_positions_and_infos_become_a_fit():
    states, info = mapped()
    fit = interop.from_blackjax(states.position, info)
    assert fit.posterior.num_chains == CHAINS
    jax.tree.map(np.testing.assert_array_equal, fit.posterior.by_chain(), states.position)
    known = fit.diagnostics
    np.testing.assert_allclose(known["acceptance"], info.acceptance_rate.mean(1), rtol=1e-6)
    np.testing.assert_array_equal(known["divergences"], info.is_divergent.sum(1))
    np.testing.assert_array_equal(known["num_gradients"], info.num_integration_steps.sum(1))
    np.testing.assert_array_equal(known["energy"], info.energy)
    assert "momentum" not in known
    assert diagnostics.weight_space(fit.posterior).num_nonfinite == 0
    assert interop.from_blackjax(states.position).diagnostics.keys() == {"chains"}


def test_states_bring_their_log_density():
    states, info = mapped()
    fit = interop.from_blackjax(states, info)
    np.testing.assert_array_equal(fit.diagnostics["log_density"], states.logdensity)
    jax.tree.map(
        np.testing.assert_array_equal, fit.posterior, interop.from_blackjax(states.position).posterior
    )
    np.testing.assert_array_equal(io.to_arviz(fit).sample_stats["lp"], states.logdensity)


def test_the_axes_of_other_loops_are_said():
    states, info = mapped()
    expected = interop.from_blackjax(states, info)
    found = interop.from_blackjax(swapped(states), swapped(info), axes=SCANNED)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    one = interop.from_blackjax(alone(states), alone(info), axes=["draws"])
    assert one.posterior.num_chains == 1
    jax.tree.map(np.testing.assert_array_equal, one.posterior.samples, alone(states.position))
    np.testing.assert_array_equal(one.diagnostics["acceptance"], expected.diagnostics["acceptance"][:1])


def test_a_position_that_is_one_array():
    positions = jnp.arange(24.0).reshape(2, 4, 3)
    info = blackjax.mcmc.hmc.HMCInfo(positions, *[jnp.ones((2, 4))] * 4, None, jnp.ones((2, 4), int))
    fit = interop.from_blackjax(positions, info)
    np.testing.assert_array_equal(fit.posterior.by_chain(), positions)
    assert fit.diagnostics["acceptance"].shape == (2,)


def unstacked(values):
    return [tree.take(alone(values), draw) for draw in range(DRAWS)]


BAD = {
    "draws first": (
        lambda s, i: (swapped(s.position), swapped(i)),
        r"6 chains of 2 draws; say axes=\('draws', 'c",
    ),
    "one chain": (lambda s, i: (alone(s.position), alone(i)), r"for one chain say axes=\('draws',\)"),
    "one chain, one leaf": (
        lambda s, i: (alone(s.position)["hidden"]["bias"], alone(i)),
        r"which would be 6 chains of 4 draws",
    ),
    "info of one chain": (
        lambda s, i: (s.position, alone(i)),
        r"each of the draws \(2, 6\) .*'energy': \(6,\)",
    ),
    "info of other axes": (lambda s, i: (s.position, swapped(i)), r"'acceptance_rate': \(6, 2\)"),
    "states in a list": (
        lambda s, i: (unstacked(s), None),
        r"is a list of 6 states; stack a list first: jax.tree",
    ),
    "positions in a list": (lambda s, i: (unstacked(s.position), None), r"stack a list first: jax.tree.map"),
    "infos in a list": (lambda s, i: (s.position, unstacked(i)), "it is a list without arrays"),
    "no leaves": (lambda s, i: ({}, None), "got one without leaves"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_ambiguous_or_does_not_fit_is_refused_in_one_line(name):
    given, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        interop.from_blackjax(*given(*mapped()))
    assert "\n" not in str(caught.value)


def test_axes_that_do_not_fit_the_info_are_refused():
    states, info = mapped()
    with pytest.raises(ValueError, match=r"each of the draws \(6,\)"):
        interop.from_blackjax(swapped(states.position), swapped(info), axes=("draws",))
    with pytest.raises(ValueError, match=r"axes must be one of .*; got \('draw', 'chain'\)"):
        interop.from_blackjax(states.position, axes=("draw", "chain"))


def test_a_loop_over_a_blackjax_kernel_is_a_method_for_multimode():
    def method(key, target):
        keys = jax.random.split(key, CHAINS)
        return interop.from_blackjax(*run_chains(keys, jax.vmap(target.init)(keys)))

    fit = inference.multimode(method, members=STARTS)(KEY, TARGET)
    assert fit.posterior.num_chains == CHAINS * CHAINS
    assert fit.diagnostics["acceptance"].shape == (CHAINS, CHAINS)
    first = jax.tree.map(lambda leaf: leaf[:, 0], fit.posterior.by_chain())
    distance = jnp.abs(first["out"]["kernel"] - jnp.repeat(STARTS["out"]["kernel"], CHAINS, axis=0))
    # Three steps of 0.05 with momenta of order one, from the member that the chain belongs to.
    assert float(distance.mean()) < 0.3
