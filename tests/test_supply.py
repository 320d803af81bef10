"""What the library is built from: no pickle, no undeclared import, every version pinned, every Python."""

import ast
import contextlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from symbnn import data
from symbnn.data.folders import read_image

ROOT = Path(__file__).parent.parent
OWN = ("symbnn", "experiments", "configs")
SOURCES = sorted(path for name in OWN for path in (ROOT / name).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "pickle5"}
"""Modules that run code which a file names."""
RUNNERS = {"eval", "exec", "read_pickle"}


def unsafe(source: str) -> list[str]:
    """What in a program may run code from a file: `line: what`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        words = []
        if isinstance(node, ast.Import):
            words = [name.name for name in node.names if name.name.split(".")[0] in UNPICKLERS]
        elif isinstance(node, ast.ImportFrom):
            words = [node.module] if (node.module or "").split(".")[0] in UNPICKLERS else []
        elif isinstance(node, ast.Call):
            words = _unsafe_call(node)
        found += [f"{node.lineno}: {word}" for word in words]
    return found


def _unsafe_call(call: ast.Call) -> list[str]:
    name = ast.unparse(call.func)
    settings = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if settings.get("allow_pickle", "False") != "False":
        return [f"{name}(allow_pickle)"]
    if name == "torch.load" and settings.get("weights_only") != "True":
        return ["torch.load without weights_only=True"]
    return [name] if name.split(".")[-1] in RUNNERS else []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "pandas.read_pickle(path)",
        "eval(text)",
    ],
)
def test_the_search_finds_what_runs_code(source):
    assert unsafe(source)


def test_no_file_can_run_code():
    assert len(SOURCES) > 100
    assert {path.name: found for path in SOURCES if (found := unsafe(path.read_text()))} == {}


def requirements(*groups: str) -> list[Requirement]:
    """What pyproject asks for: the core, and the given groups with the groups that they name."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    for group in groups:
        for requirement in map(Requirement, PROJECT["optional-dependencies"][group]):
            own = requirement.name == PROJECT["name"]
            found += requirements(*requirement.extras) if own else [requirement]
    return found


def pins() -> dict[str, str]:
    """Versions of constraints.txt by distribution."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_direct_dependency_is_pinned_within_its_bounds():
    pinned = pins()
    for requirement in requirements("test", "docs"):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} has no line in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement}: constraints.txt has {version}"


def closure(wanted: list[Requirement]) -> set[str]:
    """Installed distributions that the requirements bring along, extras included."""
    found: set[tuple[str, str]] = set()
    open_ = [(requirement, {"", *requirement.extras}) for requirement in wanted]
    while open_:
        requirement, extras = open_.pop()
        for extra in extras:
            name = canonicalize_name(requirement.name)
            if (name, extra) in found:
                continue
            found.add((name, extra))
            try:
                needs = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            for need in map(Requirement, needs):
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    open_.append((need, {"", *need.extras}))
    return {name for name, _ in found}


@pytest.mark.parametrize("groups", [(), ("plot",), ("studies",)])
def test_whatever_comes_along_is_pinned(groups):
    installed = {canonicalize_name(d.name) for d in importlib.metadata.distributions()}
    assert (closure(requirements(*groups)) & installed) - pins().keys() == set()


def test_the_core_is_without_what_only_studies_need():
    core = closure(requirements())
    assert not core & {"matplotlib", "pillow", "tyro", "tensorflow-datasets", "plotly", "torch", "arviz"}
    assert {"jax", "flax", "optax", "blackjax", "numpyro", "scipy", "safetensors"} <= core
    assert {"matplotlib", "pillow", "plotly", "tyro", "rich"} <= closure(requirements("studies"))


IMPORT_ALL = """
import importlib, pkgutil, sys
from importlib.machinery import PathFinder

absent, find = set(sys.argv[1].split(",")), PathFinder.find_spec
# As if not installed, for imports and for those who look before they import.
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in absent else find(name, *rest)
count = 0
for package in sys.argv[2:]:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + ".", onerror=lambda name: None):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if 'pip install "symbnn[' not in str(error):
                raise
            print(module.name, error, sep=": ")
        count += 1
print(count)
"""


def import_all(absent: list[str], *packages: str) -> list[str]:
    """Import every module of the packages as if others were not installed: remedies, and the number."""
    command = [sys.executable, "-c", IMPORT_ALL, ",".join(absent), *packages]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.splitlines()


def foreign(*groups: str) -> list[str]:
    """Modules that are installed here but come neither with the core nor with the groups."""
    wanted = closure(requirements(*groups)) | {"symbnn"}
    owners = importlib.metadata.packages_distributions()
    installed = {
        module
        for module, distributions in owners.items()
        if not {canonicalize_name(name) for name in distributions} & wanted
    }
    return sorted(installed | {"torch", "torchmetrics"})


def test_the_library_imports_with_the_core_dependencies_alone():
    absent = foreign()
    assert {"matplotlib", "PIL", "tyro", "tensorflow_datasets", "arviz", "equinox"} <= set(absent)
    *remedies, count = import_all(absent, "symbnn")
    assert remedies == [
        'symbnn.plot: symbnn.plot needs matplotlib; install it with: pip install "symbnn[plot]"'
    ]
    assert int(count) > 100


@pytest.mark.slow
def test_the_studies_import_with_their_extra_alone():
    absent = foreign("studies")
    assert {"hypothesis", "beartype", "cvxpy", "arviz", "equinox"} <= set(absent)
    (count,) = import_all(absent, "symbnn", "experiments", "configs")
    assert int(count) > 200


def test_data_that_needs_an_extra_says_which(monkeypatch, tmp_path):
    monkeypatch.delenv("SYMBNN_DATA_DIR", raising=False)
    for module in ("tensorflow_datasets", "PIL"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ModuleNotFoundError, match=r"mnist, which no folder.*pip install \"symbnn\[studies\]\""
    ):
        data.load("mnist")
    with pytest.raises(ModuleNotFoundError, match=r"images.*needs PIL; .*pip install \"symbnn\[studies\]\""):
        read_image(tmp_path / "a.png", 8)


COMPILE_ALL = """
import sys
for path in sys.stdin.read().split("\\n"):
    with open(path, encoding="utf-8") as file:
        compile(file.read(), path, "exec")
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_python_that_is_here_reads_the_sources(version):
    python = interpreter(version)
    paths = "\n".join(map(str, [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]))
    subprocess.run([python, "-W", "error", "-c", COMPILE_ALL], input=paths, text=True, check=True)
    if subprocess.run([python, "-c", "import jax, blackjax, numpyro"], capture_output=True).returncode == 0:
        subprocess.run([python, "-c", IMPORT_ALL, "torch", *OWN], cwd=ROOT, check=True)


def interpreter(version: str) -> str:
    """The Python of that version on PATH, or in pyenv, which hides those that are not selected."""
    own = Path.home() / ".pyenv" / "versions"
    for command in (f"python{version}", *map(str, own.glob(f"{version}.*/bin/python"))):
        with contextlib.suppress(OSError):
            said = subprocess.run([command, "-V"], capture_output=True, text=True).stdout
            if said.startswith(f"Python {version}."):
                return command
    pytest.skip(f"no Python {version} here")


def test_the_project_names_the_oldest_python_it_is_read_by():
    assert PROJECT["requires-python"] == ">=3.11"
