"""The arithmetic of the plans: hand-made counts, and the count of a known network."""

import pytest

from symbnn import models
from tests.bench.scale import Counted, Device, duration, gradient


def test_time_is_bound_by_operations_or_by_bytes():
    one = Counted(operations=8e9, bytes=2e9, memory=1.0, seconds=0.1)
    # 80 GFLOP/s of 160: half of what a product reaches here, and so half of the other's rate.
    assert one.efficiency(160e9) == pytest.approx(0.5)
    assert one.on(Device("", 32e9, 1e12, 0.0), 160e9) == pytest.approx(0.5)
    assert one.on(Device("", 1e15, 1e9, 0.0), 160e9) == pytest.approx(2.0)


def test_a_gradient_is_counted_as_by_hand():
    counted = gradient(models.mlp((64,), 10, hidden=(32,)), 100, (64,))
    # Forward; gradients of both kernels; gradient of the hidden units.
    products = 2 * 100 * (2 * (64 * 32 + 32 * 10) + 32 * 10)
    assert products < counted.operations < 1.2 * products
    assert counted.memory > 100 * 64 * 4


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0.2 s"), (90, "1.5 minutes"), (7200, "2 h"), (1e5, "1.16 days"), (1e9, "31.7 years")],
)
def test_durations_have_a_unit_that_can_be_read(seconds, words):
    assert duration(seconds) == words
