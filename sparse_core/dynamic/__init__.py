"""Sparsity that changes during training or inference: activations, RigL, and inference within a budget."""

from sparse_core.dynamic.activations.masks import masked
from sparse_core.dynamic.activations.predictor import BlockPredictor, PredictedFeedForward, fit_predictor
from sparse_core.dynamic.activations.thresholds import (
    AbsoluteThreshold,
    LearnedThreshold,
    LocalThreshold,
    PercentileThreshold,
    ThresholdActivation,
)
from sparse_core.dynamic.activations.top_k import TopKActivation, top_k_mask
from sparse_core.dynamic.inference.calibration import (
    calibration_error,
    confidence_of,
    fit_temperature,
    threshold_for_accuracy,
)
from sparse_core.dynamic.inference.conditional import ConditionalBlock
from sparse_core.dynamic.inference.early_exit import EarlyExit, ExitReport, ExitResult
from sparse_core.dynamic.inference.energy import EnergyMeter
from sparse_core.dynamic.inference.experts import MixtureOfExperts
from sparse_core.dynamic.inference.latency import (
    JOULES,
    SECONDS,
    BudgetWarning,
    LatencyController,
    Quantity,
    measure_levels,
)
from sparse_core.dynamic.inference.levels import prepare_levels
from sparse_core.dynamic.optimisers import SparseAdagrad, SparseAdam, SparseMomentum
from sparse_core.dynamic.rigl.budgets import layer_densities
from sparse_core.dynamic.rigl.conversion import SparseTrainingReport, dense_training, sparse_training
from sparse_core.dynamic.rigl.exchange import Exchange, exchange_cells
from sparse_core.dynamic.rigl.grid import Grid, plan_grid
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler, TopologyUpdate, cosine_fraction
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer

__all__ = [
    "JOULES",
    "SECONDS",
    "AbsoluteThreshold",
    "BlockPredictor",
    "BudgetWarning",
    "ConditionalBlock",
    "EarlyExit",
    "EnergyMeter",
    "Exchange",
    "ExitReport",
    "ExitResult",
    "Grid",
    "LatencyController",
    "LearnedThreshold",
    "LocalThreshold",
    "MixtureOfExperts",
    "PercentileThreshold",
    "PredictedFeedForward",
    "Quantity",
    "RigLConv2d",
    "RigLLinear",
    "RigLScheduler",
    "SparseAdagrad",
    "SparseAdam",
    "SparseMomentum",
    "SparseTrainedLayer",
    "SparseTrainingReport",
    "ThresholdActivation",
    "TopKActivation",
    "TopologyUpdate",
    "calibration_error",
    "confidence_of",
    "cosine_fraction",
    "dense_training",
    "exchange_cells",
    "fit_predictor",
    "fit_temperature",
    "layer_densities",
    "masked",
    "measure_levels",
    "plan_grid",
    "prepare_levels",
    "sparse_training",
    "threshold_for_accuracy",
    "top_k_mask",
]
