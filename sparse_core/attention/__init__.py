"""Block-sparse attention: patterns of blocks, and attention that computes only the blocks of a pattern."""

from sparse_core.attention.api import sparse_attention
from sparse_core.attention.gathered import gathered_attention
from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.feed_forward import FeedForward
from sparse_core.attention.modules.layer import SparseTransformerLayer
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.modules.multihead import SparseMultiheadAttention
from sparse_core.attention.modules.selectors import DynamicBlocks, Selector, TopKBlocks
from sparse_core.attention.modules.sources import PatternCache
from sparse_core.attention.modules.transformer import SparseTransformer
from sparse_core.attention.operands import AttentionImpl, AttentionResult
from sparse_core.attention.patterns.builders import (
    bigbird,
    documents,
    full,
    global_tokens,
    local_window,
    per_sequence,
    random_blocks,
    strided,
)
from sparse_core.attention.patterns.description import PatternDescription
from sparse_core.attention.patterns.distance import from_distance
from sparse_core.attention.patterns.masks import from_block_mask, from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction, alibi, relative_positions, soft_cap
from sparse_core.attention.selection import dynamic_blocks, top_k_blocks

__all__ = [
    "AttentionImpl",
    "AttentionResult",
    "BlockPattern",
    "DynamicBlocks",
    "FeedForward",
    "LearnedBlocks",
    "PatternCache",
    "PatternDescription",
    "ScoreFunction",
    "Selector",
    "SparseAttention",
    "SparseMultiheadAttention",
    "SparseTransformer",
    "SparseTransformerLayer",
    "TopKBlocks",
    "alibi",
    "bigbird",
    "documents",
    "dynamic_blocks",
    "from_block_mask",
    "from_distance",
    "from_token_mask",
    "full",
    "gathered_attention",
    "global_tokens",
    "local_window",
    "per_sequence",
    "random_blocks",
    "relative_positions",
    "soft_cap",
    "sparse_attention",
    "strided",
    "top_k_blocks",
]
