"""Sparsity that changes during training or inference: RigL, top-k activations, and budgets of frames."""

from sparse_core.dynamic.energy import EnergyMeter
from sparse_core.dynamic.latency import (
    JOULES,
    SECONDS,
    BudgetWarning,
    LatencyController,
    Quantity,
    measure_levels,
)
from sparse_core.dynamic.rigl.budgets import layer_densities
from sparse_core.dynamic.rigl.conversion import SparseTrainingReport, dense_training, sparse_training
from sparse_core.dynamic.rigl.exchange import Exchange, exchange_cells
from sparse_core.dynamic.rigl.grid import Grid, plan_grid
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler, TopologyUpdate, cosine_fraction
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer
from sparse_core.dynamic.top_k import TopKActivation, top_k_mask

__all__ = [
    "JOULES",
    "SECONDS",
    "BudgetWarning",
    "EnergyMeter",
    "Exchange",
    "Grid",
    "LatencyController",
    "Quantity",
    "RigLConv2d",
    "RigLLinear",
    "RigLScheduler",
    "SparseTrainedLayer",
    "SparseTrainingReport",
    "TopKActivation",
    "TopologyUpdate",
    "cosine_fraction",
    "dense_training",
    "exchange_cells",
    "layer_densities",
    "measure_levels",
    "plan_grid",
    "sparse_training",
    "top_k_mask",
]
