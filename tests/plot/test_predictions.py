"""Reliability, barriers and transpositions: the artists hold the numbers that were computed."""

import numpy as np
import pytest
from scipy.stats import binomtest

from symbnn import evaluate, plot, symmetry
from symbnn.plot.reliability import wilson_interval
from tests.plot.cases import CHAINS, DRAWS, LABELS, UNITS, aligned, barriers, probs

RANDOM = np.random.default_rng(0)
PROBS = np.float32(RANDOM.dirichlet([0.5, 0.5, 0.5], size=300))
CLASSES = RANDOM.integers(3, size=300)


def test_a_reliability_diagram_is_the_curve_above_its_counts():
    above, below = plot.reliability(PROBS, CLASSES, bins=10).axes
    curve = evaluate.reliability_curve(PROBS, CLASSES, bins=10)
    full = np.asarray(curve.counts) > 0
    line = above.lines[-1]
    np.testing.assert_allclose(line.get_xdata(), curve.confidence[full], rtol=1e-6)
    np.testing.assert_allclose(line.get_ydata(), curve.accuracy[full], rtol=1e-6)
    heights = [bar.get_height() for bar in below.containers[0]]
    np.testing.assert_array_equal(heights, curve.counts)
    assert sum(heights) == 300
    assert above.get_title() == f"ECE {float(evaluate.ece(PROBS, CLASSES, bins=10)):.3f}"


def test_the_band_is_wilsons_interval():
    curve = evaluate.reliability_curve(PROBS, CLASSES)
    full = np.asarray(curve.counts) > 0
    counts, right = (np.asarray(part)[full] for part in (curve.counts, curve.accuracy * curve.counts))
    low, high = wilson_interval(right, counts)
    for k, n, *ends in zip(right, counts, low, high, strict=True):
        exact = binomtest(round(float(k)), int(n)).proportion_ci(0.95, method="wilson")
        np.testing.assert_allclose(ends, [exact.low, exact.high], atol=1e-6)
    bars = plot.reliability(curve).axes[0].collections[1].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], np.stack([low, high], axis=1), atol=1e-6)


def test_several_predictions_have_a_column_each():
    figure = plot.reliability({"raw": PROBS, "kept": evaluate.reliability_curve(PROBS, CLASSES)}, CLASSES)
    titles = [panel.get_title() for panel in figure.axes]
    assert [title.split(",")[0] for title in titles] == ["raw", "kept", "", ""]
    assert titles[0].split("ECE")[1] == titles[1].split("ECE")[1]


def test_certain_predictions_have_a_bin_of_their_own():
    certain = np.eye(3, dtype=np.float32)[CLASSES]
    _, below = plot.reliability(certain, CLASSES).axes
    last = below.containers[0][-1]
    assert (last.get_x(), last.get_height()) == (1.0, 300)


def test_barriers_are_the_curves_with_their_mean_and_band():
    figure = plot.barrier(barriers(), loss="test loss, nats")
    for panel, field in zip(figure.axes, ("loss", "error"), strict=True):
        for line, band, (name, each) in zip(panel.lines, panel.collections, barriers().items(), strict=True):
            rows = np.asarray(getattr(each, field))
            np.testing.assert_allclose(line.get_xdata(), each.weights[0])
            np.testing.assert_allclose(line.get_ydata(), rows.mean(0), rtol=1e-6)
            edge = band.get_paths()[0].vertices[:, 1]
            np.testing.assert_allclose(edge.max(), (rows.mean(0) + rows.std(0)).max(), rtol=1e-5)
            height = np.asarray(getattr(each, f"{field}_barrier"))
            assert line.get_label() == f"{name}: barrier {height.mean():.2g} ± {height.std():.2g}"
    assert figure.axes[0].get_ylabel() == "test loss, nats"


def test_one_barrier_needs_no_name():
    one = evaluate.Barrier(*(part[0] for part in barriers()["aligned"]))
    panel, _ = plot.barrier(one).axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), one.loss, rtol=1e-6)
    assert panel.lines[0].get_label() == f"barrier {float(one.loss_barrier):.2g}"


def test_transpositions_count_every_network():
    (panel,) = plot.transpositions(aligned()).axes
    counts = np.asarray(symmetry.number_of_transpositions(aligned().elements))
    heights = [bar.get_height() for bar in panel.containers[0]]
    np.testing.assert_array_equal(heights, np.bincount(counts, minlength=UNITS))
    assert sum(heights) == CHAINS * DRAWS
    # 4 - (1 + 1/2 + 1/3 + 1/4): the mean of a random permutation of four units.
    assert panel.lines[0].get_xdata()[0] == pytest.approx(23 / 12)


def test_transpositions_take_elements_permutations_and_numbers():
    permutations = aligned().elements.permutations
    (name,) = permutations
    given = np.asarray(permutations[name])
    expected = [bar.get_height() for bar in plot.transpositions(aligned()).axes[0].containers[0]]
    counts = np.asarray(symmetry.number_of_transpositions(given))
    for figure in (
        plot.transpositions(aligned().elements),
        plot.transpositions(permutations),
        plot.transpositions(given),
        plot.transpositions(counts, num_units=UNITS),
    ):
        assert [bar.get_height() for bar in figure.axes[0].containers[0]] == expected
    many = plot.transpositions({f"layer{place}": given for place in range(5)})
    assert len(many.axes) == 8
    assert sum(panel.axison for panel in many.axes) == 5


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.reliability(PROBS), "labels: probabilities need the true classes"),
        (lambda: plot.reliability({"HMC": PROBS}), "labels: probabilities of 'HMC' need the true classes"),
        (lambda: plot.reliability({}, CLASSES), "predictions: expected at least one"),
        (lambda: plot.reliability(3 * PROBS, CLASSES), "these look like logits"),
        (lambda: plot.reliability(PROBS * np.nan, CLASSES), "expected probabilities, got NaN"),
        (lambda: plot.reliability(probs(), CLASSES), r"labels: expected shape \(20,\), got \(300,\)"),
        (lambda: plot.reliability(probs(), LABELS, bins=0), "bins: expected a positive integer"),
        (lambda: plot.barrier(PROBS), "curves: expected what evaluate.barrier returns"),
        (lambda: plot.barrier({}), "curves: expected what evaluate.barrier returns"),
        (lambda: plot.barrier({"a": 3}), "curves: expected what evaluate.barrier returns"),
        (
            lambda: plot.barrier({"a": barriers()["aligned"]._replace(loss=np.full((2, 11), np.nan))}),
            "curves: a loss has values that are not finite",
        ),
        (lambda: plot.transpositions({}), "no group of units"),
        (
            lambda: plot.transpositions(np.arange(4)),
            r"shape \(4,\); numbers of transpositions need num_units",
        ),
        (lambda: plot.transpositions(np.ones((2, 4))), "expected indices .* got float64"),
        (lambda: plot.transpositions(np.zeros((2, 4), int)), "every index from 0 to 3 once in each row"),
        (lambda: plot.transpositions(np.arange(4), num_units=3), r"from 0 to 2, got int64 of shape \(4,\)"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(draw, message):
    with pytest.raises(ValueError, match=message) as refused:
        draw()
    assert "\n" not in str(refused.value)
