"""Dynamic pruning: patterns that follow the importance of blocks during training."""

from sparse_core.attention.pruning.average import BlockImportance
from sparse_core.attention.pruning.importance import block_importance
from sparse_core.attention.pruning.layer import PrunableAttention
from sparse_core.attention.pruning.pruner import AttentionPruner
from sparse_core.attention.pruning.report import LayerPruning, PruningReport
from sparse_core.attention.pruning.schedule import DensitySchedule, LinearDensity
from sparse_core.attention.pruning.selection import patterns_from_importance

__all__ = [
    "AttentionPruner",
    "BlockImportance",
    "DensitySchedule",
    "LayerPruning",
    "LinearDensity",
    "PrunableAttention",
    "PruningReport",
    "block_importance",
    "patterns_from_importance",
]
