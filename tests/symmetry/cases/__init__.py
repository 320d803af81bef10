"""Networks with the groups one derives by hand: importing a module adds its networks to `CASES`."""

from tests.symmetry.cases import convolutional, perceptrons, programs, sequences  # noqa: F401
from tests.symmetry.cases.base import CASES, Case, discovered, draw, hidden, inputs, summary

__all__ = ["CASES", "Case", "discovered", "draw", "hidden", "inputs", "summary"]
