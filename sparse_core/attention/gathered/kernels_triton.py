"""Triton kernels of gathered attention with a program per query.

Rows of q, k, v and of gradients are contiguous and a multiple of 8 numbers apart; ``*_step`` are strides
divided by 8, so that the compiler knows the alignment. Scores are in units of log2: ``factor`` is the scale
times log2(e). DIM is the length of a row, WIDTH the next power of two. out, lse, delta and the gradients of
q, k and v are contiguous, the last three floating like q.

A number below -1, or ``key_length`` and above, is never read; its query gets NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def row_offset(batch, head, row, batch_step, head_step, row_step):  # type: ignore[no-untyped-def]
    """Where rows begin, in numbers."""
    start = batch.to(tl.int64) * batch_step + head.to(tl.int64) * head_step
    return (start + row.to(tl.int64) * row_step) * 8


@triton.jit
def rows_at(table, offset, present, DIM: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """(n, WIDTH) rows that begin at ``offset`` (n,); zeros where not ``present``."""
    column = tl.arange(0, WIDTH)[None, :]
    return tl.load(table + offset[:, None] + column, mask=present[:, None] & (column < DIM), other=0.0)


@triton.jit
def row_at(table, offset, DIM: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """(WIDTH,) the row that begins at ``offset``, in float32."""
    column = tl.arange(0, WIDTH)
    return tl.load(table + offset + column, mask=column < DIM, other=0.0).to(tl.float32)


@triton.jit
def finite(largest):  # type: ignore[no-untyped-def]
    """0 for minus infinity, where nothing was found: it cannot be subtracted from itself."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def _marked(values, key, key_length, empty):  # type: ignore[no-untyped-def]
    """``empty`` for slots without a key, NaN for numbers out of range."""
    values = tl.where((key >= 0) & (key < key_length), values, empty)
    return tl.where((key < -1) | (key >= key_length), float("nan"), values)


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    q, k, v, index, out, lse,
    heads, queries, key_length, slots, group, factor,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    index_batch_stride, index_head_stride, index_row_stride, index_slot_stride,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One query of one head."""
    program = tl.program_id(0)
    query = program % queries
    head = program // queries % heads
    batch = program // queries // heads
    key_head = head // group
    q_row = row_at(q, row_offset(batch, head, query, q_batch_step, q_head_step, q_row_step), DIM, WIDTH)
    numbers = index + batch.to(tl.int64) * index_batch_stride + head.to(tl.int64) * index_head_stride
    numbers += query.to(tl.int64) * index_row_stride
    lane = tl.arange(0, SLOTS).to(tl.int64)
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    result = tl.zeros((WIDTH,), tl.float32)
    following = tl.load(numbers + lane * index_slot_stride, mask=lane < slots, other=-1)
    for start in range(0, slots, SLOTS):
        key = following
        # Asked for before the rows are needed, so that the next ones do not wait for their numbers.
        ahead = start + SLOTS + lane
        following = tl.load(numbers + ahead * index_slot_stride, mask=ahead < slots, other=-1)
        present = (key >= 0) & (key < key_length)
        keys = rows_at(
            k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), present, DIM, WIDTH
        )
        values = rows_at(
            v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), present, DIM, WIDTH
        )
        score = tl.sum(keys.to(tl.float32) * q_row[None, :], axis=1) * factor
        score = _marked(score, key, key_length, float("-inf"))
        new = tl.maximum(largest, tl.max(score, axis=0))
        weight = tl.exp2(score - finite(new))
        shrink = tl.exp2(largest - finite(new))
        total = total * shrink + tl.sum(weight, axis=0)
        result = result * shrink + tl.sum(weight[:, None] * values.to(tl.float32), axis=0)
        largest = new
    place = program.to(tl.int64)
    column = tl.arange(0, WIDTH)
    result = result / tl.where(total == 0.0, 1.0, total)
    tl.store(out + place * DIM + column, result.to(out.dtype.element_ty), mask=column < DIM)
    found = (largest + tl.log2(total)) * _LN2
    tl.store(lse + place, tl.where(total == 0.0, float("-inf"), found))


@triton.jit
def forward_shared_kernel(  # type: ignore[no-untyped-def]
    q, k, v, index, out, lse,
    heads, queries, key_length, slots, group, factor,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    index_batch_stride, index_row_stride, index_slot_stride,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One query of up to ROWS heads that share a key head and a list."""
    program = tl.program_id(0)
    blocks = tl.cdiv(group, ROWS)
    query = program // blocks % queries
    key_head = program // blocks // queries % (heads // group)
    batch = program // blocks // queries // (heads // group)
    member = program % blocks * ROWS + tl.arange(0, ROWS)
    head = key_head * group + member
    exists = member < group
    q_rows = rows_at(
        q, row_offset(batch, head, query, q_batch_step, q_head_step, q_row_step), exists, DIM, WIDTH
    )
    numbers = index + batch.to(tl.int64) * index_batch_stride + query.to(tl.int64) * index_row_stride
    lane = tl.arange(0, SLOTS).to(tl.int64)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, slots, SLOTS):
        key = tl.load(numbers + (start + lane) * index_slot_stride, mask=start + lane < slots, other=-1)
        present = (key >= 0) & (key < key_length)
        keys = rows_at(
            k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), present, DIM, WIDTH
        )
        values = rows_at(
            v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), present, DIM, WIDTH
        )
        score = tl.dot(q_rows, tl.trans(keys), input_precision="ieee") * factor
        score = _marked(score, key[None, :], key_length, float("-inf"))
        new = tl.maximum(largest, tl.max(score, axis=1))
        weight = tl.exp2(score - finite(new)[:, None])
        shrink = tl.exp2(largest - finite(new))
        total = total * shrink + tl.sum(weight, axis=1)
        result = result * shrink[:, None]
        result += tl.dot(weight.to(values.dtype), values, input_precision="ieee")
        largest = new
    place = (batch.to(tl.int64) * heads + head) * queries + query
    column = tl.arange(0, WIDTH)[None, :]
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out + place[:, None] * DIM + column,
        result.to(out.dtype.element_ty),
        mask=exists[:, None] & (column < DIM),
    )
    found = (largest + tl.log2(total)) * _LN2
    tl.store(lse + place, tl.where(total == 0.0, float("-inf"), found), mask=exists)


@triton.jit
def delta_kernel(  # type: ignore[no-untyped-def]
    out, grad, grad_lse, delta, count,
    heads, queries,
    grad_batch_step, grad_head_step, grad_row_step,
    HAS_LSE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What the softmax takes off every gradient of a score: ``sum(out * grad) - grad_lse``, row by row."""
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = place < count
    query = place % queries
    head = place // queries % heads
    batch = place // queries // heads
    outs = rows_at(out, place * DIM, exists, DIM, WIDTH).to(tl.float32)
    offset = row_offset(batch, head, query, grad_batch_step, grad_head_step, grad_row_step)
    grads = rows_at(grad, offset, exists, DIM, WIDTH).to(tl.float32)
    result = tl.sum(outs * grads, axis=1)
    if HAS_LSE:
        result -= tl.load(grad_lse + place, mask=exists, other=0.0)
    tl.store(delta + place, result, mask=exists)


@triton.jit
def query_gradient_kernel(  # type: ignore[no-untyped-def]
    q, k, v, index, grad, lse, delta, grad_q,
    heads, queries, key_length, slots, group, factor, scale,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    index_batch_stride, index_head_stride, index_row_stride, index_slot_stride,
    grad_batch_step, grad_head_step, grad_row_step,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The gradient of one query of one head."""
    program = tl.program_id(0)
    query = program % queries
    head = program // queries % heads
    batch = program // queries // heads
    key_head = head // group
    place = program.to(tl.int64)
    q_row = row_at(q, row_offset(batch, head, query, q_batch_step, q_head_step, q_row_step), DIM, WIDTH)
    offset = row_offset(batch, head, query, grad_batch_step, grad_head_step, grad_row_step)
    grad_row = row_at(grad, offset, DIM, WIDTH)
    level = finite(tl.load(lse + place)) * LOG2E
    taken = tl.load(delta + place)
    numbers = index + batch.to(tl.int64) * index_batch_stride + head.to(tl.int64) * index_head_stride
    numbers += query.to(tl.int64) * index_row_stride
    lane = tl.arange(0, SLOTS).to(tl.int64)
    result = tl.zeros((WIDTH,), tl.float32)
    following = tl.load(numbers + lane * index_slot_stride, mask=lane < slots, other=-1)
    for start in range(0, slots, SLOTS):
        key = following
        ahead = start + SLOTS + lane
        following = tl.load(numbers + ahead * index_slot_stride, mask=ahead < slots, other=-1)
        present = (key >= 0) & (key < key_length)
        keys = rows_at(
            k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), present, DIM, WIDTH
        ).to(tl.float32)
        values = rows_at(
            v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), present, DIM, WIDTH
        ).to(tl.float32)
        weight = tl.exp2(tl.sum(keys * q_row[None, :], axis=1) * factor - level)
        slope = weight * (tl.sum(values * grad_row[None, :], axis=1) - taken)
        slope = _marked(slope, key, key_length, 0.0)
        result += tl.sum(slope[:, None] * keys, axis=0)
    column = tl.arange(0, WIDTH)
    result = (result * scale).to(grad_q.dtype.element_ty)
    tl.store(grad_q + place * DIM + column, result, mask=column < DIM)


@triton.jit
def query_gradient_shared_kernel(  # type: ignore[no-untyped-def]
    q, k, v, index, grad, lse, delta, grad_q,
    heads, queries, key_length, slots, group, factor, scale,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    index_batch_stride, index_row_stride, index_slot_stride,
    grad_batch_step, grad_head_step, grad_row_step,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of one query of up to ROWS heads that share a key head and a list."""
    program = tl.program_id(0)
    blocks = tl.cdiv(group, ROWS)
    query = program // blocks % queries
    key_head = program // blocks // queries % (heads // group)
    batch = program // blocks // queries // (heads // group)
    member = program % blocks * ROWS + tl.arange(0, ROWS)
    head = key_head * group + member
    exists = member < group
    place = (batch.to(tl.int64) * heads + head) * queries + query
    q_rows = rows_at(
        q, row_offset(batch, head, query, q_batch_step, q_head_step, q_row_step), exists, DIM, WIDTH
    )
    offset = row_offset(batch, head, query, grad_batch_step, grad_head_step, grad_row_step)
    grads = rows_at(grad, offset, exists, DIM, WIDTH)
    level = finite(tl.load(lse + place, mask=exists, other=0.0)) * LOG2E
    taken = tl.load(delta + place, mask=exists, other=0.0)
    numbers = index + batch.to(tl.int64) * index_batch_stride + query.to(tl.int64) * index_row_stride
    lane = tl.arange(0, SLOTS).to(tl.int64)
    result = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, slots, SLOTS):
        key = tl.load(numbers + (start + lane) * index_slot_stride, mask=start + lane < slots, other=-1)
        present = (key >= 0) & (key < key_length)
        keys = rows_at(
            k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), present, DIM, WIDTH
        )
        values = rows_at(
            v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), present, DIM, WIDTH
        )
        score = tl.dot(q_rows, tl.trans(keys), input_precision="ieee") * factor
        weight = tl.exp2(score - level[:, None])
        slope = tl.dot(grads, tl.trans(values), input_precision="ieee") - taken[:, None]
        slope = _marked(weight * slope, key[None, :], key_length, 0.0)
        result += tl.dot(slope.to(keys.dtype), keys, input_precision="ieee")
    column = tl.arange(0, WIDTH)[None, :]
    result = (result * scale).to(grad_q.dtype.element_ty)
    tl.store(grad_q + place[:, None] * DIM + column, result, mask=exists[:, None] & (column < DIM))
