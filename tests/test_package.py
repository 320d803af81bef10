"""What `import symbnn` gives: packages on demand, a version, types, and names that explain themselves."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import symbnn

ROOT = Path(__file__).parent.parent
PACKAGES = [module.name for module in pkgutil.iter_modules(symbnn.__path__) if module.ispkg]


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_importing_symbnn_does_not_import_jax():
    assert run("import sys, symbnn; symbnn.__version__; print('jax' in sys.modules)").strip() == "False"


def test_packages_are_imported_when_they_are_first_used():
    code = "import symbnn; print(symbnn.symmetry.__name__, callable(symbnn.symmetry.discover))"
    assert run(code).split() == ["symbnn.symmetry", "True"]


def test_every_package_is_an_attribute():
    assert sorted(symbnn.__all__) == sorted(PACKAGES)
    assert {*PACKAGES, "__version__"} <= set(dir(symbnn))


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'symmetries'"):
        _ = symbnn.symmetries


def test_the_version_is_that_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert symbnn.__version__ == project["version"]


def test_types_are_shipped():
    assert (Path(symbnn.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_is_public(package):
    module = importlib.import_module(f"symbnn.{package}")
    assert module.__doc__
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    for name in module.__all__:
        assert is_explained(getattr(module, name)), f"symbnn.{package}.{name} has no docstring"


def inner_imports():
    """(file, package, name) of every name that is imported from a module of another package."""
    for file in [*(ROOT / "symbnn").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").count(".") >= 2:
                _, package, *_ = node.module.split(".")
                if package in PACKAGES and package not in file.relative_to(ROOT).parts:
                    yield from ((file.relative_to(ROOT), package, alias.name) for alias in node.names)


def test_public_names_are_imported_from_their_package():
    wrong = [
        f"{file}: from symbnn.{package} import {name}"
        for file, package, name in inner_imports()
        if name in importlib.import_module(f"symbnn.{package}").__all__
    ]
    assert wrong == []


def is_explained(thing: object) -> bool:
    """A class has to say itself what it is; constants and aliases of types have no docstring at run time."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing)):
        return True
    doc = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    # What a named tuple or a dataclass gets by itself is its signature.
    return bool(doc) and not doc.startswith(f"{thing.__name__}(")
