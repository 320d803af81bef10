"""Judging predictions and posteriors: pure functions, arrays in, scalars out, compiled once per shape."""

from symbnn.evaluate.agreement import Ceiling, agreement, reference_ceiling, total_variation
from symbnn.evaluate.barrier import Barrier, barrier, cross_entropy, interpolate, misclassified, squared_error
from symbnn.evaluate.calibration import (
    ReliabilityCurve,
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
from symbnn.evaluate.conformal import (
    adaptive_scores,
    adaptive_sets,
    conformal_threshold,
    residual_interval,
    residual_scores,
    set_coverage,
    set_size,
    threshold_scores,
    threshold_sets,
)
from symbnn.evaluate.corrections import recompute_statistics, repair, rescale
from symbnn.evaluate.diversity import (
    disagreement,
    mutual_information,
    mutual_information_score,
    soft_variation_ratio,
    variation_ratio,
)
from symbnn.evaluate.gaussians import kl, wasserstein
from symbnn.evaluate.metrics import Metrics
from symbnn.evaluate.mixture import Mixture, predict_regression
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
from symbnn.evaluate.selective import (
    RiskCoverage,
    augrc,
    aurc,
    coverage_at_risk,
    risk_at_coverage,
    risk_coverage_curve,
)
from symbnn.evaluate.temperature import fit_temperature

__all__ = [
    "MMD",
    "Barrier",
    "Ceiling",
    "Discrepancy",
    "Metrics",
    "Mixture",
    "ReliabilityCurve",
    "RiskCoverage",
    "Uncertainty",
    "accuracy",
    "adaptive_ece",
    "adaptive_scores",
    "adaptive_sets",
    "agreement",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "bandwidth_grid",
    "barrier",
    "binary_adaptive_ece",
    "binary_ece",
    "binary_mce",
    "brier",
    "classwise_ece",
    "conformal_threshold",
    "coverage_at_risk",
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
    "predict_regression",
    "predict_uncertainty",
    "quantile_calibration",
    "recompute_statistics",
    "reference_ceiling",
    "reliability_curve",
    "repair",
    "rescale",
    "residual_interval",
    "residual_scores",
    "risk_at_coverage",
    "risk_coverage_curve",
    "rmse",
    "set_coverage",
    "set_size",
    "soft_variation_ratio",
    "squared_error",
    "threshold_scores",
    "threshold_sets",
    "top_accuracy",
    "total_variation",
    "unchecked",
    "variation_ratio",
    "wasserstein",
]
