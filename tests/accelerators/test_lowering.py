"""Every compiled program of the library, lowered for accelerators that are not there.

Cases run in a process of their own, see `run`. What lowering cannot show is named in `DOUBLE`: TPUs have no
double precision, so programs in it are emulated there at best.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.accelerators.host import NOT_LOWERED
from tests.accelerators.lowering import PLATFORMS, Lowered
from tests.accelerators.sites import compiling

ROOT = Path(__file__).parents[2]
# What runs most: a chunk of a sampler, and predictions. All others are lowered by the slow tests.
FAST = ("hmc", "predict")
DOUBLE = {
    "sharing/sweeps.py:_accumulate",
    "sharing/sweeps.py:_best",
    "symmetry/alignment/gauge.py:_balancing_of_all",
    "symmetry/certificate.py:_tangent_of",
    "symmetry/gauges/balance.py:_balance",
    "symmetry/gauges/minimum.py:quickly_compiled",
    "symmetry/jacobian.py:jacobian_of",
}
"""Programs in double precision, which balance and certificates need: masses differ in their last digits."""
EVERYWHERE = pytest.mark.parametrize("num_devices", [1, 8])
EACH = pytest.mark.parametrize("platform", PLATFORMS)


def lowered(directory: Path, *cases: str) -> list[Lowered]:
    """What became of the programs of the cases; of all of them if none is named."""
    result = directory / "lowered.json"
    command = [sys.executable, "-m", "tests.accelerators.run", str(result), *cases]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return [Lowered(**row) for row in json.loads(result.read_text())]


@pytest.fixture(scope="module")
def frequent(tmp_path_factory):
    return lowered(tmp_path_factory.mktemp("frequent"), *FAST)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return lowered(tmp_path_factory.mktemp("everything"))


def assert_lowered(rows: list[Lowered], platform: str, num_devices: int) -> set[str]:
    """The cases of the rows, none of which has a problem."""
    found = [row for row in rows if row.platform == platform and row.num_devices == num_devices]
    problems = [f"{row.case}, {row.name} ({row.site}): {row.problem}" for row in found if row.problem]
    assert not problems, "\n".join(problems)
    return {row.case for row in found}


@EACH
@EVERYWHERE
def test_what_runs_most_can_be_lowered(frequent, platform, num_devices):
    assert assert_lowered(frequent, platform, num_devices) == set(FAST)


@pytest.mark.slow
@EACH
@EVERYWHERE
def test_everything_can_be_lowered(everything, platform, num_devices):
    assert assert_lowered(everything, platform, num_devices) == {row.case for row in everything}


@pytest.mark.slow
def test_no_program_is_forgotten(everything):
    """Every `jax.jit` of the source was called by a case, or is named with a reason."""
    known, seen = compiling(), {row.site for row in everything}
    assert {name for site, name in known.items() if site not in seen} == set(NOT_LOWERED)


@pytest.mark.slow
def test_double_precision_is_where_it_is_known_to_be(everything):
    known = compiling()
    assert {known[row.site] for row in everything if row.is_double} == DOUBLE
