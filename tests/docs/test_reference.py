"""The site without building it: every public name has an entry, and every name and file on it exists.

Needs no mkdocs, so that it runs with all other tests.
"""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml

import symbnn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PACKAGES = [*symbnn.__all__, "tree", "keys"]
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
KINDS = pytest.mark.parametrize("package", PACKAGES)
WRITTEN = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())


class Loader(yaml.SafeLoader):
    """mkdocs.yml, whatever tags it uses."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def public(package: str) -> list[str]:
    """What a package exports; of a module without `__all__`, what it defines."""
    module = importlib.import_module(f"symbnn.{package}")
    defined = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return list(getattr(module, "__all__", defined))


def entries(package: str) -> list[str]:
    """What the page of a package has entries for, by path: as it is exported, or as it is defined."""
    page = (REFERENCE / f"{package}.md").read_text()
    return re.findall(r"^::: (symbnn\.[\w.]+)$", page, re.MULTILINE)


def last(path: str) -> str:
    return path.rpartition(".")[2]


@KINDS
def test_every_public_name_has_one_entry_and_no_entry_is_stale(package):
    assert sorted(map(last, entries(package))) == sorted(public(package))


@KINDS
def test_an_entry_is_what_the_package_exports(package):
    """A function called like its module is shown as `module.function`: its own path is that of the module."""
    exported = importlib.import_module(f"symbnn.{package}")
    for path in entries(package):
        module, _, name = path.rpartition(".")
        thing = getattr(exported, name)
        assert getattr(importlib.import_module(module), name) is thing, path
        home = getattr(thing, "__module__", "")
        assert last(home) != name or path == f"{home}.{name}", f"{path} would be shown as a module"


@KINDS
def test_every_entry_has_a_sentence_in_the_same_order(package):
    page = (REFERENCE / f"{package}.md").read_text()
    listed = re.findall(r"^\| \[`(\w+)`\]\[(symbnn\.[\w.]+)\] \| (.+) \|$", page, re.MULTILINE)
    assert [path for _, path, _ in listed] == entries(package)
    for name, path, sentence in listed:
        assert name == last(path)
        assert sentence.endswith("."), name


@KINDS
def test_an_entry_shows_something(package):
    """Functions and classes are shown by their docstrings; constants must at least exist."""
    module = importlib.import_module(f"symbnn.{package}")
    for name in map(last, entries(package)):
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_no_entry_stands_outside_the_pages_of_the_packages():
    found = {page.stem for page in PAGES if re.search(r"^::: ", page.read_text(), re.MULTILINE)}
    assert found == set(PACKAGES)


def test_the_index_counts_the_names():
    index = (REFERENCE / "index.md").read_text()
    counted = dict(re.findall(r"^\| \[symbnn\.(\w+)\]\(\1\.md\) \| .+ \| (\d+) \|$", index, re.MULTILINE))
    assert counted == {package: str(len(public(package))) for package in PACKAGES}


def exists(target: Path) -> bool:
    """Whether a file is there when the site is built: in docs/, made from a tutorial, or of the results."""
    if target.is_relative_to(DOCS / "results"):
        return (ROOT / target.relative_to(DOCS)).is_file()
    made = target.suffix == ".md" and target.parent == DOCS / "tutorials" and target.with_suffix(".py")
    return target.is_file() or bool(made and made.is_file())


def sections(page: str) -> set[str]:
    """Anchors of the headings of a page, as Python-Markdown makes them."""
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", word) for word in words}


@WRITTEN
def test_every_relative_link_resolves(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        assert "://" not in target, f"{target}: a link to the outside"
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert exists(file), target
        if anchor:
            assert anchor in sections(file.read_text()), target


@WRITTEN
def test_every_snippet_resolves(page):
    marks = re.findall(r"-+ *8 *< *-+.*", page.read_text())
    assert all(re.fullmatch(r'--8<-- "[^"]+"', mark) for mark in marks), "an include that is none"
    for target in re.findall(r'--8<-- "([^"]+)"', page.read_text()):
        path, _, section = target.partition(":")
        assert (ROOT / path).is_file(), target
        if section:
            text = (ROOT / path).read_text()
            assert f"# --8<-- [start:{section}]" in text, target
            assert f"# --8<-- [end:{section}]" in text, target


def leaves(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in leaves(part)]


def test_every_page_is_in_the_navigation_and_every_entry_of_it_exists():
    named = [DOCS / leaf for leaf in leaves(SITE["nav"])]
    assert len(set(named)) == len(named)
    for page in named:
        assert exists(page), page
    made = [script.with_suffix(".md") for script in TUTORIALS]
    assert {*PAGES, *made} <= set(named)


def test_nothing_is_fetched_from_outside():
    assert SITE["theme"]["font"] is False
    for file in [*SITE["extra_css"], *SITE["extra_javascript"]]:
        assert (DOCS / file).is_file(), file
    styles = (DOCS / "assets" / "katex" / "katex.min.css").read_text()
    for font in set(re.findall(r"url\(([^)]+)\)", styles)):
        assert (DOCS / "assets" / "katex" / font).is_file(), font


def test_every_job_is_shown():
    shown = "".join(page.read_text() for page in (DOCS / "howto").glob("*.md"))
    for script in (ROOT / "tests" / "jobs").glob("*.py"):
        assert f'"tests/jobs/{script.name}"' in shown, script.name


def test_the_version_to_cite_is_that_of_the_library():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == symbnn.__version__
    assert f"\n## {symbnn.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
