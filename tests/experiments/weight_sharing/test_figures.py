"""Figures of weight sharing: what is drawn is what was measured."""

import numpy as np
import pytest

from experiments.weight_sharing import figures


def test_variants_are_drawn_with_their_intervals():
    one = {"accuracy": 0.001, "accuracy_error": 0.0005, "nll": -0.002, "nll_error": 0.0001}
    other = {"accuracy": -0.002, "accuracy_error": 0.0, "nll": 0.0, "nll_error": 0.0004}
    figure = figures.variants({"one": one, "other": other})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["other", "one"]
    for panel, score, factor in zip(figure.axes, ("accuracy", "nll"), (100.0, 1.0), strict=True):
        (bars,) = panel.containers
        for (first, last), variant in zip(bars[2][0].get_segments(), (other, one), strict=True):
            assert (first[0] + last[0]) / 2 == pytest.approx(factor * variant[score])
            assert last[0] - first[0] == pytest.approx(3.92 * factor * variant[f"{score}_error"], rel=1e-3)
            assert first[1] == last[1]
        assert np.allclose(bars[0].get_xdata(), [factor * each[score] for each in (other, one)])
