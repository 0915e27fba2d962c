"""Triton kernels of block-sparse attention, forward; :mod:`.gradients_triton` has those of gradients.

A program owns a tile of rows and walks the blocks of its block row: full blocks without any mask work, then
partial ones. The softmax is kept online (Milakov & Gimelshein 2018; Dao et al. 2022) in base 2.

A masked pair has the weight 0, which does not remove a value that is NaN or infinite. A tile with NaN in its
result, and with masks, is therefore computed once more by :func:`add_allowed`: the check is one reduction a
program, and only tiles that need it pay for more.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _mix(words):
    """The finaliser of MurmurHash3 on uint32, see :mod:`sparse_core.attention.dropout`."""
    words = (words ^ (words >> 16)) * tl.full((), 0x85EBCA6B, tl.uint32)
    words = (words ^ (words >> 13)) * tl.full((), 0xC2B2AE35, tl.uint32)
    return words ^ (words >> 16)


@triton.jit
def kept(start_0, start_1, stream, query, key, threshold):
    """Whether dropout keeps the weights of queries (column) and keys (row), as plain torch does."""
    golden = tl.full((), 0x9E3779B9, tl.uint32)
    stream = stream.to(tl.uint32)
    query = query.to(tl.uint32)
    first = _mix(_mix(start_0.to(tl.uint32) * golden + stream) * golden + query)
    second = _mix(_mix(start_1.to(tl.uint32) * golden + stream) * golden + query)
    return _mix(_mix(key.to(tl.uint32) * golden + first) ^ second) >= threshold.to(tl.uint32)


@triton.jit
def rows_of(pointer, stride, index, dims, limit, DIM: tl.constexpr, EVEN: tl.constexpr, CUT: tl.constexpr):
    """Rows of a matrix; zeros beyond ``limit`` rows and ``DIM`` columns."""
    offsets = index.to(tl.int64)[:, None] * stride + dims[None, :]
    if EVEN and not CUT:
        return tl.load(pointer + offsets)
    if EVEN:
        return tl.load(pointer + offsets, mask=(index < limit)[:, None], other=0.0)
    return tl.load(pointer + offsets, mask=(index < limit)[:, None] & (dims < DIM)[None, :], other=0.0)


@triton.jit
def add_allowed(
    found, weights, allowed, base, stride, first, dims, limit,
    DIM: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """``found`` plus ``weights`` times ``COUNT`` rows of a matrix from ``first`` on, of allowed pairs alone.

    Row by row, which is slow but needs few registers: kernels come here only with NaN in their results.
    """
    within = tl.arange(0, COUNT)[None, :]
    weights = tl.where(allowed, weights, 0.0).to(base.dtype.element_ty).to(tl.float32)
    for place in tl.range(0, COUNT, num_stages=1):
        here = within == place
        weight = tl.sum(tl.where(here, weights, 0.0), 1)
        counts = tl.sum((here & allowed).to(tl.int32), 1) > 0
        index = first + place
        inside = (index < limit) & (dims < DIM)
        row = tl.load(base + index.to(tl.int64) * stride + dims, mask=inside, other=0.0).to(tl.float32)
        found = tl.where(counts[:, None], found + weight[:, None] * row[None, :], found)
    return found


@triton.jit
def spoiled(found):
    """1 if any number of a tile is NaN, else 0."""
    return tl.max(tl.max((found != found).to(tl.int32), 1), 0)


@triton.jit
def allowed_tokens(mask_index, masks, entry, corner, BLOCK: tl.constexpr):
    """Pairs that the mask of a block allows, at the places ``corner``; all of them without a mask."""
    mask = tl.load(mask_index + entry)
    full = mask < 0
    tokens = tl.load(masks + tl.maximum(mask, 0).to(tl.int64) * BLOCK * BLOCK + corner)
    return (tokens != 0) | full


@triton.jit
def _step(
    q, k_base, v_base, stride_k, stride_v, keys, dims, key_end, allowed,
    start_0, start_1, stream, queries, threshold, drop_scale, scale,
    largest, total, out,
    DIM: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr, CUT: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys of the online softmax."""
    k = rows_of(k_base, stride_k, keys, dims, key_end, DIM, EVEN, CUT)
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
        keep = kept(start_0, start_1, stream, queries[:, None], keys[None, :], threshold)
        weights = tl.where(keep, weights * drop_scale, 0.0)
    v = rows_of(v_base, stride_v, keys, dims, key_end, DIM, EVEN, CUT)
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
    LISTED: tl.constexpr, RAGGED_QUERIES: tl.constexpr, RAGGED_KEYS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Out and lse of ``ROWS`` queries; ``scale`` is that of the scores times log2(e)."""
    TILES: tl.constexpr = BLOCK // ROWS
    STEPS: tl.constexpr = BLOCK // KEYS
    EVEN: tl.constexpr = DIM == WIDE
    part = tl.program_id(0) // TILES
    tile = tl.program_id(0) % TILES
    slot = -1
    if LISTED:
        unit = tl.load(parts + part * 4)
        slot = tl.load(parts + part * 4 + 3)
    else:
        unit = part
    head_index = unit // block_rows
    block_row = unit % block_rows
    batch = head_index // heads
    head = head_index % heads
    pattern_row = (head % pattern_heads) * block_rows + block_row
    begin = tl.load(row_ptr + pattern_row)
    end = tl.load(row_ptr + pattern_row + 1)
    if LISTED:
        end = begin + tl.load(parts + part * 4 + 2)
        begin += tl.load(parts + part * 4 + 1)
    middle = tl.minimum(tl.maximum(tl.load(full_end + pattern_row), begin), end)
    query_end = query_length
    if RAGGED_QUERIES:
        query_end = tl.minimum(tl.load(query_lengths + batch).to(tl.int32), query_length)
    key_end = key_length
    if RAGGED_KEYS:
        key_end = tl.minimum(tl.load(key_lengths + batch).to(tl.int32), key_length)
    inner = tile * ROWS + tl.arange(0, ROWS)
    queries = block_row * BLOCK + inner
    dims = tl.arange(0, WIDE)
    within = tl.arange(0, KEYS)
    q_base = q + batch.to(tl.int64) * q_batch + head.to(tl.int64) * q_head
    k_base = k + batch.to(tl.int64) * k_batch + (head // group).to(tl.int64) * k_head
    v_base = v + batch.to(tl.int64) * v_batch + (head // group).to(tl.int64) * v_head
    q_tile = rows_of(q_base, q_row, queries, dims, query_end, DIM, EVEN, True)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for entry in tl.range(begin * STEPS, middle * STEPS, num_stages=STAGES):
        first = tl.load(columns + entry // STEPS) * BLOCK + (entry % STEPS) * KEYS
        keys = first + within
        largest, total, found = _step(
            q_tile, k_base, v_base, k_row, v_row, keys, dims, key_end, (keys < key_end)[None, :],
            start_0, start_1, head_index, queries, threshold, drop_scale, scale,
            largest, total, found, DIM, EVEN, RAGGED_KEYS, RAGGED_KEYS, DROPOUT, PRECISION,
        )  # fmt: skip
    for entry in tl.range(middle * STEPS, end * STEPS):
        first = tl.load(columns + entry // STEPS) * BLOCK + (entry % STEPS) * KEYS
        keys = first + within
        mask = tl.load(mask_index + entry // STEPS)
        place = inner[:, None] * BLOCK + ((entry % STEPS) * KEYS + within)[None, :]
        tokens = tl.load(masks + mask.to(tl.int64) * BLOCK * BLOCK + place)
        largest, total, found = _step(
            q_tile, k_base, v_base, k_row, v_row, keys, dims, key_end,
            (tokens != 0) & (keys < key_end)[None, :],
            start_0, start_1, head_index, queries, threshold, drop_scale, scale,
            largest, total, found, DIM, EVEN, True, True, DROPOUT, PRECISION,
        )  # fmt: skip
    # Masked values that are not finite have spoiled the tile, if it has masks: computed again without them.
    if (middle < end) & (spoiled(found) > 0):
        found = tl.zeros((ROWS, WIDE), tl.float32)
        safe = tl.where(largest == float("-inf"), 0.0, largest)
        for entry in tl.range(begin * STEPS, end * STEPS, num_stages=1):
            first = tl.load(columns + entry // STEPS) * BLOCK + (entry % STEPS) * KEYS
            keys = first + within
            corner = inner[:, None] * BLOCK + ((entry % STEPS) * KEYS + within)[None, :]
            allowed = allowed_tokens(mask_index, masks, entry // STEPS, corner, BLOCK)
            allowed &= (keys < key_end)[None, :]
            k_tile = rows_of(k_base, k_row, keys, dims, key_end, DIM, EVEN, True)
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
        o_base = out + batch.to(tl.int64) * o_batch + head.to(tl.int64) * o_head
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
    TILES: tl.constexpr = BLOCK // ROWS
    row = tl.program_id(0) // TILES
    unit = tl.load(joins + row * 3)
    slot = tl.load(joins + row * 3 + 1)
    count = tl.load(joins + row * 3 + 2)
    head_index = unit // block_rows
    batch = head_index // heads
    inner = (tl.program_id(0) % TILES) * ROWS + tl.arange(0, ROWS)
    queries = (unit % block_rows) * BLOCK + inner
    dims = tl.arange(0, WIDE)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, WIDE), tl.float32)
    for piece in range(count):
        place = (slot + piece).to(tl.int64) * BLOCK + inner
        value = tl.load(part_lse + place) * _LOG2E
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
    o_base = out + batch.to(tl.int64) * o_batch + (head_index % heads).to(tl.int64) * o_head
    inside = (queries < query_length)[:, None] & (dims < DIM)[None, :]
    offsets = queries.to(tl.int64)[:, None] * o_row + dims[None, :]
    tl.store(o_base + offsets, found.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + head_index.to(tl.int64) * query_length + queries, lse_value, mask=queries < query_length)
