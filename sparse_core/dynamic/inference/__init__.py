"""Less work where it is enough: early exits, conditional blocks, experts, and a latency budget."""

from sparse_core.dynamic.inference.calibration import (
    calibration_error,
    confidence_of,
    fit_temperature,
    threshold_for_accuracy,
)
from sparse_core.dynamic.inference.conditional import ConditionalBlock
from sparse_core.dynamic.inference.early_exit import EarlyExit, ExitReport, ExitResult
from sparse_core.dynamic.inference.experts import MixtureOfExperts
from sparse_core.dynamic.inference.latency import BudgetWarning, LatencyController, measure_levels
from sparse_core.dynamic.inference.levels import prepare_levels

__all__ = [
    "BudgetWarning",
    "ConditionalBlock",
    "EarlyExit",
    "ExitReport",
    "ExitResult",
    "LatencyController",
    "MixtureOfExperts",
    "calibration_error",
    "confidence_of",
    "fit_temperature",
    "measure_levels",
    "prepare_levels",
    "threshold_for_accuracy",
]
