"""Block-sparse attention: which queries attend to which keys, and attention that computes only that."""

from sparse_core.attention.api import sparse_attention
from sparse_core.attention.builders import (
    bigbird,
    full,
    global_tokens,
    local_window,
    random_blocks,
    strided,
)
from sparse_core.attention.describe import PatternDescription
from sparse_core.attention.distance import from_distance
from sparse_core.attention.gathered import gathered_attention
from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.pattern import BlockPattern, from_block_mask, from_token_mask
from sparse_core.attention.selection import dynamic_blocks, top_k_blocks

__all__ = [
    "AttentionResult",
    "BlockPattern",
    "PatternDescription",
    "bigbird",
    "dynamic_blocks",
    "from_block_mask",
    "from_distance",
    "from_token_mask",
    "full",
    "gathered_attention",
    "global_tokens",
    "local_window",
    "random_blocks",
    "sparse_attention",
    "strided",
    "top_k_blocks",
]
