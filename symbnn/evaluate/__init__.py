"""Judging predictions and posteriors: pure functions, arrays in, scalars out, compiled once per shape."""

from symbnn.evaluate.barrier import Barrier, barrier, cross_entropy, interpolate, misclassified
from symbnn.evaluate.calibration import (
    ReliabilityCurve,
    adaptive_ece,
    classwise_adaptive_ece,
    classwise_ece,
    ece,
    mce,
    reliability_curve,
)
from symbnn.evaluate.checks import unchecked
from symbnn.evaluate.classification import accuracy, agreement, brier, nll, total_variation
from symbnn.evaluate.corrections.moments import recompute_statistics, repair
from symbnn.evaluate.coverage import RegressionSummary, coverage, regression_summary
from symbnn.evaluate.diversity import disagreement, mutual_information, mutual_information_score
from symbnn.evaluate.gaussians import kl, wasserstein
from symbnn.evaluate.linearised import Outputs, linearised, predict_linearised
from symbnn.evaluate.metrics import Metrics
from symbnn.evaluate.mixture import Mixture
from symbnn.evaluate.mmd import MMD, Discrepancy, bandwidth_grid, mmd
from symbnn.evaluate.ood import aupr, auroc, energy_score, entropy_score, fpr_at, max_probability_score
from symbnn.evaluate.predictive import Uncertainty, predict, predict_uncertainty
from symbnn.evaluate.regression import (
    crps,
    mixture_cdf,
    mixture_crps,
    mixture_nll,
    quantile_calibration,
    rmse,
)
from symbnn.evaluate.selective import RiskCoverage, aurc, risk_coverage_curve
from symbnn.evaluate.temperature import fit_temperature

__all__ = [
    "MMD",
    "Barrier",
    "Discrepancy",
    "Metrics",
    "Mixture",
    "Outputs",
    "RegressionSummary",
    "ReliabilityCurve",
    "RiskCoverage",
    "Uncertainty",
    "accuracy",
    "adaptive_ece",
    "agreement",
    "aupr",
    "aurc",
    "auroc",
    "bandwidth_grid",
    "barrier",
    "brier",
    "classwise_adaptive_ece",
    "classwise_ece",
    "coverage",
    "cross_entropy",
    "crps",
    "disagreement",
    "ece",
    "energy_score",
    "entropy_score",
    "fit_temperature",
    "fpr_at",
    "interpolate",
    "kl",
    "linearised",
    "max_probability_score",
    "mce",
    "misclassified",
    "mixture_cdf",
    "mixture_crps",
    "mixture_nll",
    "mmd",
    "mutual_information",
    "mutual_information_score",
    "nll",
    "predict",
    "predict_linearised",
    "predict_uncertainty",
    "quantile_calibration",
    "recompute_statistics",
    "regression_summary",
    "reliability_curve",
    "repair",
    "risk_coverage_curve",
    "rmse",
    "total_variation",
    "unchecked",
    "wasserstein",
]
