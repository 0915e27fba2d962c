"""Sparse activations: top-k, thresholds, learned thresholds, and blocks that are predicted and skipped."""

from sparse_core.dynamic.activations.masking import masked
from sparse_core.dynamic.activations.predictor import BlockPredictor, PredictedFeedForward, fit_predictor
from sparse_core.dynamic.activations.thresholds import (
    AbsoluteThreshold,
    LearnedThreshold,
    LocalThreshold,
    PercentileThreshold,
    ThresholdActivation,
)
from sparse_core.dynamic.activations.top_k import TopKActivation, top_k_mask

__all__ = [
    "AbsoluteThreshold",
    "BlockPredictor",
    "LearnedThreshold",
    "LocalThreshold",
    "PercentileThreshold",
    "PredictedFeedForward",
    "ThresholdActivation",
    "TopKActivation",
    "fit_predictor",
    "masked",
    "top_k_mask",
]
