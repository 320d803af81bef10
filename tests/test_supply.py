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
    """What pyproject asks for: the core, and the given groups."""
    texts = PROJECT["dependencies"] + [
        text for group in groups for text in PROJECT["optional-dependencies"][group]
    ]
    return [Requirement(text) for text in texts]


def pins() -> dict[str, str]:
    """Versions of constraints.txt by distribution."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_direct_dependency_is_pinned_within_its_bounds():
    pinned = pins()
    for requirement in requirements("test"):
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


def test_whatever_the_core_brings_along_is_pinned():
    installed = {canonicalize_name(d.name) for d in importlib.metadata.distributions()}
    assert (closure(requirements()) & installed) - pins().keys() == set()


IMPORT_ALL = """
import importlib, pkgutil, sys

class Absent:
    names = set(sys.argv[1].split(","))

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is not a core dependency", name=name)

sys.meta_path.insert(0, Absent())
count = 0
for package in ("symbnn", "experiments", "configs"):
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(count)
"""


@pytest.mark.slow
def test_every_module_imports_with_the_core_dependencies_alone():
    core = closure(requirements())
    owners = importlib.metadata.packages_distributions()
    foreign = sorted(
        module
        for module, distributions in owners.items()
        if not {canonicalize_name(name) for name in distributions} & (core | {"symbnn"})
    )
    assert {"hypothesis", "beartype", "cvxpy", "arviz", "equinox"} <= set(foreign)
    command = [sys.executable, "-c", IMPORT_ALL, ",".join([*foreign, "torch", "torchmetrics"])]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert int(ended.stdout) > 100


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
        subprocess.run([python, "-c", IMPORT_ALL, "torch"], cwd=ROOT, check=True)


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
