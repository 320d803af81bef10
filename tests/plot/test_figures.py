"""What holds for every plot: a figure, no global state, drawn into a given part, the rest refused."""

import ast
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from symbnn import plot
from symbnn.plot.style import PALETTE, colours, parts_beside, shortened
from tests.plot.cases import PLOTS

ROOT = Path(__file__).parent.parent.parent


def test_every_plot_has_a_case():
    assert sorted(PLOTS) == plot.__all__


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_a_figure_that_can_be_drawn(name):
    before = dict(matplotlib.rcParams)
    figure = PLOTS[name]()
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    assert dict(matplotlib.rcParams) == before


def test_a_notebook_shows_a_figure():
    assert PLOTS["groups"]()._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_fills_the_part_that_it_is_given(name):
    whole, (left, right) = parts_beside(2)
    assert PLOTS[name](figure=left) is whole
    assert left.axes
    assert not right.axes
    with pytest.raises(ValueError, match="figure: expected an empty one, got one with"):
        PLOTS[name](figure=left)
    bare = Figure()
    assert PLOTS[name](figure=bare) is bare
    with pytest.raises(
        ValueError, match="figure: expected an empty matplotlib Figure or SubFigure, got Axes"
    ):
        PLOTS[name](figure=bare.axes[0])


def test_pyplot_and_its_global_state_are_never_imported():
    sources = [path for name in ("symbnn", "experiments") for path in (ROOT / name).rglob("*.py")]
    named = {
        alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert "matplotlib.figure.Figure" in named
    assert not any("pyplot" in name for name in named)


def test_colours_are_distinct_however_many():
    for number in (1, len(PALETTE), 30):
        assert len(set(colours(number))) == number


def test_long_names_keep_both_ends():
    assert shortened("hidden/kernel", 20) == "hidden/kernel"
    short = shortened("encoder/block_11/attention/query/kernel[3, 5]", 24)
    assert len(short) == 24
    assert short.startswith("encoder")
    assert short.endswith("kernel[3, 5]")
