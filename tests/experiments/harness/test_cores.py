"""A study has a CPU device for every core, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from experiments.harness.cores import FLAG, use_all_cores

SHOW = """
import sys
from experiments.harness import cli
import types
fake = types.ModuleType("experiments.toy_posterior.study")
def run(config, directory):
    import jax
    print("devices", len(jax.devices()))
fake.run = run
sys.modules["experiments.toy_posterior.study"] = fake
cli.main("toy_posterior", ["debug"])
"""


def test_other_flags_stay_and_a_device_for_every_core_is_added():
    environment = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    use_all_cores(environment, 3)
    assert environment["XLA_FLAGS"] == f"--xla_cpu_multi_thread_eigen=false {FLAG}=3"


@pytest.mark.parametrize("given", [{"XLA_FLAGS": f"{FLAG}=1"}, {"JAX_NUM_CPU_DEVICES": "1"}])
def test_a_number_of_devices_that_was_given_stays(given):
    environment = dict(given)
    use_all_cores(environment, 8)
    assert environment == given


def test_one_core_needs_no_flag():
    environment: dict[str, str] = {}
    use_all_cores(environment, 1)
    assert environment == {}


def test_a_study_from_the_command_line_sees_a_device_for_every_core():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ran = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert ran.stdout.split("devices ")[1].strip() == str(cores)
