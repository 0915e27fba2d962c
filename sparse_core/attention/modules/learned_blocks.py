"""Blocks chosen by a small learned gate.

The gate is that of Gao et al., "SeerAttention: Learning Intrinsic Sparse Attention in Your LLMs" (2024). It
pools queries and keys to one vector per block and maps each linearly, per head; the products are the scores
of the blocks. The gate learns from the attention probabilities while the model stays fixed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sparse_core.attention.best_blocks import best_blocks, blocks_seen
from sparse_core.attention.modules.block_probabilities import TokenBlocks, block_probabilities
from sparse_core.attention.operands import (
    arithmetic_dtype,
    check_queries_and_keys,
    check_ragged,
    check_share,
    default_scale,
)
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern


class LearnedBlocks(nn.Module):
    """Score blocks with learned projections of pooled queries and keys, and keep the best of each row.

    A block of queries is pooled to its mean, a block of keys to its mean, maximum and minimum. Before
    training only the means count, as in :func:`sparse_core.attention.selection.top_k_blocks`.

    The selection has no gradient: a task loss does not train the gate, and the gate does not change queries
    and keys. The gate learns only by :meth:`gate_loss`.

    Args:
        heads: query heads, each with its own map.
        dim: of a head.
        keep: share of the blocks that a row keeps, in (0, 1].
        key_heads: heads of the keys, each for heads / key_heads neighbouring heads; ``heads`` by default.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query; blocks on the diagonal are then always kept.
        device, dtype: of the parameters.

    Attributes:
        query_weight: (heads, dim, dim), from pooled queries to the gate's.
        key_weight: (key_heads, 3 * dim, dim), from means, maxima and minima of keys.
        keep: may be changed at any time.

    Raises:
        ValueError: sizes or ``keep`` do not match.
    """

    def __init__(
        self,
        heads: int,
        dim: int,
        keep: float,
        *,
        key_heads: int | None = None,
        block_size: int = 64,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        if heads < 1 or key_heads < 1 or dim < 1 or heads % key_heads:
            raise ValueError(
                f"heads, key_heads and dim must be at least 1 and heads a multiple of key_heads,"
                f" got {heads}, {key_heads} and {dim}"
            )
        check_share("keep", keep)
        BlockGrid(heads, 1, 1, block_size).check()
        self.heads, self.key_heads, self.dim = heads, key_heads, dim
        self.keep, self.block_size, self.causal = keep, block_size, causal
        self.query_weight = nn.Parameter(torch.empty(heads, dim, dim, device=device, dtype=dtype))
        self.key_weight = nn.Parameter(torch.empty(key_heads, 3 * dim, dim, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset the weights, so that scores depend on the means only."""
        identity = torch.eye(self.dim, dtype=self.query_weight.dtype, device=self.query_weight.device)
        self.query_weight.copy_(identity.expand_as(self.query_weight))
        self.key_weight.zero_()
        self.key_weight[:, : self.dim] = identity

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        *,
        scale: float | None = None,
        query_lengths: Tensor | None = None,
        key_lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the gate's scores; their softmax over a row estimates the attention of each block.

        Scores include the log of the share of a block's tokens that exist. Gradients reach the gate's
        weights, not q and k.

        Args:
            q: (batch, heads, query_length, dim) floating.
            k: (batch, key_heads, key_length, dim).
            scale: of the scores; 1 / sqrt(dim) by default.
            query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.

        Returns:
            (batch, heads, block rows, block columns) float32 (float64 for float64), minus infinity where no
            query of the row may see a key of the column.

        Raises:
            TypeError: dtypes do not match.
            ValueError: shapes, heads, lengths or devices do not match.
        """
        grid = self._grid(q, k)
        queries = check_ragged(query_lengths, q.shape[0], q.shape[2], q.device, name="query_lengths")
        keys = check_ragged(key_lengths, k.shape[0], k.shape[2], k.device, name="key_lengths")
        dtype = arithmetic_dtype(q.dtype)
        query_blocks = TokenBlocks(q.detach(), queries, self.block_size, dtype)
        key_blocks = TokenBlocks(k.detach(), keys, self.block_size, dtype)
        with torch.autocast(q.device.type, enabled=False):
            key_features = torch.cat(
                [key_blocks.mean(), key_blocks.extreme(1), key_blocks.extreme(-1)], dim=-1
            )
            gate_q = query_blocks.mean() @ self.query_weight.to(dtype)
            gate_k = key_features @ self.key_weight.to(dtype)
            grouped = gate_q.unflatten(1, (self.key_heads, -1))
            products = grouped @ gate_k.unsqueeze(2).mT
        scores: Tensor = products.flatten(1, 2) * default_scale(scale, self.dim)
        exists = (key_blocks.count / self.block_size).log()[:, None, None, :].to(dtype)
        seen = blocks_seen(grid, self.causal, q.device) & (exists > -math.inf)
        return (scores + exists).masked_fill(~seen, -math.inf)

    @torch.no_grad()
    def select(
        self, q: Tensor, k: Tensor, *, query_lengths: Tensor | None = None, key_lengths: Tensor | None = None
    ) -> BlockPattern:
        """Keep the ``round(keep * blocks)`` blocks of each block row with the highest estimated probability.

        Probabilities are averaged over the batch. Ties keep the lower column, and the result is bitwise
        reproducible. Only the first call for new lengths waits for the device.

        Args:
            q, k, query_lengths, key_lengths: see :meth:`forward`.

        Returns:
            A pattern with ``heads`` heads.
        """
        if not q.shape[0]:
            raise ValueError(f"q must have at least one batch entry to select by, got shape {tuple(q.shape)}")
        scores = self(q, k, query_lengths=query_lengths, key_lengths=key_lengths)
        probability = torch.softmax(scores, dim=3).nan_to_num(0.0)
        grid = self._grid(q, k)
        if query_lengths is not None:
            rows = torch.arange(0, grid.query_length, self.block_size, device=q.device)
            exists = rows < query_lengths[:, None]
            probability = probability * exists[:, None, :, None]
        return best_blocks(probability.mean(dim=0), grid, self.keep, causal=self.causal)

    def gate_loss(
        self,
        q: Tensor,
        k: Tensor,
        *,
        scale: float | None = None,
        query_lengths: Tensor | None = None,
        key_lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the Kullback-Leibler divergence of the gate's softmax from the true block probabilities.

        The true probability is summed over the keys of a block and averaged over its queries: the loss from
        dropping the block. (Gao et al. take the normalised maximum over the block.) It costs as much as dense
        attention without the values, in chunks of bounded memory.

        Args:
            q, k, query_lengths, key_lengths: see :meth:`forward`.
            scale: of both scores; 1 / sqrt(dim) by default.

        Returns:
            () in nats, averaged over heads, batch entries and the block rows that have queries and keys.
        """
        truth = block_probabilities(
            q,
            k,
            block_size=self.block_size,
            causal=self.causal,
            scale=scale,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
        )
        scores = self(q, k, scale=scale, query_lengths=query_lengths, key_lengths=key_lengths)
        counted = truth.sum(dim=3) > 0
        unseen = scores == -math.inf
        # The softmax of a row that sees nothing would be NaN.
        scores = scores.masked_fill(unseen.all(dim=3, keepdim=True), 0.0)
        estimate = torch.log_softmax(scores, dim=3).masked_fill(unseen, 0.0)
        divergence = torch.nn.functional.kl_div(estimate, truth, reduction="none").sum(dim=3)
        return (divergence * counted).sum() / counted.sum().clamp(min=1)

    def extra_repr(self) -> str:
        """Return sizes and options for ``print(model)``."""
        return (
            f"heads={self.heads}, key_heads={self.key_heads}, dim={self.dim}, keep={self.keep},"
            f" block_size={self.block_size}, causal={self.causal}"
        )

    def _grid(self, q: Tensor, k: Tensor) -> BlockGrid:
        shape = check_queries_and_keys(q, k)
        found = (shape.heads, shape.key_heads, shape.dim)
        if found != (self.heads, self.key_heads, self.dim):
            raise ValueError(
                f"the gate is for (heads, key_heads, dim) {(self.heads, self.key_heads, self.dim)},"
                f" q and k have {found}"
            )
        grid = BlockGrid(shape.heads, shape.query_length, shape.key_length, self.block_size)
        grid.check()
        return grid
