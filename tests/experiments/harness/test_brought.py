"""What the user brings is known by its content: other content is refused, equal content is reused."""

import dataclasses
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from configs.parts import Data, Network
from experiments.harness.brought import digests
from experiments.harness.rundir import lent_stage, open_run
from tests.experiments.cases import debug_config

STUDY = "compact_posterior"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A config with arrays and a network of the user's, whose module imports a helper inside a function."""
    (tmp_path / "own_helper.py").write_text("WIDTH = 4\n")
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("DEPTH = 1\n")
    (package / "nets.py").write_text(
        "import json\nfrom . import layers\n\n"
        "def build(input_shape, num_outputs):\n    from own_helper import WIDTH\n    return WIDTH\n"
    )
    np.savez(tmp_path / "own.npz", inputs=np.ones((4, 2)), targets=np.arange(4))
    for name in [name for name in sys.modules if name.startswith(("own_helper", "own_package"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return dataclasses.replace(
        debug_config(STUDY), data=Data(npz="own.npz"), model=Network(factory="own_package.nets:build")
    )


def opened(config, directory):
    with open_run(STUDY, config, directory) as run:
        run.stage("some", lambda: {"numbers": jnp.arange(3.0)})


def test_the_resolved_config_has_path_and_digest(own, tmp_path):
    opened(own, tmp_path / "run")
    described = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert described["data"]["npz"] == "own.npz"
    assert described["model"]["factory"] == "own_package.nets:build"
    for part, name in (("data", "npz_sha256"), ("model", "factory_sha256")):
        assert described[part][name] == digests(own)[f"{part}.{name}"]
        assert len(described[part][name]) == 64


def test_nothing_is_recorded_where_nothing_is_brought(tmp_path):
    opened(debug_config(STUDY), tmp_path)
    described = json.loads((tmp_path / "run.json").read_text())["config"]
    assert "npz_sha256" not in described["data"]
    assert digests(debug_config(STUDY)) == {}


def test_equal_content_is_reused(own, tmp_path, capsys):
    opened(own, tmp_path / "run")
    np.savez(tmp_path / "own.npz", inputs=np.ones((4, 2)), targets=np.arange(4))
    (tmp_path / "unrelated.py").write_text("")
    opened(own, tmp_path / "run")
    assert "some: reused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("own.npz", "data.npz_sha256"),
        ("own_package/nets.py", "model.factory_sha256"),
        ("own_package/__init__.py", "model.factory_sha256"),
        ("own_package/layers.py", "model.factory_sha256"),
        ("own_helper.py", "model.factory_sha256"),
    ],
)
def test_other_content_is_refused_and_named(own, tmp_path, name, setting):
    opened(own, tmp_path / "run")
    before = digests(own)
    if name == "own.npz":
        np.savez(tmp_path / name, inputs=np.zeros((4, 2)), targets=np.arange(4))
    else:
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\nCHANGED = 1\n")
    with pytest.raises(ValueError, match=rf"another config: {setting} was {before[setting]} and is now"):
        opened(own, tmp_path / "run")


def test_a_run_that_computed_nothing_does_not_hold_its_directory(own, tmp_path):
    """Say because the arrays were refused: once they are corrected, the same command runs."""
    with open_run(STUDY, own, tmp_path / "run"):
        pass
    np.savez(tmp_path / "own.npz", inputs=np.zeros((4, 2)), targets=np.arange(4))
    opened(own, tmp_path / "run")
    with pytest.raises(ValueError, match="seed was 0 and is now 1"):
        opened(dataclasses.replace(own, seed=1), tmp_path / "run")


def test_a_run_that_did_not_know_own_arrays_lends_nothing_to_one_that_has_them(own, tmp_path):
    opened(debug_config(STUDY), tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    described = json.loads(path.read_text())
    described["config"]["data"].pop("npz")
    path.write_text(json.dumps(described))
    same = dataclasses.replace(own, data=dataclasses.replace(debug_config(STUDY).data, npz="own.npz"))
    with pytest.raises(ValueError, match=r"there data\.npz is None, here own\.npz"):
        lent_stage(tmp_path / "run", STUDY, same, "some")


def test_a_file_that_is_not_there_is_named(own, tmp_path):
    absent = dataclasses.replace(own, data=Data(npz="absent.npz"))
    with pytest.raises(ValueError, match=r"absent\.npz: expected a file of arrays"):
        opened(absent, tmp_path / "run")
    absent = dataclasses.replace(own, model=Network(factory="own_package.nets:biuld"))
    with pytest.raises(ValueError, match="no function 'biuld'; did you mean 'build'"):
        opened(absent, tmp_path / "run")
