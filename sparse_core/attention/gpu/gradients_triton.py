"""Triton kernels of block-sparse attention: the gradients of queries, and of keys and values.

Two passes, by rows and by columns, need no atomics, so results are bitwise reproducible. Probabilities are
recomputed from the log-sum-exp. As in the forward pass, a masked tile whose gradient is NaN is computed again
without the values of masked pairs. ``UNMASKED`` leaves the code for masks out, which frees registers.
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
    log_sums,
    rows_of,
    spoiled,
    unit_of,
)


@triton.jit
def _query_change(
    q_tile, g_tile, sums, shift, k_base, v_base, k_row, v_row, first, within, dims, key_end, allowed,
    start_0, start_1, stream, queries, threshold, drop_scale, scale,
    DIM: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr, CUT: tl.constexpr, SHIFTED: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores of queries (rows) and a tile of keys, and the keys."""
    k_tile = rows_of(k_base, k_row, first, within, dims, key_end, DIM, EVEN, CUT, SHIFTED)
    v_tile = rows_of(v_base, v_row, first, within, dims, key_end, DIM, EVEN, CUT, SHIFTED)
    scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
    weights = tl.exp2(scores - sums[:, None])
    change = tl.dot(g_tile, tl.trans(v_tile), input_precision=PRECISION)
    if DROPOUT:
        keep = kept(start_0, start_1, stream, queries[:, None], (first + within)[None, :], threshold)
        change = tl.where(keep, change * drop_scale, 0.0)
    change = weights * (change - shift[:, None])
    if MASKED:
        change = tl.where(allowed, change, 0.0)
    return change, k_tile


@triton.jit
def _key_change(
    k_tile, v_tile, lse, delta, q_base, g_base, q_row, g_row, first, within, dims, query_end, allowed,
    start_0, start_1, stream, keys, threshold, drop_scale, scale,
    DIM: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr, CUT: tl.constexpr, SHIFTED: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Weights of keys (rows) and a tile of queries, gradients of their scores, the queries and theirs."""
    queries = first + within
    q_tile = rows_of(q_base, q_row, first, within, dims, query_end, DIM, EVEN, CUT, SHIFTED)
    g_tile = rows_of(g_base, g_row, first, within, dims, query_end, DIM, EVEN, CUT, SHIFTED)
    sums = log_sums(lse, queries, queries < query_end, CUT)
    shift = tl.load(delta + queries, mask=queries < query_end, other=0.0) if CUT else tl.load(delta + queries)
    scores = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION) * (scale * LOG2E)
    weights = tl.exp2(scores - sums[None, :])
    if MASKED:
        weights = tl.where(allowed, weights, 0.0)
    change = tl.dot(v_tile, tl.trans(g_tile), input_precision=PRECISION)
    given = weights
    if DROPOUT:
        keep = kept(start_0, start_1, stream, queries[None, :], keys[:, None], threshold)
        given = tl.where(keep, weights * drop_scale, 0.0)
        change = tl.where(keep, change * drop_scale, 0.0)
    change = weights * (change - shift[None, :])
    if MASKED:
        change = tl.where(allowed, change, 0.0)
    return given, change, q_tile, g_tile


@triton.jit
def _query_head(
    q, gradient, lse, delta, q_batch, q_head, g_batch, g_head, batch, head, heads, query_length
):  # fmt: skip
    """Where queries, their gradients, sums and deltas of a head begin, and the number of the head."""
    head_index = batch * heads + head
    rows = head_index.to(tl.int64) * query_length
    q_base = head_of(q, batch, q_batch, head, q_head)
    return q_base, head_of(gradient, batch, g_batch, head, g_head), lse + rows, delta + rows, head_index


@triton.jit(do_not_specialize=["start_0", "start_1", "threshold"])
def query_gradient_kernel(
    q, k, v, out, gradient, lse, lse_gradient, delta, q_gradient,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    o_batch, o_head, o_row, g_batch, g_head, g_row, dq_batch, dq_head, dq_row,
    row_ptr, full_end, columns, mask_index, masks, parts,
    part_out, query_lengths, key_lengths,
    start_0, start_1, threshold, drop_scale, scale,
    query_length, key_length, heads, group, pattern_heads, block_rows,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    LISTED: tl.constexpr, UNMASKED: tl.constexpr, RAGGED_QUERIES: tl.constexpr, RAGGED_KEYS: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, HAS_LSE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradient of ``ROWS`` queries; also writes their delta, ``sum(out * gradient) - lse_gradient``."""
    TILES: tl.constexpr = BLOCK // ROWS
    STEPS: tl.constexpr = BLOCK // KEYS
    EVEN: tl.constexpr = DIM == WIDE
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
    inside = queries < query_end
    dims = tl.arange(0, WIDE)
    within = tl.arange(0, KEYS)
    k_base = head_of(k, batch, k_batch, head // group, k_head)
    v_base = head_of(v, batch, v_batch, head // group, v_head)
    q_base = head_of(q, batch, q_batch, head, q_head)
    g_base = head_of(gradient, batch, g_batch, head, g_head)
    q_tile = rows_of(q_base, q_row, block_row * BLOCK, inner, dims, query_end, DIM, EVEN, True)
    g_tile = rows_of(g_base, g_row, block_row * BLOCK, inner, dims, query_end, DIM, EVEN, True)
    place = head_index.to(tl.int64) * query_length + queries
    sums = log_sums(lse, place, inside, True)
    o_base = head_of(out, batch, o_batch, head, o_head)
    o_tile = rows_of(o_base, o_row, block_row * BLOCK, inner, dims, query_end, DIM, EVEN, True)
    shift = tl.sum(o_tile.to(tl.float32) * g_tile.to(tl.float32), 1)
    if HAS_LSE:
        shift -= tl.load(lse_gradient + place, mask=inside, other=0.0)
    # The pieces of a row that is cut all write the same.
    tl.store(delta + place, shift, mask=inside)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for entry in tl.range(begin * STEPS, middle * STEPS, num_stages=STAGES):
        first = first_of(columns, entry, BLOCK, KEYS)
        change, k_tile = _query_change(
            q_tile, g_tile, sums, shift, k_base, v_base, k_row, v_row, first, within, dims, key_end,
            (first + within < key_end)[None, :],
            start_0, start_1, head_index, queries, threshold, drop_scale, scale,
            DIM, EVEN, RAGGED_KEYS, RAGGED_KEYS, UNMASKED, DROPOUT, PRECISION,
        )  # fmt: skip
        found = tl.dot(change.to(k_tile.dtype), k_tile, found, input_precision=PRECISION)
    if not UNMASKED:
        for entry in tl.range(middle * STEPS, end * STEPS):
            first = first_of(columns, entry, BLOCK, KEYS)
            allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, KEYS, False)
            change, k_tile = _query_change(
                q_tile, g_tile, sums, shift, k_base, v_base, k_row, v_row, first, within, dims, key_end,
                allowed & (first + within < key_end)[None, :],
                start_0, start_1, head_index, queries, threshold, drop_scale, scale,
                DIM, EVEN, True, True, False, DROPOUT, PRECISION,
            )  # fmt: skip
            found = tl.dot(change.to(k_tile.dtype), k_tile, found, input_precision=PRECISION)
        if (middle < end) & (spoiled(found) > 0):
            found = tl.zeros((ROWS, WIDE), tl.float32)
            for entry in tl.range(begin * STEPS, end * STEPS, num_stages=1):
                first = first_of(columns, entry, BLOCK, KEYS)
                allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, KEYS, True)
                allowed &= (first + within < key_end)[None, :]
                change, _ = _query_change(
                    q_tile, g_tile, sums, shift, k_base, v_base, k_row, v_row, first, within, dims, key_end,
                    allowed, start_0, start_1, head_index, queries, threshold, drop_scale, scale,
                    DIM, EVEN, True, True, False, DROPOUT, PRECISION,
                )  # fmt: skip
                found = add_allowed(found, change, allowed, k_base, k_row, first, dims, key_end, DIM, KEYS)
    found = found * scale
    if slot >= 0:
        rows = slot.to(tl.int64) * BLOCK + inner
        tl.store(part_out + rows[:, None] * DIM + dims[None, :], found, mask=(dims < DIM)[None, :])
    else:
        base = head_of(q_gradient, batch, dq_batch, head, dq_head)
        stored = (queries < query_length)[:, None] & (dims < DIM)[None, :]
        found = tl.where(inside[:, None], found, 0.0)
        tl.store(
            base + queries.to(tl.int64)[:, None] * dq_row + dims[None, :],
            found.to(q_gradient.dtype.element_ty),
            mask=stored,
        )


@triton.jit(do_not_specialize=["start_0", "start_1", "threshold"])
def key_gradient_kernel(
    q, k, v, gradient, lse, delta, k_gradient, v_gradient,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch, g_head, g_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    row_ptr, full_end, columns, mask_index, masks, parts,
    part_out, query_lengths, key_lengths,
    start_0, start_1, threshold, drop_scale, scale,
    query_length, key_length, key_heads, group, pattern_heads, block_rows,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    LISTED: tl.constexpr, UNMASKED: tl.constexpr, RAGGED_QUERIES: tl.constexpr, RAGGED_KEYS: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of ``KEYS`` keys and values, from the lists of the transposed pattern.

    Units are block columns of a key head; the blocks of its query heads follow each other.
    """
    TILES: tl.constexpr = BLOCK // KEYS
    STEPS: tl.constexpr = BLOCK // ROWS
    EVEN: tl.constexpr = DIM == WIDE
    SHIFTED: tl.constexpr = UNMASKED and WIDE <= 64
    unit, part_begin, part_end, slot = unit_of(parts, tl.program_id(0) // TILES, LISTED)
    tile = tl.program_id(0) % TILES
    key_index = unit // block_rows
    block_column = unit % block_rows
    batch = key_index // key_heads
    key_head = key_index % key_heads
    query_end = end_of(query_lengths, batch, query_length, RAGGED_QUERIES)
    key_end = end_of(key_lengths, batch, key_length, RAGGED_KEYS)
    inner = tile * KEYS + tl.arange(0, KEYS)
    keys = block_column * BLOCK + inner
    dims = tl.arange(0, WIDE)
    within = tl.arange(0, ROWS)
    k_base = head_of(k, batch, k_batch, key_head, k_head)
    v_base = head_of(v, batch, v_batch, key_head, v_head)
    k_tile = rows_of(k_base, k_row, block_column * BLOCK, inner, dims, key_end, DIM, EVEN, True)
    v_tile = rows_of(v_base, v_row, block_column * BLOCK, inner, dims, key_end, DIM, EVEN, True)
    key_inside = (keys < key_end)[:, None]
    of_keys = tl.zeros((KEYS, WIDE), tl.float32)
    of_values = tl.zeros((KEYS, WIDE), tl.float32)
    passed = 0
    cut = 0
    for member in range(group):
        head = key_head * group + member
        begin, middle, end, passed = blocks_of(
            row_ptr, full_end, (head % pattern_heads) * block_rows + block_column,
            passed, part_begin, part_end, LISTED,
        )  # fmt: skip
        cut += end - middle
        q_base, g_base, lse_base, delta_base, head_index = _query_head(
            q, gradient, lse, delta, q_batch, q_head, g_batch, g_head, batch, head, key_heads * group,
            query_length,
        )  # fmt: skip
        for entry in tl.range(begin * STEPS, middle * STEPS, num_stages=STAGES):
            first = first_of(columns, entry, BLOCK, ROWS)
            given, change, q_tile, g_tile = _key_change(
                k_tile, v_tile, lse_base, delta_base, q_base, g_base, q_row, g_row, first, within, dims,
                query_end, (first + within < query_end)[None, :],
                start_0, start_1, head_index, keys, threshold, drop_scale, scale,
                DIM, EVEN, RAGGED_QUERIES, not UNMASKED, SHIFTED, DROPOUT, PRECISION,
            )  # fmt: skip
            of_values = tl.dot(given.to(g_tile.dtype), g_tile, of_values, input_precision=PRECISION)
            of_keys = tl.dot(change.to(q_tile.dtype), q_tile, of_keys, input_precision=PRECISION)
        if not UNMASKED:
            for entry in tl.range(middle * STEPS, end * STEPS):
                first = first_of(columns, entry, BLOCK, ROWS)
                allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, ROWS, False)
                given, change, q_tile, g_tile = _key_change(
                    k_tile, v_tile, lse_base, delta_base, q_base, g_base, q_row, g_row, first, within, dims,
                    query_end, allowed & key_inside & (first + within < query_end)[None, :],
                    start_0, start_1, head_index, keys, threshold, drop_scale, scale,
                    DIM, EVEN, True, True, False, DROPOUT, PRECISION,
                )  # fmt: skip
                of_values = tl.dot(given.to(g_tile.dtype), g_tile, of_values, input_precision=PRECISION)
                of_keys = tl.dot(change.to(q_tile.dtype), q_tile, of_keys, input_precision=PRECISION)
    if not UNMASKED:  # noqa: SIM102 - a constant of the compiler, which leaves the branch out
        if (cut > 0) & (spoiled(of_keys) + spoiled(of_values) > 0):
            of_keys = tl.zeros((KEYS, WIDE), tl.float32)
            of_values = tl.zeros((KEYS, WIDE), tl.float32)
            passed = 0
            for member in range(group):
                head = key_head * group + member
                begin, middle, end, passed = blocks_of(
                    row_ptr, full_end, (head % pattern_heads) * block_rows + block_column,
                    passed, part_begin, part_end, LISTED,
                )  # fmt: skip
                q_base, g_base, lse_base, delta_base, head_index = _query_head(
                    q, gradient, lse, delta, q_batch, q_head, g_batch, g_head, batch, head, key_heads * group,
                    query_length,
                )  # fmt: skip
                for entry in tl.range(begin * STEPS, end * STEPS, num_stages=1):
                    first = first_of(columns, entry, BLOCK, ROWS)
                    allowed = allowed_tokens(mask_index, masks, entry, inner, within, BLOCK, ROWS, True)
                    allowed = allowed & key_inside & (first + within < query_end)[None, :]
                    given, change, _, _ = _key_change(
                        k_tile, v_tile, lse_base, delta_base, q_base, g_base, q_row, g_row, first, within,
                        dims, query_end, allowed,
                        start_0, start_1, head_index, keys, threshold, drop_scale, scale,
                        DIM, EVEN, True, True, False, DROPOUT, PRECISION,
                    )  # fmt: skip
                    of_values = add_allowed(
                        of_values, given, allowed, g_base, g_row, first, dims, query_end, DIM, ROWS
                    )
                    of_keys = add_allowed(
                        of_keys, change, allowed, q_base, q_row, first, dims, query_end, DIM, ROWS
                    )
    of_keys = tl.where(key_inside, of_keys * scale, 0.0)
    of_values = tl.where(key_inside, of_values, 0.0)
    if slot >= 0:
        rows = (slot.to(tl.int64) * 2 * BLOCK + inner)[:, None] * DIM + dims[None, :]
        tl.store(part_out + rows, of_keys, mask=(dims < DIM)[None, :])
        tl.store(part_out + rows + BLOCK * DIM, of_values, mask=(dims < DIM)[None, :])
    else:
        stored = (keys < key_length)[:, None] & (dims < DIM)[None, :]
        wide = keys.to(tl.int64)[:, None]
        base = head_of(k_gradient, batch, dk_batch, key_head, dk_head)
        tl.store(base + wide * dk_row + dims[None, :], of_keys.to(k_gradient.dtype.element_ty), mask=stored)
        base = head_of(v_gradient, batch, dv_batch, key_head, dv_head)
        tl.store(base + wide * dv_row + dims[None, :], of_values.to(v_gradient.dtype.element_ty), mask=stored)


@triton.jit
def sum_kernel(
    part_out, joins, result, batch_stride, head_stride, row_stride, slot_rows, first_row, length, heads,
    block_rows,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add up the pieces of a block row that was cut, in their order."""
    unit, slot, count, inner = cut_row(joins, BLOCK, ROWS)
    head_index = unit // block_rows
    tokens = (unit % block_rows) * BLOCK + inner
    dims = tl.arange(0, WIDE)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for piece in range(count):
        place = (slot + piece).to(tl.int64) * slot_rows + first_row + inner
        found += tl.load(
            part_out + place[:, None] * DIM + dims[None, :], mask=(dims < DIM)[None, :], other=0.0
        )
    base = head_of(result, head_index // heads, batch_stride, head_index % heads, head_stride)
    inside = (tokens < length)[:, None] & (dims < DIM)[None, :]
    offsets = tokens.to(tl.int64)[:, None] * row_stride + dims[None, :]
    tl.store(base + offsets, found.to(result.dtype.element_ty), mask=inside)
