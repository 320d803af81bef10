"""Every place that goes through the host is named, and every name is still such a place."""

import pytest

from tests.accelerators.host import HOST, NOT_LOWERED, through_host
from tests.accelerators.sites import compiling


def test_the_list_of_the_host_is_complete_and_not_stale():
    assert through_host() == set(HOST)


def test_programs_that_no_case_calls_still_exist():
    assert set(NOT_LOWERED) <= set(compiling().values())


@pytest.mark.parametrize(
    "line",
    [
        "from scipy.optimize import linprog",
        "def f():\n    from sklearn.cluster import KMeans",
        "found = jax.pure_callback(f, shape, x)",
        "jax.debug.print('{}', x)",
        "np.linalg.svd(x)",
    ],
)
def test_a_planted_place_is_found(line, tmp_path):
    (tmp_path / "planted.py").write_text(line)
    (tmp_path / "clean.py").write_text("import jax.scipy.linalg\njnp.linalg.eigh(x)")
    assert through_host(tmp_path) == {"planted.py"}


def test_planted_programs_are_found(tmp_path):
    source = "@partial(jax.jit, static_argnums=0)\ndef f(x):\n    return jax.jit(lambda y: y)(x)\n"
    (tmp_path / "planted.py").write_text(source)
    assert compiling(tmp_path) == {"planted.py:1": "planted.py:f", "planted.py:3": "planted.py:f"}
