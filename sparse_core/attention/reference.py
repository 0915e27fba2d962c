"""Block-sparse attention in plain torch: only the blocks of the pattern are computed, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.dropout import drawn_seed, kept_weights, row_states
from sparse_core.attention.masked_arithmetic import (
    CHUNK_SCORES,
    KEPT_SCORES,
    masked_scores,
    masked_softmax,
    run_chunk,
    take,
    weighted_sum,
    zero_padding,
)
from sparse_core.attention.operands import (
    AttentionOptions,
    AttentionResult,
    AttentionShape,
    arithmetic_dtype,
)
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute attention for checked operands and options.

    Arithmetic is float32 (float64 for float64). Block rows with equally many blocks are computed together,
    in chunks of bounded memory. For many scores, the backward pass recomputes each chunk.

    On a GPU the first call with a pattern waits for the device, to make an index that stays on the pattern.
    ``lse`` ignores dropout. Padding may hold any value: NaN and infinities reach only rows that attend to
    them. A causal pattern stays aligned at the padded ends.
    """
    queries, keys, seed = options.query_lengths, options.key_lengths, options.seed
    if options.dropout_p and seed is None:
        seed = drawn_seed()
    with torch.autocast(q.device.type, enabled=False):
        layout = _Layout(shape, pattern)
        dtype = arithmetic_dtype(q.dtype)
        operands = _BlockOperands(
            q=layout.query_blocks(zero_padding(q, queries).to(dtype) * options.scale),
            k=layout.key_blocks(zero_padding(k, keys).to(dtype)),
            v=layout.key_blocks(zero_padding(v, keys).to(dtype)),
            query_lengths=None if queries is None else layout.per_sequence(queries),
            key_lengths=None if keys is None else layout.per_sequence(keys),
            states=layout.row_states(seed, q.device) if options.dropout_p and seed is not None else None,
            dropout_p=options.dropout_p,
            score_mod=options.score_mod,
        )
        out, lse = _attend(operands, pattern, layout)
        return AttentionResult(out.to(q.dtype), lse)


class _BlockOperands(NamedTuple):
    """Operands of a chunk, in the order of :class:`_Layout`."""

    q: Tensor  # (leading, query units, rows, dim), times the scale
    k: Tensor  # (leading, key units, block size, dim)
    v: Tensor
    query_lengths: Tensor | None  # (leading,)
    key_lengths: Tensor | None
    states: Tensor | None  # (leading, query units, rows, 2)
    dropout_p: float
    score_mod: ScoreFunction | None


class _Layout:
    """Order of heads and block rows for batched products.

    With a shared pattern, a unit is a block row that stacks the heads of one key head. With a pattern per
    head, a unit is a block row of one head.
    """

    def __init__(self, shape: AttentionShape, pattern: BlockPattern) -> None:
        self.shape = shape
        self.size = pattern.block_size
        self.block_rows, self.block_columns = pattern.block_rows, pattern.block_columns
        self.shared = pattern.heads == 1 and shape.heads > 1
        #: Heads that a unit stacks.
        self.stacked = shape.group if self.shared else 1
        self.leading = shape.batch * (shape.key_heads if self.shared else 1)

    def query_blocks(self, rows: Tensor) -> Tensor:
        """(batch, heads, query_length, n) to (leading, units, stacked * block size, n)."""
        shape = self.shape
        rows = torch.nn.functional.pad(rows, (0, 0, 0, self.block_rows * self.size - shape.query_length))
        if not self.shared:
            return rows.reshape(shape.batch, shape.heads * self.block_rows, self.size, rows.shape[-1])
        split = rows.reshape(self.leading, shape.group, self.block_rows, self.size, rows.shape[-1])
        return split.transpose(1, 2).reshape(
            self.leading, self.block_rows, shape.group * self.size, rows.shape[-1]
        )

    def from_query_blocks(self, blocks: Tensor) -> Tensor:
        """Undo :meth:`query_blocks`."""
        shape, last = self.shape, blocks.shape[-1]
        if self.shared:
            split = blocks.reshape(self.leading, self.block_rows, shape.group, self.size, last)
            blocks = split.transpose(1, 2)
        rows = blocks.reshape(shape.batch, shape.heads, self.block_rows * self.size, last)
        return rows[:, :, : shape.query_length]

    def key_blocks(self, rows: Tensor) -> Tensor:
        """(batch, key_heads, key_length, n) to (leading, units, block size, n)."""
        padding = self.block_columns * self.size - self.shape.key_length
        rows = torch.nn.functional.pad(rows, (0, 0, 0, padding))
        units = self.block_columns * (1 if self.shared else self.shape.key_heads)
        return rows.reshape(self.leading, units, self.size, rows.shape[-1])

    def key_units(self, unit: Tensor, column: Tensor) -> Tensor:
        """Return the units of the key blocks ``column`` (n, blocks) that query units (n,) read."""
        if self.shared:
            return column
        key_head = unit // self.block_rows // self.shape.group
        return key_head[:, None] * self.block_columns + column

    def apply_score_mod(self, scores: Tensor, score_mod: ScoreFunction, unit: Tensor, keys: Tensor) -> Tensor:
        """Apply ``score_mod`` to scores (leading, n, rows, keys) of units (n,).

        Padding counts as the last query or key; its scores are not used.
        """
        shape, device = self.shape, scores.device
        leading = torch.arange(self.leading, device=device)[:, None, None, None]
        row = torch.arange(scores.shape[2], device=device)[:, None]
        block_row = unit % self.block_rows
        if self.shared:
            batch = leading // shape.key_heads
            head = leading % shape.key_heads * shape.group + row // self.size
        else:
            batch, head = leading, (unit // self.block_rows)[:, None, None]
        query = block_row[:, None, None] * self.size + row % self.size
        return score_mod(
            scores,
            batch,
            head,
            query.clamp(max=shape.query_length - 1),
            keys[:, None, :].clamp(max=shape.key_length - 1),
        )

    def per_sequence(self, lengths: Tensor) -> Tensor:
        """Repeat lengths (batch,) to (leading,)."""
        return lengths.repeat_interleave(self.leading // max(1, self.shape.batch))

    def row_states(self, seed: int, device: torch.device) -> Tensor:
        """Return dropout's words for every query, in the order of :meth:`query_blocks`."""
        shape = self.shape
        return self.query_blocks(row_states(seed, shape.batch, shape.heads, shape.query_length, device))


class _BlockRows(NamedTuple):
    """Block rows with equally many blocks; all int64."""

    unit: Tensor  # (n,)
    column: Tensor  # (n, blocks)
    mask: Tensor  # (n, blocks) index into the plan's masks

    def split(self, length: int) -> Iterator[_BlockRows]:
        parts = (tensor.split(length) for tensor in self)
        return (_BlockRows(*part) for part in zip(*parts, strict=True))


class _BlockRowPlan(NamedTuple):
    """Index of a pattern, made once."""

    groups: list[_BlockRows]
    place: Tensor  # (units,) position of a unit in the concatenated groups
    masks: Tensor | None  # masks of the pattern, then a full one; None without partial blocks


def _plan_for(pattern: BlockPattern, heads: int) -> _BlockRowPlan:
    """Return the plan for ``heads`` of the pattern; make it at the first call."""
    plan = pattern.plans.get(("reference", heads))
    if not isinstance(plan, _BlockRowPlan):
        # Tensors made in inference mode cannot take part in autograd later.
        with torch.inference_mode(False), torch.no_grad():
            plan = pattern.plans["reference", heads] = _make_plan(pattern, heads)
    return plan


def _make_plan(pattern: BlockPattern, heads: int) -> _BlockRowPlan:
    row_ptr, count = pattern.row_ptr.long(), len(pattern.token_masks)
    first = row_ptr[:, :-1].expand(heads, -1).flatten()
    lengths, units = torch.sort((row_ptr[:, 1:] - row_ptr[:, :-1]).expand(heads, -1).flatten(), stable=True)
    distinct, rows = (found.tolist() for found in torch.unique_consecutive(lengths, return_counts=True))
    groups = []
    for blocks, unit in zip(distinct, units.split(rows), strict=True):
        entry = first[unit][:, None] + torch.arange(blocks, device=pattern.device)
        mask = pattern.partial[entry].long()
        groups.append(_BlockRows(unit, pattern.columns[entry].long(), torch.where(mask < 0, count, mask)))
    full = torch.ones_like(pattern.token_masks[:1])
    masks = torch.cat([pattern.token_masks, full]) if count else None
    return _BlockRowPlan(groups, torch.argsort(units), masks)


def _attend(operands: _BlockOperands, pattern: BlockPattern, layout: _Layout) -> tuple[Tensor, Tensor]:
    """Return out (batch, heads, query_length, dim) and lse of all units."""
    plan = _plan_for(pattern, 1 if layout.shared else layout.shape.heads)
    block_scores = layout.leading * layout.stacked * layout.size**2
    recompute = sum(rows.column.numel() for rows in plan.groups) * block_scores > KEPT_SCORES
    chunk_scores = CHUNK_SCORES["cuda" if operands.q.is_cuda else "cpu"]
    outs, lses = [], []
    for group in plan.groups:
        length = max(1, chunk_scores // max(1, block_scores * group.column.shape[1]))
        for rows in group.split(length):
            out, lse = run_chunk(_attend_rows, operands, rows, plan.masks, layout, recompute=recompute)
            outs.append(out)
            lses.append(lse[..., None])
    # Each unit occurs once, so these gradients have no sums whose order could matter.
    out, lse = (torch.cat(parts, dim=1).index_select(1, plan.place) for parts in (outs, lses))
    return layout.from_query_blocks(out), layout.from_query_blocks(lse).squeeze(-1)


def _attend_rows(
    operands: _BlockOperands, rows: _BlockRows, masks: Tensor | None, layout: _Layout
) -> tuple[Tensor, Tensor]:
    """Return out (leading, n, rows, dim) and lse (leading, n, rows) of some units."""
    units, blocks = rows.column.shape
    index = layout.key_units(rows.unit, rows.column).flatten()
    shape = (layout.leading, units, blocks * layout.size, layout.shape.dim)
    k, v = (take(table, index).reshape(shape) for table in (operands.k, operands.v))
    place = torch.arange(layout.size, device=k.device)
    keys = (rows.column[..., None] * layout.size + place).flatten(1)
    allowed = _mask_for(operands, rows, keys, masks, layout)
    scores = masked_scores(take(operands.q, rows.unit), k, allowed)
    if operands.score_mod is not None:
        scores = layout.apply_score_mod(scores, operands.score_mod, rows.unit, keys)
    weights, total, lse = masked_softmax(scores, allowed)
    if operands.states is not None:
        kept = kept_weights(take(operands.states, rows.unit), keys[:, None, :], operands.dropout_p)
        weights, total = weights * kept, total * (1.0 - operands.dropout_p)
    return weighted_sum(weights, v, allowed) / total, lse


def _mask_for(
    operands: _BlockOperands, rows: _BlockRows, keys: Tensor, masks: Tensor | None, layout: _Layout
) -> Tensor | None:
    """Return a bool mask that broadcasts to the scores (leading, n, rows, keys); None allows all."""
    allowed = None
    if masks is not None:
        tokens = masks[rows.mask].transpose(1, 2).flatten(2)
        allowed = tokens.repeat(1, layout.stacked, 1)
    if layout.shape.key_length % layout.size:
        exists = (keys < layout.shape.key_length)[:, None, :]
        allowed = exists if allowed is None else allowed & exists
    if operands.key_lengths is not None:
        exists = keys[:, None, :] < operands.key_lengths[:, None, None, None]
        allowed = exists if allowed is None else allowed & exists
    if operands.query_lengths is not None or layout.shape.query_length % layout.size:
        # Padding rows of the last block attend to nothing.
        row = torch.arange(layout.stacked * layout.size, device=keys.device) % layout.size
        query = ((rows.unit % layout.block_rows)[:, None] * layout.size + row)[..., None]
        exists = query < layout.shape.query_length
        if operands.query_lengths is not None:
            exists = query < operands.query_lengths[:, None, None, None]
        allowed = exists if allowed is None else allowed & exists
    return allowed
