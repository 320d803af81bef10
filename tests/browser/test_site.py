"""The site in a real browser, from files: every page opens, formulas are set, nobody outside is asked."""

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKS = ".md-nav--primary a.md-nav__link:not([href^='#'])"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocs") is None,
        reason='no mkdocs here; install it with: pip install "symbnn[docs]"',
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without the output of its tutorials, which another build runs."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"SYMBNN_DOCS_RUN": "no", "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.fixture
def address(site):
    """Where a server on this machine shows the site."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_every_page_of_the_navigation_opens_by_a_click_and_asks_nobody(browser, site):
    browser.open(site / "index.html")
    found = "return [...document.querySelectorAll(arguments[0])]"
    pages = list(dict.fromkeys(browser.run(f"{found}.map(each => each.href)", LINKS)))
    assert len(pages) > 35
    for page in pages:
        browser.run(f"{found}.find(each => each.href === arguments[1])", LINKS, page).click()
        browser.wait(lambda page=page: browser.driver.current_url.partition("#")[0] == page)
        assert browser.find("article h1").text, page
        assert browser.complaints() == [], page
        assert browser.requests_outside() == [], page


def test_formulas_are_set(browser, site):
    for page in sorted((site / "theory").glob("*.html")):
        browser.open(page)
        number, left, wrong = browser.run(
            "return ['.arithmatex', '.arithmatex:not(:has(.katex))', '.katex-error'].map("
            "each => document.querySelectorAll(each).length)"
        )
        assert (left, wrong) == (0, 0), page.name
        assert number > 0 or page.name == "index.html"
        assert browser.complaints() == [], page.name


def test_the_search_hides_where_a_browser_forbids_it(browser, site):
    browser.open(site / "index.html")
    assert not browser.find(".md-search__input").is_displayed()


def test_the_search_finds_from_a_server(browser, address):
    browser.show(address)
    field = browser.find(".md-search__input")
    browser.wait(field.is_displayed)
    field.click()
    field.send_keys("barrier")
    browser.wait(lambda: browser.find_all(".md-search-result__item"))
    first = browser.find(".md-search-result__item a").get_attribute("href")
    assert first.startswith(address)
    assert browser.complaints() == []
    assert [each for each in browser.requests_outside() if not each.startswith(address)] == []
