"""Every figure of the evaluation renders, from arrays as the metrics return them, without global state."""

import io

import jax
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common import figures
from symbnn import evaluate

RANDOM = np.random.default_rng(0)


def predictions():
    probs = np.array(jax.nn.softmax(3.0 * jax.random.normal(jax.random.key(0), (2000, 4))))
    labels = np.array([RANDOM.choice(4, p=row / row.sum()) for row in np.sqrt(probs)], np.int32)
    probs[:3] = np.eye(4)[[0, 1, 2]]
    return probs, labels


def reliability() -> Figure:
    probs, labels = predictions()
    curve = evaluate.reliability_curve(probs, labels)
    return figures.reliability_diagram(*map(np.asarray, curve), ece=float(evaluate.ece(probs, labels)))


def risk() -> Figure:
    probs, labels = predictions()
    shuffled = evaluate.risk_coverage_curve(np.roll(probs, 1, axis=0), labels)
    return figures.risk_coverage(
        {"one network": tuple(shuffled), "ensemble": tuple(evaluate.risk_coverage_curve(probs, labels))}
    )


def histograms() -> Figure:
    inside, near, far = (np.float32(RANDOM.gamma(shape, 1.0, 500)) for shape in (1.0, 2.0, 6.0))
    areas = {name: float(evaluate.auroc(inside, out)) for name, out in (("near", near), ("far", far))}
    return figures.score_histograms(inside, {"near": near, "far": far}, score="entropy, nats", auroc=areas)


def interpolation() -> Figure:
    weights = np.linspace(0, 1, 11)
    bump = np.sin(np.pi * weights)
    rows = 0.2 + bump * RANDOM.uniform(0.8, 1.2, (5, 1))
    loss = {"as trained": rows, "aligned": 0.2 + 0.1 * bump}
    error = {"as trained": rows / 3, "aligned": bump / 50}
    return figures.interpolation_curves(weights, loss, error)


def discrepancies() -> Figure:
    values = RANDOM.uniform(0, 0.4, (4, 4))
    values = 0.5 * (values + values.T)
    np.fill_diagonal(values, np.nan)
    return figures.discrepancy_matrix(["HMC", "ensemble", "VI", "SWAG"], values)


@pytest.mark.parametrize("draw", [reliability, risk, histograms, interpolation, discrepancies])
def test_figure_renders(draw):
    figure = draw()
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    assert stream.getvalue().startswith(b"\x89PNG")
    assert len(stream.getvalue()) > 5000
    assert pyplot.get_fignums() == []


def test_certain_predictions_are_drawn_with_the_highest_bin():
    edges, counts = np.linspace(0, 1, 4), np.array([0, 2, 3, 1])
    confidence, accuracy = np.array([[np.nan, 0.5, 0.8, 1.0], [np.nan, 0.5, 0.6, 1.0]])
    figure = figures.reliability_diagram(edges, counts, confidence, accuracy, ece=0.1)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights, [0.5, 0.7])
    shares = [bar.get_height() for bar in figure.axes[1].patches]
    np.testing.assert_allclose(shares, [0, 2 / 6, 4 / 6])
