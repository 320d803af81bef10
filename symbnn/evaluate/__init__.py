"""Judging predictions and posteriors: pure functions, arrays in, scalars out, compiled once per shape."""

from symbnn.evaluate.agreement import agreement, reference_ceiling, total_variation
from symbnn.evaluate.calibration import (
    adaptive_ece,
    binary_adaptive_ece,
    binary_ece,
    binary_mce,
    classwise_ece,
    ece,
    mce,
    reliability_curve,
)
from symbnn.evaluate.checks import unchecked
from symbnn.evaluate.classification import accuracy, brier, nll, top_accuracy
from symbnn.evaluate.predictive import predict, predict_uncertainty

__all__ = [
    "accuracy",
    "adaptive_ece",
    "agreement",
    "binary_adaptive_ece",
    "binary_ece",
    "binary_mce",
    "brier",
    "classwise_ece",
    "ece",
    "mce",
    "nll",
    "predict",
    "predict_uncertainty",
    "reference_ceiling",
    "reliability_curve",
    "top_accuracy",
    "total_variation",
    "unchecked",
]
