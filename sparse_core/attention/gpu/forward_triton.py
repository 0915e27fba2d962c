"""Triton kernels of block-sparse attention, forward; :mod:`.gradients_triton` has those of gradients.

The softmax is kept online (Milakov & Gimelshein 2018; Dao et al. 2022) in base 2.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.attention.gpu.tiles_triton import (
    LOG2E,
    add_allowed,
    allowed_tokens,
    blocks_of,
    cut_row,
    end_of,
    first_of,
    head_of,
    kept,
    rows_of,
    spoiled,
    unit_of,
)

_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _step(
    q, k_base, v_base, stride_k, stride_v, first, within, dims, key_end, allowed,
    start_0, start_1, stream, queries, threshold, drop_scale, scale,
    largest, total, out,
    DIM: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr, CUT: tl.constexpr, SHIFTED: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys of the online softmax."""
    k = rows_of(k_base, stride_k, first, within, dims, key_end, DIM, EVEN, CUT, SHIFTED)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if MASKED:
        scores = tl.where(allowed, scores, float("-inf"))
    new = tl.maximum(largest, tl.max(scores, 1))
    safe = new
    if MASKED:
        safe = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores - safe[:, None])
    shrink = tl.exp2(largest - safe)
    total = total * shrink + tl.sum(weights, 1)
    if DROPOUT:
        keep = kept(start_0, start_1, stream, queries[:, None], (first + within)[None, :], threshold)
        weights = tl.where(keep, weights * drop_scale, 0.0)
    v = rows_of(v_base, stride_v, first, within, dims, key_end, DIM, EVEN, CUT, SHIFTED)
    out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None], input_precision=PRECISION)
    return new, total, out


@triton.jit(do_not_specialize=["start_0", "start_1", "threshold"])
def forward_kernel(
    q, k, v, out, lse,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    o_batch, o_head, o_row,
    row_ptr, full_end, columns, mask_index, masks, parts,
    part_out, part_lse, query_lengths, key_lengths,
    start_0, start_1, threshold, drop_scale, scale,
    query_length, key_length, heads, group, pattern_heads, block_rows,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    LISTED: tl.constexpr, UNMASKED: tl.constexpr, RAGGED_QUERIES: tl.constexpr, RAGGED_KEYS: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Out and lse of ``ROWS`` queries; ``scale`` is that of the scores times log2(e)."""
    TILES: tl.constexpr = BLOCK // ROWS
    STEPS: tl.constexpr = BLOCK // KEYS
    EVEN: tl.constexpr = DIM == WIDE
    SHIFTED: tl.constexpr = UNMASKED and WIDE <= 64
    unit, part_begin, part_end, slot = unit_of(parts, tl.program_id(0) // TILES, LISTED)
    tile = tl.program_id(0) % TILES
    head_index = unit // block_rows
    block_row = unit % block_rows
    batch = head_index // heads
    head = head_index % heads
    pattern_row = (head % pattern_heads) * block_rows + block_row
    begin, middle, end, _passed = blocks_of(row_ptr, full_end, pattern_row, 0, part_begin, part_end, LISTED)
    query_end = end_of(query_lengths, batch, query_length, RAGGED_QUERIES)
    key_end = end_of(key_lengths, batch, key_length, RAGGED_KEYS)
    inner = tile * ROWS + tl.arange(0, ROWS)
    queries = block_row * BLOCK + inner
    dims = tl.arange(0, WIDE)
    within = tl.arange(0, KEYS)
    q_base = head_of(q, batch, q_batch, head, q_head)
    k_base = head_of(k, batch, k_batch, head // group, k_head)
    v_base = head_of(v, batch, v_batch, head // group, v_head)
    q_tile = rows_of(q_base, q_row, block_row * BLOCK, inner, dims, query_end, DIM, EVEN, True)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for entry in tl.range(begin * STEPS, middle * STEPS, num_stages=STAGES):
        first = first_of(columns, entry, BLOCK, KEYS)
        largest, total, found = _step(
            q_tile, k_base, v_base, k_row, v_row, first, within, dims, key_end,
            (first + within < key_end)[None, :],
            start_0, start_1, head_index, queries, threshold, drop_scale, scale,
            largest, total, found, DIM, EVEN, RAGGED_KEYS, RAGGED_KEYS, SHIFTED, DROPOUT, PRECISION,
        )  # fmt: skip
    if not UNMASKED:
        for entry in tl.range(middle * STEPS, end * STEPS):
            first = first_of(columns, entry, BLOCK, KEYS)
            allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, KEYS, False)
            largest, total, found = _step(
                q_tile, k_base, v_base, k_row, v_row, first, within, dims, key_end,
                allowed & (first + within < key_end)[None, :],
                start_0, start_1, head_index, queries, threshold, drop_scale, scale,
                largest, total, found, DIM, EVEN, True, True, False, DROPOUT, PRECISION,
            )  # fmt: skip
        # Masked values that are not finite have spoiled the tile: compute it again without them.
        if (middle < end) & (spoiled(found) > 0):
            found = tl.zeros((ROWS, WIDE), tl.float32)
            safe = tl.where(largest == float("-inf"), 0.0, largest)
            for entry in tl.range(begin * STEPS, end * STEPS, num_stages=1):
                first = first_of(columns, entry, BLOCK, KEYS)
                keys = first + within
                allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, KEYS, True)
                allowed &= (keys < key_end)[None, :]
                k_tile = rows_of(k_base, k_row, first, within, dims, key_end, DIM, EVEN, True)
                scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * scale
                weights = tl.exp2(scores - safe[:, None])
                if DROPOUT:
                    keep = kept(start_0, start_1, head_index, queries[:, None], keys[None, :], threshold)
                    weights = tl.where(keep, weights * drop_scale, 0.0)
                found = add_allowed(found, weights, allowed, v_base, v_row, first, dims, key_end, DIM, KEYS)
    empty = total == 0.0
    # A total that is not a number stays so.
    found = found / tl.where(empty, 1.0, total)[:, None]
    lse_value = tl.where(empty, float("-inf"), (largest + tl.log2(tl.where(empty, 1.0, total))) * _LN2)
    if slot >= 0:
        place = slot.to(tl.int64) * BLOCK + inner
        inside = (inner < BLOCK)[:, None] & (dims < DIM)[None, :]
        tl.store(part_out + place[:, None] * DIM + dims[None, :], found, mask=inside)
        tl.store(part_lse + place, lse_value)
    else:
        if RAGGED_QUERIES:
            found = tl.where((queries < query_end)[:, None], found, 0.0)
            lse_value = tl.where(queries < query_end, lse_value, float("-inf"))
        o_base = head_of(out, batch, o_batch, head, o_head)
        inside = (queries < query_length)[:, None] & (dims < DIM)[None, :]
        offsets = queries.to(tl.int64)[:, None] * o_row + dims[None, :]
        tl.store(o_base + offsets, found.to(out.dtype.element_ty), mask=inside)
        tl.store(
            lse + head_index.to(tl.int64) * query_length + queries, lse_value, mask=queries < query_length
        )


@triton.jit
def join_kernel(
    part_out, part_lse, joins, out, lse,
    o_batch, o_head, o_row, query_lengths, query_length, heads, block_rows,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    RAGGED_QUERIES: tl.constexpr,
):  # fmt: skip
    """Join the pieces of a block row that was cut, in their order."""
    unit, slot, count, inner = cut_row(joins, BLOCK, ROWS)
    head_index = unit // block_rows
    batch = head_index // heads
    queries = (unit % block_rows) * BLOCK + inner
    dims = tl.arange(0, WIDE)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for piece in range(count):
        place = (slot + piece).to(tl.int64) * BLOCK + inner
        value = tl.load(part_lse + place) * LOG2E
        part = tl.load(part_out + place[:, None] * DIM + dims[None, :], mask=(dims < DIM)[None, :], other=0.0)
        new = tl.maximum(largest, value)
        safe = tl.where(new == float("-inf"), 0.0, new)
        shrink = tl.exp2(largest - safe)
        weight = tl.exp2(value - safe)
        total = total * shrink + weight
        found = found * shrink[:, None] + part * weight[:, None]
        largest = new
    empty = total == 0.0
    found = found / tl.where(empty, 1.0, total)[:, None]
    lse_value = tl.where(empty, float("-inf"), (largest + tl.log2(tl.where(empty, 1.0, total))) * _LN2)
    if RAGGED_QUERIES:
        query_end = tl.load(query_lengths + batch).to(tl.int32)
        found = tl.where((queries < query_end)[:, None], found, 0.0)
        lse_value = tl.where(queries < query_end, lse_value, float("-inf"))
    o_base = head_of(out, batch, o_batch, head_index % heads, o_head)
    inside = (queries < query_length)[:, None] & (dims < DIM)[None, :]
    offsets = queries.to(tl.int64)[:, None] * o_row + dims[None, :]
    tl.store(o_base + offsets, found.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + head_index.to(tl.int64) * query_length + queries, lse_value, mask=queries < query_length)
