"""Compiled programs are kept for the next run of a study, where the user keeps caches, and whole."""

import os
import subprocess
import sys

import pytest

from experiments.harness.compiled import CHECKED, FOLDER, SECONDS, keep_programs

RUN = """
import sys, types
from experiments.harness import cli
fake = types.ModuleType("experiments.toy_posterior.study")
def run(config, directory):
    import jax, jax.monitoring
    events = []
    jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
    step = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jax.numpy.sin(c @ c), None), x, length=5)[0])
    step(jax.numpy.ones((7, 7))).block_until_ready()
    print("found", sum("cache_hits" in name for name in events))
fake.run = run
sys.modules["experiments.toy_posterior.study"] = fake
cli.main("toy_posterior", ["debug"])
"""


def programs(tmp_path):
    return sorted((tmp_path / "symbnn" / "programs").glob("*-cache"))


def run_study(tmp_path):
    given = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), SECONDS: "0"}
    given.pop(FOLDER, None)
    ran = subprocess.run([sys.executable, "-c", RUN], env=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr
    return int(ran.stdout.split("found ")[1])


def test_a_second_run_finds_what_the_first_compiled_and_a_torn_file_is_compiled_again(tmp_path):
    assert run_study(tmp_path) == 0
    kept = programs(tmp_path)
    assert kept
    assert run_study(tmp_path) == len(kept)
    whole = kept[0].read_bytes()
    # As a killed process leaves it, while or after the last check.
    for size in (0, len(whole) // 2, len(whole) - 1):
        kept[0].write_bytes(whole[:size])
        assert run_study(tmp_path) == len(kept) - 1
        assert run_study(tmp_path) == len(kept)


@pytest.mark.parametrize("name", [FOLDER])
def test_a_folder_that_was_given_stays(name, tmp_path):
    given = {name: "elsewhere", "XDG_CACHE_HOME": str(tmp_path)}
    environment = dict(given)
    keep_programs(environment)
    assert environment == given
    assert not any(tmp_path.iterdir())


def test_nobody_else_may_write_programs(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    keep_programs(environment)
    folder = tmp_path / "symbnn" / "programs"
    assert environment[FOLDER] == str(folder)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    keep_programs(environment)
    assert FOLDER not in environment


def test_files_that_were_checked_are_not_read_again(tmp_path):
    keep_programs({"XDG_CACHE_HOME": str(tmp_path)})
    folder = tmp_path / "symbnn" / "programs"
    old = folder / "old-cache"
    old.write_bytes(b"\x78torn")
    os.utime(old, (1.0, 1.0))
    assert (folder / CHECKED).exists()
    keep_programs({"XDG_CACHE_HOME": str(tmp_path)})
    assert old.exists()
    os.utime(old)
    keep_programs({"XDG_CACHE_HOME": str(tmp_path)})
    assert not old.exists()
