"""Training with a fixed number of connections that move: RigL, SET and their structured kin."""

from sparse_core.dynamic.rigl.budgets import layer_densities
from sparse_core.dynamic.rigl.convert import SparseTrainingReport, dense_training, sparse_training
from sparse_core.dynamic.rigl.exchange import Exchange, exchange_cells
from sparse_core.dynamic.rigl.grid import Grid, plan_grid
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.schedule import RigLScheduler, TopologyUpdate, cosine_fraction
from sparse_core.dynamic.rigl.stored import SparseTrainedLayer

__all__ = [
    "Exchange",
    "Grid",
    "RigLConv2d",
    "RigLLinear",
    "RigLScheduler",
    "SparseTrainedLayer",
    "SparseTrainingReport",
    "TopologyUpdate",
    "cosine_fraction",
    "dense_training",
    "exchange_cells",
    "layer_densities",
    "plan_grid",
    "sparse_training",
]
