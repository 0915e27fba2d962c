"""Functions that the attention kernels share: units of work, tiles of rows, masks and dropout.

A program owns a tile of rows and loops over the entries of its block row: full blocks without masks, then
partial ones. An entry is a part of a block with as many keys (or queries) as a tile has.

A masked pair has weight 0, but 0 times NaN or infinity is NaN. A masked tile whose result is NaN is therefore
computed again by :func:`add_allowed`. The check costs one reduction per program, and only such tiles cost
more.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def mix(words):
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
    first = mix(mix(start_0.to(tl.uint32) * golden + stream) * golden + query)
    second = mix(mix(start_1.to(tl.uint32) * golden + stream) * golden + query)
    return mix(mix(key.to(tl.uint32) * golden + first) ^ second) >= threshold.to(tl.uint32)


@triton.jit
def rows_of(
    pointer, stride, first, within, dims, limit,
    DIM: tl.constexpr, EVEN: tl.constexpr, CUT: tl.constexpr, SHIFTED: tl.constexpr = False,
):  # fmt: skip
    """Rows ``first + within`` of a matrix; zeros beyond ``limit`` rows and ``DIM`` columns.

    ``SHIFTED`` moves the pointer and keeps the offsets over the steps of a loop: less arithmetic, but more
    registers.
    """
    if SHIFTED:
        pointer += first.to(tl.int64) * stride
        offsets = within[:, None] * stride + dims[None, :]
    else:
        offsets = (first + within).to(tl.int64)[:, None] * stride + dims[None, :]
    if EVEN and not CUT:
        return tl.load(pointer + offsets)
    inside = (first + within < limit)[:, None]
    if EVEN:
        return tl.load(pointer + offsets, mask=inside, other=0.0)
    return tl.load(pointer + offsets, mask=inside & (dims < DIM)[None, :], other=0.0)


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
def allowed_tokens(
    mask_index, masks, entry, inner, within,
    BLOCK: tl.constexpr, COUNT: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Pairs of the rows ``inner`` and of an entry that the mask of its block allows.

    With ``FULL``, the block may be one without a mask, which allows all.
    """
    STEPS: tl.constexpr = BLOCK // COUNT
    mask = tl.load(mask_index + entry // STEPS)
    corner = inner[:, None] * BLOCK + ((entry % STEPS) * COUNT + within)[None, :]
    if FULL:
        tokens = tl.load(masks + tl.maximum(mask, 0).to(tl.int64) * BLOCK * BLOCK + corner)
        return (tokens != 0) | (mask < 0)
    return tl.load(masks + mask.to(tl.int64) * BLOCK * BLOCK + corner) != 0


@triton.jit
def first_of(columns, entry, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """The first of the ``COUNT`` tokens of an entry."""
    STEPS: tl.constexpr = BLOCK // COUNT
    return tl.load(columns + entry // STEPS) * BLOCK + (entry % STEPS) * COUNT


@triton.jit
def unit_of(parts, part, LISTED: tl.constexpr):
    """The unit of a program, begin and end of its blocks, and the slot for its result: -1 for none."""
    if LISTED:
        place = parts + part * 4
        return tl.load(place), tl.load(place + 1), tl.load(place + 2), tl.load(place + 3)
    return part, 0, 0, -1


@triton.jit
def blocks_of(row_ptr, full_end, row, passed, part_begin, part_end, LISTED: tl.constexpr):
    """Begin, end of the full blocks and end of a row's blocks, of which a part may be asked for.

    ``passed``: blocks of the rows of the unit before it; returned with this row's added.
    """
    begin = tl.load(row_ptr + row)
    end = tl.load(row_ptr + row + 1)
    if LISTED:
        start = begin - passed
        passed += end - begin
        begin = tl.maximum(begin, start + part_begin)
        end = tl.maximum(tl.minimum(end, start + part_end), begin)
    middle = tl.minimum(tl.maximum(tl.load(full_end + row), begin), end)
    return begin, middle, end, passed


@triton.jit
def end_of(lengths, batch, length, RAGGED: tl.constexpr):
    """Tokens of a sequence."""
    end = length
    if RAGGED:
        end = tl.minimum(tl.load(lengths + batch).to(tl.int32), length)
    return end


@triton.jit
def head_of(pointer, batch, batch_stride, head, head_stride):
    """Where the rows of a head of a batch entry begin."""
    return pointer + batch.to(tl.int64) * batch_stride + head.to(tl.int64) * head_stride


@triton.jit
def log_sums(lse, place, inside, CUT: tl.constexpr):
    """Logarithms to base 2 of the sums at some places; infinity for queries without keys."""
    if CUT:
        sums = tl.load(lse + place, mask=inside, other=float("-inf")) * LOG2E
    else:
        sums = tl.load(lse + place) * LOG2E
    return tl.where(sums == float("-inf"), float("inf"), sums)


@triton.jit
def cut_row(joins, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Of a block row that was cut: its unit, its first slot, its slots, and the rows of this program."""
    TILES: tl.constexpr = BLOCK // ROWS
    place = joins + (tl.program_id(0) // TILES) * 3
    inner = (tl.program_id(0) % TILES) * ROWS + tl.arange(0, ROWS)
    return tl.load(place), tl.load(place + 1), tl.load(place + 2), inner
