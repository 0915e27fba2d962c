"""Block-sparse attention: which queries attend to which keys, and attention that computes only that."""

# These register themselves with the pattern, whose methods call them.
import sparse_core.attention.describe
import sparse_core.attention.files
import sparse_core.attention.picture
import sparse_core.attention.validation  # noqa: F401
from sparse_core.attention.api import sparse_attention
from sparse_core.attention.builders import (
    bigbird,
    documents,
    full,
    global_tokens,
    local_window,
    random_blocks,
    strided,
)
from sparse_core.attention.combine import per_sequence
from sparse_core.attention.description import PatternDescription
from sparse_core.attention.distance import from_distance
from sparse_core.attention.from_mask import from_block_mask, from_token_mask
from sparse_core.attention.gathered import gathered_attention
from sparse_core.attention.modules import (
    DynamicBlocks,
    FeedForward,
    LearnedBlocks,
    PatternCache,
    Selector,
    SparseAttention,
    SparseMultiheadAttention,
    SparseTransformer,
    SparseTransformerLayer,
    TopKBlocks,
)
from sparse_core.attention.operands import AttentionImpl, AttentionResult
from sparse_core.attention.pattern import BlockPattern
from sparse_core.attention.pruning import (
    AttentionPruner,
    BlockImportance,
    DensitySchedule,
    LayerPruning,
    LinearDensity,
    PrunableAttention,
    PruningReport,
    block_importance,
    patterns_from_importance,
)
from sparse_core.attention.scores import ScoreFunction, alibi, relative_positions, soft_cap
from sparse_core.attention.selection import dynamic_blocks, top_k_blocks

__all__ = [
    "AttentionImpl",
    "AttentionPruner",
    "AttentionResult",
    "BlockImportance",
    "BlockPattern",
    "DensitySchedule",
    "DynamicBlocks",
    "FeedForward",
    "LayerPruning",
    "LearnedBlocks",
    "LinearDensity",
    "PatternCache",
    "PatternDescription",
    "PrunableAttention",
    "PruningReport",
    "ScoreFunction",
    "Selector",
    "SparseAttention",
    "SparseMultiheadAttention",
    "SparseTransformer",
    "SparseTransformerLayer",
    "TopKBlocks",
    "alibi",
    "bigbird",
    "block_importance",
    "documents",
    "dynamic_blocks",
    "from_block_mask",
    "from_distance",
    "from_token_mask",
    "full",
    "gathered_attention",
    "global_tokens",
    "local_window",
    "patterns_from_importance",
    "per_sequence",
    "random_blocks",
    "relative_positions",
    "soft_cap",
    "sparse_attention",
    "strided",
    "top_k_blocks",
]
