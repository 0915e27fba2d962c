"""Attention and Transformer layers as ``nn.Module``, over fixed, selected or learned patterns."""

from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.feed_forward import FeedForward
from sparse_core.attention.modules.layer import SparseTransformerLayer
from sparse_core.attention.modules.learned import LearnedBlocks
from sparse_core.attention.modules.multihead import SparseMultiheadAttention
from sparse_core.attention.modules.selectors import DynamicBlocks, Selector, TopKBlocks
from sparse_core.attention.modules.sources import PatternCache
from sparse_core.attention.modules.transformer import SparseTransformer

__all__ = [
    "DynamicBlocks",
    "FeedForward",
    "LearnedBlocks",
    "PatternCache",
    "Selector",
    "SparseAttention",
    "SparseMultiheadAttention",
    "SparseTransformer",
    "SparseTransformerLayer",
    "TopKBlocks",
]
