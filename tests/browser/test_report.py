"""The report of a run, in a real browser: it shows, it answers mouse and keyboard, it asks nobody."""

import re
from itertools import pairwise

import numpy as np
import pytest

from experiments.compact_posterior import study
from experiments.harness import report as harness
from experiments.harness.explorer import Case, Explorer, Layer, Line, Reliability
from tests.experiments.cases import debug_config

# A whole debug run and a browser: half a minute before the first test.
pytestmark = pytest.mark.slow

LEAST_CONTRAST = 4.5
"""Of text, by WCAG 2, level AA."""
MOST_BYTES = 8 * 10**6
WITH_TEXT = (
    *("p", "li", "a", "h1", "h2", "h3", "summary", "figcaption"),
    *("th", "td", "pre", "label", "select", "button"),
)
PLOTS = ("weights", "case", "reliability", "line")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("compact_posterior")
    study.run(debug_config("compact_posterior"), directory)
    return directory / "report.html"


@pytest.fixture
def page(browser, report):
    """The report, opened anew; at the end of every test it has neither complained nor asked anyone."""
    browser.open(report)
    yield browser
    assert browser.complaints() == []
    assert browser.requests_outside() == []


def drawn(page, view: str):
    """The coordinates of all that a plot shows."""
    return page.run(f"return document.getElementById('{view}-plot').data.map(({{x, y}}) => [x, y])")


def reading(page, view: str) -> str:
    return page.find(f"#{view}-reading").get_attribute("textContent")


def choose(page, selector: str, index: int) -> None:
    """An entry of a select, as a reader does."""
    page.find(f"{selector} option:nth-of-type({index + 1})").click()


def test_the_page_is_small_enough(report):
    assert report.stat().st_size < MOST_BYTES


def test_findings_and_figures_come_before_numbers(page):
    order = page.run("return [...document.querySelectorAll('main h2')].map(each => each.textContent)")
    assert order == ["Findings", "Figures", "Explorer", "Numbers", "How it was made"]
    figures = page.find_all(".figures figure")
    assert len(figures) == 4
    for figure in figures:
        image, caption = (figure.find_element("css selector", name) for name in ("img", "figcaption"))
        assert page.run("return arguments[0].naturalWidth", image) > 100
        assert image.get_attribute("alt") == caption.text


def test_every_plot_is_drawn_and_described(page):
    for view in PLOTS:
        plot = page.find(f"#{view}-plot")
        page.wait(lambda plot=plot: plot.find_elements("css selector", "svg .trace path"))
        assert plot.get_attribute("aria-label") == reading(page, view)
        assert len(reading(page, view)) > 20


def test_the_switch_moves_the_draws_to_their_aligned_places_and_back(page):
    before, picture = drawn(page, "weights"), page.find("#weights-plot").screenshot_as_png
    page.find("[name=state][value=aligned]").click()
    page.wait(lambda: drawn(page, "weights") != before)
    assert page.find("#weights-plot").screenshot_as_png != picture
    assert reading(page, "weights").startswith("Shown aligned")
    stored = page.run("return JSON.parse(document.getElementById('explorer-data').textContent)")
    values, chains = stored["layers"][0]["aligned"], stored["chains"]
    expected = [
        [
            [value for value, each in zip(values[axis], chains, strict=True) if each == chain]
            for axis in (0, 1)
        ]
        for chain in sorted(set(chains))
    ]
    assert drawn(page, "weights") == expected
    page.find("[name=state][value=raw]").click()
    page.wait(lambda: drawn(page, "weights") == before)


def places(page) -> list[float]:
    """Where the points of the weights are on the screen."""
    found = page.run(
        "return [...document.querySelectorAll('#weights-plot .point')].map("
        "each => each.getAttribute('transform'))"
    )
    return [float(number) for text in found for number in re.findall(r"-?[\d.]+", text)]


def test_motion_ends_where_the_still_picture_is(browser, report):
    browser.open(report)
    browser.find("[name=state][value=aligned]").click()
    browser.wait(lambda: reading(browser, "weights").startswith("Shown aligned"))
    still = places(browser)
    browser.open(report, motion="no-preference")
    assert places(browser) != pytest.approx(still, abs=0.1)
    browser.find("[name=state][value=aligned]").click()
    browser.wait(lambda: places(browser) == pytest.approx(still, abs=0.1))
    assert browser.complaints() == []


def test_another_pair_another_layer_and_other_weights_are_other_pictures(page):
    seen = [drawn(page, "weights")]
    for act in (
        lambda: page.find("#another-pair").click(),
        lambda: choose(page, "#weight-x", 5),
        lambda: choose(page, "#weight-y", 7),
        lambda: choose(page, "#layer", 1),
        lambda: choose(page, "#layer", 2),
    ):
        act()
        seen.append(drawn(page, "weights"))
    assert all(one != other for one, other in pairwise(seen))
    weight = page.run("return document.getElementById('weights-plot').layout.xaxis.title.text")
    assert weight.startswith(page.find("#layer option:nth-of-type(3)").text + "[")


def test_another_input_has_another_picture_and_other_predictions(page):
    before, shown = drawn(page, "case"), page.find("#case-image").get_attribute("src")
    assert shown.startswith("data:image/png;base64,")
    page.find("#next-case").click()
    assert drawn(page, "case") != before
    assert page.find("#case-image").get_attribute("src") != shown
    choose(page, "#case", 0)
    assert drawn(page, "case") == before
    assert page.find("#case-image").get_attribute("src") == shown
    name, label = page.find("#case option:nth-of-type(1)").text, r"class (\d)"
    assert re.findall(label, reading(page, "case"))[:1] == re.findall(label, name)


def test_inputs_that_are_no_images_have_no_picture(browser, tmp_path):
    curve, draws = np.array([0.5, 1.0]), np.array([[1.0, 2.0], [3.0, 5.0]])
    explored = Explorer(
        chains=np.array([0, 1]),
        layers=[Layer("out", ["out[0]", "out[1]"], draws, draws)],
        cases=[Case("a row", 1, np.full((2, 4), 0.25))],
        reliability=[Reliability("law", curve, curve, curve, curve, np.array([3, 4]))],
        lines=[Line("line", curve, curve, curve)],
    )
    path = tmp_path / "report.html"
    path.write_text(harness.page("Rows", [], [], [], [], {"stages": {}, "versions": {}}, explored=explored))
    browser.open(path)
    assert "True class 1" in reading(browser, "case")
    assert not browser.find("#case-image").is_displayed()
    assert browser.complaints() == []


def test_a_posterior_can_be_left_out_of_the_diagram(page):
    before = reading(page, "reliability")
    box = page.find("#laws input")
    box.click()
    shown = page.run("return document.getElementById('reliability-plot').data.map(each => each.visible)")
    assert shown[:3] == [False, True, True]
    assert "HMC samples" in before
    assert "HMC samples" not in reading(page, "reliability")
    box.click()
    assert reading(page, "reliability") == before


def test_another_pair_of_networks_has_another_line(page):
    before = drawn(page, "line")
    (raw_ends, aligned_ends) = ([y[0], y[-1]] for _, y in before)
    # Alignment changes no network's predictions, so the lines end alike.
    assert raw_ends == pytest.approx(aligned_ends, rel=1e-3)
    choose(page, "#line", 1)
    assert drawn(page, "line") != before


def test_tables_unfold_by_click(page):
    for table in page.find_all("#numbers details, #how-it-was-made details"):
        is_open = table.get_attribute("open") is not None
        table.find_element("css selector", "summary").click()
        assert (table.get_attribute("open") is not None) != is_open
        assert table.find_element("css selector", "table, pre").is_displayed() != is_open


def test_everything_is_reached_by_keyboard_and_shows_that_it_is(page):
    number = page.run(
        "window.wanted = [...document.querySelectorAll('a, summary, button, select, input')].filter("
        "each => each.type !== 'radio' || each.checked); return wanted.length"
    )
    reached: set[int] = set()
    while True:
        page.press("TAB")
        place, is_over, is_shown, text = page.run(
            "const each = document.activeElement; const at = each.closest('.switch label') ?? each; return ["
            "wanted.indexOf(each), each === document.body, getComputedStyle(at).outlineStyle !== 'none', "
            "each.outerHTML.slice(0, 80)]"
        )
        if is_over or place in reached:
            break
        assert is_shown, f"{text} does not show that it has the focus"
        reached |= {place} - {-1}
    assert reached == set(range(number))


def test_keys_unfold_a_table_and_throw_the_switch(page):
    table = page.find_all("#numbers details")[1]
    page.run("arguments[0].querySelector('summary').focus()", table)
    page.press("ENTER")
    assert table.get_attribute("open") is not None
    before = drawn(page, "weights")
    page.run("document.querySelector('[name=state]').focus()")
    page.press("ARROW_DOWN")
    page.wait(lambda: drawn(page, "weights") != before)


def test_the_skip_link_shows_itself_and_leads_to_the_content(page):
    page.press("TAB")
    link = page.driver.switch_to.active_element
    assert link.text == "Skip to the content"
    assert page.run("return arguments[0].getBoundingClientRect().left", link) >= 0
    page.press("ENTER")
    assert page.run("return document.activeElement.id") == "main"


def test_links_lead_to_what_exists(page):
    targets = [link.get_attribute("href").partition("#")[2] for link in page.find_all("a")]
    assert len(targets) == 6
    assert [target for target in targets if not page.find_all(f"[id='{target}']")] == []


@pytest.mark.parametrize("width", [1280, 800, 400])
def test_the_page_is_never_wider_than_the_window(browser, report, width):
    browser.open(report, width=width)
    for table in browser.find_all("details:not([open]) > summary"):
        table.click()
    assert browser.run("return document.documentElement.scrollWidth") <= width


CONTRAST = """
const numbers = colour => {
  const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d');
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const ground = element => {
  for (let each = element; each; each = each.parentElement) {
    const colour = numbers(getComputedStyle(each).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return numbers('white');
};
return [...document.querySelectorAll(arguments[0])].map(each => [
  numbers(getComputedStyle(each)[arguments[1]]).slice(0, 3), ground(each).slice(0, 3)]);
"""


def luminance(colour: list[int]) -> float:
    """Relative, from 0 to 1, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: list[int], other: list[int]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_contrast_that_it_must_have():
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21)
    assert contrast([119, 119, 119], [255, 255, 255]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_in_the_light_and_in_the_dark(browser, report, scheme):
    browser.open(report, scheme=scheme)
    (_, ground), *_ = browser.run(CONTRAST, "body", "color")
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    browser.wait(lambda: len(browser.find_all(".chart .xtitle")) == len(PLOTS))
    for selector, part in (*((name, "color") for name in WITH_TEXT), (".chart text", "fill")):
        found = browser.run(CONTRAST, selector, part)
        assert found, selector
        for colours in found:
            assert contrast(*colours) >= LEAST_CONTRAST, (selector, colours)


def test_plots_follow_when_the_reader_turns_dark(page):
    ink = "return getComputedStyle(document.querySelector('#line-plot .xtitle')).fill"
    light = page.run(ink)
    page.like(scheme="dark")
    page.wait(lambda: page.run(ink) != light)


def test_print_shows_the_tables_that_the_screen_folds(page):
    table = page.find("#numbers details:not([open]) table")
    is_visible = "return arguments[0].checkVisibility()"
    assert not page.run(is_visible, table)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.run(is_visible, table)
