"""Block-sparse attention on a CPU: gather the keys that a tile of queries attends to.

A block of a scattered pattern, such as a radius in space, has many keys that none of its queries attends to.
They are skipped: keys are gathered token by token. Tiles with a similar number of keys share one call of
torch's ``scaled_dot_product_attention``, which holds no scores. That function multiplies masked values by 0,
which gives NaN for non-finite values, so non-finite operands and gradients take masked products instead.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from sparse_core.attention.masked_arithmetic import (
    all_finite,
    masked_scores,
    masked_softmax,
    run_chunk,
    take,
    weighted_sum,
)
from sparse_core.attention.operands import (
    AttentionOptions,
    AttentionResult,
    AttentionShape,
    arithmetic_dtype,
)
from sparse_core.attention.patterns.pattern import BlockPattern

#: Queries of a tile if a pattern has masks: small tiles share more keys, large ones read keys less often.
_TILE = 32
#: Gathered numbers per chunk, so that a cache holds them, and the most that are kept for the backward pass.
_GATHERED, _KEPT = 1 << 18, 1 << 25
#: The number of keys of a tile is rounded up to 1/8 of the power of two below, so that few calls are needed.
_ROUNDING = 8
#: Eight bytes of True.
_ALL = 0x0101010101010101


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute attention for checked operands and options, in float32 (float64 for float64).

    ``lse`` takes another pass over the scores; it is NaN unless the options want it.
    """
    dtype, scale, wants_lse = arithmetic_dtype(q.dtype), options.scale, options.wants_lse
    with torch.autocast("cpu", enabled=False):
        if pattern.heads == 1:
            parts = [
                _attend_heads(q.to(dtype), k.to(dtype), v.to(dtype), _plan_for(pattern, 0), scale, wants_lse)
            ]
        else:
            of_heads = ((head, head // shape.group) for head in range(shape.heads))
            parts = [
                _attend_heads(
                    q[:, [head]].to(dtype),
                    k[:, [key_head]].to(dtype),
                    v[:, [key_head]].to(dtype),
                    _plan_for(pattern, head),
                    scale,
                    wants_lse,
                )
                for head, key_head in of_heads
            ]
        out = torch.cat([part.out for part in parts], dim=1) if len(parts) > 1 else parts[0].out
        if not wants_lse:
            return AttentionResult(out.to(q.dtype), out.new_full((), math.nan).expand(out.shape[:3]))
        return AttentionResult(out.to(q.dtype), torch.cat([part.lse for part in parts], dim=1))


class _Tiles(NamedTuple):
    """Tiles with a similar number of keys.

    Attributes:
        tile: (n,) int64.
        key: (n, keys) int64, tokens.
        allowed: (n, 1, rows, keys) bool, or ``None`` for all.
    """

    tile: Tensor
    key: Tensor
    allowed: Tensor | None


class _TilePlan(NamedTuple):
    """Tiles of one head of a pattern.

    Attributes:
        rows: queries per tile.
        tiles: number of all tiles.
        groups: tiles with keys.
        place: (tiles,) position in the concatenated groups; one past the end for tiles without keys.
    """

    rows: int
    tiles: int
    groups: list[_Tiles]
    place: Tensor


def _attend_heads(
    q: Tensor, k: Tensor, v: Tensor, plan: _TilePlan, scale: float, wants_lse: bool
) -> AttentionResult:
    """Compute attention of heads that share one pattern."""
    batch, heads, length, dim = q.shape
    group = heads // k.shape[1]
    # Tokens first, so that a key is gathered for all heads at once.
    if group > 1:
        k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (k, v))
    leading = batch * heads
    by_token = [tensor.permute(2, 0, 1, 3).reshape(1, tensor.shape[2], leading, dim) for tensor in (q, k, v)]
    padding = plan.tiles * plan.rows - length
    queries = functional.pad(by_token[0], (0, 0, 0, 0, 0, padding))
    queries = queries.reshape(1, plan.tiles, plan.rows * leading, dim)
    size = sum(tiles.key.numel() for tiles in plan.groups) * leading * dim
    finite = all_finite(q, k, v)
    outs, lses = [], []
    for tiles in plan.groups:
        chunk = max(1, _GATHERED // max(1, tiles.key.shape[1] * leading * dim))
        for start in range(0, len(tiles.tile), chunk):
            part = _Tiles(*(None if one is None else one[start : start + chunk] for one in tiles))  # type: ignore[arg-type]
            out, lse = run_chunk(
                _attend,
                queries,
                by_token[1],
                by_token[2],
                part,
                plan.rows,
                scale,
                wants_lse,
                None if finite else length,
                recompute=size > _KEPT,
            )
            outs.append(out)
            lses.append(lse)
    # Output of tiles without keys. The empty sums connect it to the operands, with zero gradients.
    zero = sum(tensor[:, :0].sum() for tensor in by_token)
    outs.append(q.new_zeros(1, leading, plan.rows, dim) + zero)
    out = _join_tiles(outs, plan)[:, :length].reshape(batch, heads, length, dim)
    if not wants_lse:
        return AttentionResult(out, out)
    lses.append(q.new_full((1, leading, plan.rows, 1), -math.inf))
    return AttentionResult(out, _join_tiles(lses, plan)[:, :length].reshape(batch, heads, length))


def _join_tiles(parts: list[Tensor], plan: _TilePlan) -> Tensor:
    """Reorder (tiles, leading, rows, n) of all groups to (leading, tiles * rows, n)."""
    joined = torch.cat(parts)[None].flatten(2)
    leading, rows, last = parts[-1].shape[1:]
    ordered = take(joined, plan.place).reshape(plan.tiles, leading, rows, last)
    return ordered.transpose(0, 1).reshape(leading, plan.tiles * rows, last)


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    tiles: _Tiles,
    rows: int,
    scale: float,
    wants_lse: bool,
    guarded: int | None,
) -> tuple[Tensor, Tensor]:
    """Return out (n, leading, rows, dim) and lse (n, leading, rows, 1) of some tiles.

    ``guarded``: None if all operands are finite, else the number of queries.
    """
    count, width = tiles.key.shape
    leading, dim = keys.shape[2:]
    q = take(queries, tiles.tile).reshape(count, rows, leading, dim).transpose(1, 2)
    index = tiles.key.flatten()
    k, v = (
        take(table, index).reshape(count, width, leading, dim).transpose(1, 2) for table in (keys, values)
    )
    if guarded is not None:
        # Padding rows of the last tile attend to nothing.
        exists = tiles.tile[:, None] * rows + torch.arange(rows) < guarded
        allowed = exists[:, None, :, None].expand(count, 1, rows, width)
        allowed = allowed if tiles.allowed is None else allowed & tiles.allowed
        weights, total, lse = masked_softmax(masked_scores(q, k, allowed) * scale, allowed)
        return weighted_sum(weights, v, allowed) / total, lse[..., None]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=tiles.allowed, scale=scale)
    if tiles.allowed is not None and torch.is_grad_enabled():
        out = _FiniteGradients.apply(out, q, k, v, tiles.allowed, scale)
    if not wants_lse:
        return out, out
    scores = masked_scores(q, k, tiles.allowed) * scale
    return out, masked_softmax(scores, tiles.allowed).lse[..., None]


class _FiniteGradients(torch.autograd.Function):
    """Identity whose backward pass keeps non-finite gradients out of torch's attention."""

    generate_vmap_rule = True

    @staticmethod
    def forward(out: Tensor, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *tensors, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if all_finite(gradient):
            return gradient, *[None] * 5
        q, k, v, allowed = ctx.saved_tensors
        weights, total, _ = masked_softmax(masked_scores(q, k, allowed) * ctx.scale, allowed)
        shares = (weights / total).masked_fill(~allowed, 0.0)
        shift = (weighted_sum(shares, v, allowed) * gradient).sum(dim=-1, keepdim=True)
        change = shares * (masked_scores(gradient, v, allowed) - shift) * ctx.scale
        change = change.masked_fill(~allowed, 0.0)
        of_q = weighted_sum(change, k, allowed)
        of_k = weighted_sum(change.mT, q, allowed.mT)
        of_v = weighted_sum(shares.mT, gradient, allowed.mT)
        return torch.zeros_like(gradient), of_q, of_k, of_v, None, None


def _plan_for(pattern: BlockPattern, head: int) -> _TilePlan:
    """Return the plan for a head of the pattern; make it at the first call."""
    plan = pattern.plans.get(("cpu", head))
    if not isinstance(plan, _TilePlan):
        # Tensors made in inference mode cannot take part in autograd later.
        with torch.inference_mode(False), torch.no_grad():
            plan = pattern.plans["cpu", head] = _make_plan(pattern, head)
    return plan


def _make_plan(pattern: BlockPattern, head: int) -> _TilePlan:
    size = pattern.block_size
    rows = _TILE if len(pattern.token_masks) and size % _TILE == 0 else size
    parts, tiles = size // rows, pattern.block_rows * (size // rows)
    row_ptr = pattern.row_ptr[head].long()
    stored = slice(int(row_ptr[0]), int(row_ptr[-1]))
    column = pattern.columns[stored].long()
    row = torch.repeat_interleave(torch.arange(pattern.block_rows), row_ptr.diff())
    mask = pattern.partial[stored].long()
    # Masks ordered (mask, part, key, query of the tile).
    table = torch.cat([pattern.token_masks, pattern.token_masks.new_ones(1, size, size)]).transpose(1, 2)
    table = table.reshape(-1, size, parts, rows).transpose(1, 2).contiguous()
    # An int64 tests eight queries at once.
    used = table.view(torch.int64).any(dim=3)[mask]
    used &= (column[:, None] * size + torch.arange(size) < pattern.key_length)[:, None]
    block, part, place = used.nonzero().unbind(dim=1)
    tile = row[block] * parts + part
    if parts > 1:
        tile, order = torch.sort(tile, stable=True)
        block, part, place = block[order], part[order], place[order]
    key = column[block] * size + place
    entry = (mask[block] % len(table) * parts + part) * size + place
    return _group_tiles(rows, tiles, tile, key, table.reshape(-1, rows), entry)


def _group_tiles(rows: int, tiles: int, tile: Tensor, key: Tensor, bits: Tensor, entry: Tensor) -> _TilePlan:
    """Group tiles with a similar number of keys.

    Args:
        tile, key: (pairs,), sorted by tile.
        bits: (entries, rows) bool, True where a query of a tile attends to a key.
        entry: (pairs,) rows of ``bits``.
    """
    counts = torch.bincount(tile, minlength=tiles)
    starts = counts.cumsum(0) - counts
    step = (2 ** counts.clamp(min=1).log2().floor().long() // _ROUNDING).clamp(min=_TILE)
    widths = -(-counts // step) * step
    groups, place, placed_tiles = [], torch.full((tiles,), -1), 0
    for width in widths.unique().tolist():
        if not width:
            continue
        members = (widths == width).nonzero()[:, 0]
        width = min(width, int(counts[members].max()))
        slot = torch.arange(width)
        exists = slot < counts[members, None]
        pair = (starts[members, None] + slot).clamp(max=len(key) - 1)
        allowed = bits[entry[pair]].masked_fill_(~exists[..., None], False)
        whole = bool((allowed.view(torch.int64) == _ALL).all())
        mask = None if whole else allowed.transpose(1, 2).contiguous()[:, None]
        groups.append(_Tiles(members, key[pair], mask))
        place[members] = torch.arange(placed_tiles, placed_tiles + len(members))
        placed_tiles += len(members)
    return _TilePlan(rows, tiles, groups, place.masked_fill(place < 0, placed_tiles))
