"""The report as text: what is in it, in which order, and that nothing in it can break out of its place."""

import json
import re
import struct
import zlib

import numpy as np
import pytest

from experiments.harness import explorer, report
from experiments.harness.explorer import Case, Explorer, Layer, Line, Reliability
from experiments.harness.tables import Row, Table

DESCRIBED = {"stages": {}, "versions": {}, "seed": 0}


def png(path, width, height):
    """A black picture."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    rows = b"".join(b"\0" + bytes(width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)
    return path


def table(title, num_columns):
    return Table(title, [f"c{index}" for index in range(num_columns)], [Row.of("row", range(num_columns))])


def small_explorer(name="hidden/kernel", probs=0.25):
    curve = np.array([0.5, 1.0])
    return Explorer(
        chains=np.array([0, 1]),
        layers=[Layer(name, ["a", "b"], np.array([[1.23456, 2.0], [3.0, 4.0]]), np.zeros((2, 2)))],
        cases=[Case("one", 1, np.full((2, 4), probs), np.linspace(0, 1, 6).reshape(2, 3, 1))],
        reliability=[Reliability("law", curve, curve, curve, curve, np.array([3, 4]))],
        lines=[Line("line", curve, curve, curve)],
    )


def stored(page):
    """What the page holds for its script."""
    (text,) = re.findall(
        r'<script type="application/json" id="explorer-data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(text)


def test_words_and_figures_come_before_tables(tmp_path):
    figure = png(tmp_path / "a.png", 4, 3)
    page = report.page("Title", ["One.", "Two."], ["Found."], [table("T", 2)], [(figure, "Seen.")], DESCRIBED)
    places = [page.index(text) for text in ("<h1>Title", "One. Two.", "Found.", "Seen.", "<table>", "<pre")]
    assert places == sorted(places)


def test_only_a_narrow_first_table_is_open():
    narrow, wide = table("narrow", report.NARROW), table("wide", report.NARROW + 1)
    for tables, opened in (((narrow, narrow), [True, False]), ((wide, narrow), [False, False])):
        page = report.page("Title", [], [], tables, [], DESCRIBED)
        found = re.findall(r'<details class="table"( open)?><summary>(?:narrow|wide)', page)
        assert [bool(each) for each in found] == opened


def test_a_flat_figure_takes_a_row_of_its_own(tmp_path):
    shapes = {"flat": (40, 10), "square": (20, 20)}
    figures = [(png(tmp_path / f"{name}.png", *shape), name) for name, shape in shapes.items()]
    page = report.page("Title", [], [], [], figures, DESCRIBED)
    assert re.findall(r'<figure( class="wide")?><img alt="(\w+)" width="(\d+)" height="(\d+)"', page) == [
        (' class="wide"', "flat", "40", "10"),
        ("", "square", "20", "20"),
    ]


def test_a_page_without_explorer_has_no_script():
    page = report.page("Title", ["One."], ["Found."], [table("T", 2)], [], DESCRIBED)
    assert "<script" not in page
    assert "Explorer" not in page
    assert len(page) < 20_000


def test_names_stay_text():
    hostile = "</script><script>alert(1)</script>"
    explored = small_explorer(hostile)
    page = report.page(hostile, [hostile], [hostile], [table(hostile, 1)], [], DESCRIBED, explored=explored)
    assert "<script>alert" not in page
    assert stored(page)["layers"][0]["name"] == hostile


def test_numbers_are_rounded_and_tiny_probabilities_are_nothing():
    page = report.page("Title", [], [], [], [], DESCRIBED, explored=small_explorer(probs=1.23456e-7))
    found = stored(page)
    assert found["layers"][0]["raw"] == [[1.235, 2.0], [3.0, 4.0]]
    assert found["cases"][0]["probs"] == [[0.0] * 4] * 2
    assert found["chains"] == [0, 1]
    assert found["reliability"][0]["counts"] == [3, 4]
    assert found["cases"][0]["image"].startswith("data:image/png;base64,")


def test_what_diverged_is_refused():
    with pytest.raises(ValueError, match=r"expected finite numbers, got nan; leave out what diverged"):
        explorer.data(small_explorer(probs=np.nan))
