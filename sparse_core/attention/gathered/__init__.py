"""Attention in which each query has its own list of keys."""

from sparse_core.attention.gathered.api import gathered_attention

__all__ = ["gathered_attention"]
