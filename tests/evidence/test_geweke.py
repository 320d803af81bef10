"""Geweke's test in short: a right sampler passes, a wrong one does not; all of them in the slow form."""

import numpy as np
import pytest

from tests.evidence.evidence_geweke import ADJUSTED, NOT_ITS_OWN, examine
from tests.evidence.faults import CODE_FAULTS, DENSITY_FAULTS
from tests.evidence.geweke import WHOLE, Outcome, Size

SHORT = Size(num_chains=256, num_rounds=12, num_marginal=20_000)
FAULTS = [
    (name, fault)
    for name in ADJUSTED
    for fault in (*CODE_FAULTS, *DENSITY_FAULTS)
    if (name, fault) not in NOT_ITS_OWN
]


def test_p_value_counts_the_functions_and_takes_nan_for_the_worst():
    names = ("a", "b", "c", "d")
    calm = Outcome(names, np.array([0.1, -1.96, 1.0, 0.3]), np.zeros(4))
    assert calm.p_value == pytest.approx(4 * 0.05, rel=1e-3)
    assert calm.functions[calm.worst] == "b"
    broken = Outcome(names, np.array([0.1, 0.2, np.nan, 0.3]), np.zeros(4))
    assert broken.is_caught
    assert broken.functions[broken.worst] == "c"


def test_hmc_passes():
    assert not examine("HMC", "", ADJUSTED["HMC"], SHORT).outcome.is_caught


def test_a_prior_counted_twice_is_caught():
    assert examine("HMC", "prior counted twice", ADJUSTED["HMC"], SHORT).outcome.is_caught


@pytest.mark.slow
@pytest.mark.parametrize("name", ADJUSTED)
def test_every_exact_sampler_passes(name):
    assert not examine(name, "", ADJUSTED[name], WHOLE).outcome.is_caught


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_every_fault_is_caught(name, fault):
    assert examine(name, fault, ADJUSTED[name], WHOLE).outcome.is_caught
