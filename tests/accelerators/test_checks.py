"""The check itself: a plain program passes, planted ones that need a CPU or its host do not."""

import jax
import jax.numpy as jnp
import pytest

from tests.accelerators.lowering import PLATFORMS, called, exported, foreign, lower, on_mesh
from tests.accelerators.recorder import COMPILE, Program

VECTOR = jax.ShapeDtypeStruct((8,), jnp.float32)
MATRIX = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def program(function, shape=VECTOR):
    return Program("planted", "here:1", "planted", COMPILE(function), (shape,), {}, False, False)


def on_host(x):
    return jax.pure_callback(lambda y: y, VECTOR, x)


def printing(x):
    jax.debug.print("{}", x)
    return x


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_plain_program_passes_on_one_device_and_on_eight(platform):
    plain = program(lambda x: jnp.sum(x**2))
    for number, version in ((1, plain), (8, on_mesh(plain, jax.devices()))):
        found = lower(version, platform)
        assert not found.problem
        assert found.num_devices == number


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("function", [on_host, printing])
def test_a_planted_callback_is_refused(function, platform):
    assert "calls back to the host" in lower(program(function), platform).problem


def test_a_planted_call_of_lapack_is_refused():
    """As a program would hold it that chose its solver by the machine at hand."""
    text, _ = exported(program(jnp.linalg.eigh, MATRIX), "cpu")
    assert called(text)
    for platform in PLATFORMS:
        assert "lapack" in foreign(called(text), platform)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_accelerators_own_solvers_pass(platform):
    found = lower(program(jnp.linalg.eigh, MATRIX), platform)
    assert found.targets
    assert not found.problem
