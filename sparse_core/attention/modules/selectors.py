"""Patterns chosen from the queries and keys of each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import zero_padding
from sparse_core.attention.operands import check_share
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.selection import dynamic_blocks, top_k_blocks


@runtime_checkable
class Selector(Protocol):
    """Protocol of objects that choose a pattern from the queries and keys of a call."""

    def select(
        self, q: Tensor, k: Tensor, *, query_lengths: Tensor | None = None, key_lengths: Tensor | None = None
    ) -> BlockPattern:
        """Return the pattern for these operands; it has no gradient.

        Args:
            q: (batch, heads, query_length, dim) floating.
            k: (batch, key_heads, key_length, dim).
            query_lengths, key_lengths: (batch,) int64, true lengths of sequences padded at the end.
        """
        ...


@dataclass(frozen=True)
class TopKBlocks:
    """Selection by :func:`sparse_core.attention.selection.top_k_blocks`; padding counts as zeros.

    Args:
        keep: share of the blocks that a row keeps, in (0, 1].
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query.

    Raises:
        ValueError: ``keep`` is outside its range. Other options are checked at the first call.
    """

    keep: float
    block_size: int = 64
    causal: bool = False

    def __post_init__(self) -> None:
        check_share("keep", self.keep)

    def select(
        self, q: Tensor, k: Tensor, *, query_lengths: Tensor | None = None, key_lengths: Tensor | None = None
    ) -> BlockPattern:
        """See :meth:`Selector.select`."""
        q, k = zero_padding(q.detach(), query_lengths), zero_padding(k.detach(), key_lengths)
        return top_k_blocks(q, k, self.keep, block_size=self.block_size, causal=self.causal)


@dataclass(frozen=True)
class DynamicBlocks:
    """Selection by :func:`sparse_core.attention.selection.dynamic_blocks`; padding counts as zeros.

    Each call waits for the device once.

    Args:
        mass: share of the probability to reach, in (0, 1].
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query.
        score_dtype: of the product of the means.

    Raises:
        ValueError: ``mass`` is outside its range. Other options are checked at the first call.
    """

    mass: float = 0.95
    block_size: int = 64
    causal: bool = False
    score_dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        check_share("mass", self.mass)

    def select(
        self, q: Tensor, k: Tensor, *, query_lengths: Tensor | None = None, key_lengths: Tensor | None = None
    ) -> BlockPattern:
        """See :meth:`Selector.select`."""
        q, k = zero_padding(q.detach(), query_lengths), zero_padding(k.detach(), key_lengths)
        return dynamic_blocks(
            q, k, mass=self.mass, block_size=self.block_size, causal=self.causal, score_dtype=self.score_dtype
        )
