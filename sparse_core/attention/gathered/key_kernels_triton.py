"""Triton kernels of gathered attention with a program per key: the gradients of k and v.

The slots of all lists, sorted by key, are cut into parts of PART slots. The slots of a key may cross parts.
The program of the key sums its slots in the first part; other programs sum those in further parts before,
and it adds these sums in order. So no program reads more than a part, even if all queries attend to one key.
There are no atomics, so results are bitwise reproducible.

See :mod:`sparse_core.attention.gathered.kernels_triton` for the names of the arguments.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.attention.gathered.kernels_triton import LOG2E, finite, row_at, row_offset, rows_at


@triton.jit
def label_kernel(  # type: ignore[no-untyped-def]
    index, labels, count, list_slots, lists_per_table, key_length, none, BLOCK: tl.constexpr
):
    """What key of which table each slot names, or ``none``.

    ``index`` is contiguous with ``list_slots`` numbers for each batch entry and head; ``lists_per_table``
    heads read the same keys.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    key = tl.load(index + place, mask=inside, other=-1).to(tl.int64)
    table = place // list_slots // lists_per_table
    label = tl.where((key >= 0) & (key < key_length), table * key_length + key, none)
    tl.store(labels + place, label.to(labels.dtype.element_ty), mask=inside)


@triton.jit
def _sum_slots(  # type: ignore[no-untyped-def]
    q, grad, lse, delta, order,
    begin, end, k_row, v_row, batch, key_head,
    heads, queries, slots, factor,
    q_batch_step, q_head_step, q_row_step, grad_batch_step, grad_head_step, grad_row_step,
    NEEDS_K: tl.constexpr, NEEDS_V: tl.constexpr, MEMBERS: tl.constexpr, WIDE: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of a row of k (not yet times the scale) and of v from the slots ``order[begin:end]``.

    MEMBERS is 0 when every head has its own lists, else the heads that share a list and the key head.
    """
    grad_k = tl.zeros((WIDTH,), tl.float32)
    grad_v = tl.zeros((WIDTH,), tl.float32)
    lane = tl.arange(0, ROWS)
    each = MEMBERS if MEMBERS else 1
    count = (end - begin).to(tl.int32) * each
    following = tl.load(order + begin + lane // each, mask=lane < count, other=0)
    for start in range(0, count, ROWS):
        row = start + lane
        place = following
        following = tl.load(order + begin + (row + ROWS) // each, mask=row + ROWS < count, other=0)
        there = row < count
        if not WIDE:
            place = place.to(tl.int32)
        place = place // slots
        query = place % queries
        head = key_head * MEMBERS + row % MEMBERS if MEMBERS else place // queries % heads
        offset = row_offset(batch, head, query, q_batch_step, q_head_step, q_row_step)
        q_rows = rows_at(q, offset, there, DIM, WIDTH)
        offset = row_offset(batch, head, query, grad_batch_step, grad_head_step, grad_row_step)
        grads = rows_at(grad, offset, there, DIM, WIDTH).to(tl.float32)
        q_rows = q_rows.to(tl.float32)
        number = (batch.to(tl.int64) * heads + head) * queries + query
        level = finite(tl.load(lse + number, mask=there, other=0.0)) * LOG2E
        weight = tl.exp2(tl.sum(q_rows * k_row[None, :], axis=1) * factor - level)
        weight = tl.where(there, weight, 0.0)
        if NEEDS_V:
            grad_v += tl.sum(weight[:, None] * grads, axis=0)
        if NEEDS_K:
            taken = tl.load(delta + number, mask=there, other=0.0)
            slope = weight * (tl.sum(grads * v_row[None, :], axis=1) - taken)
            grad_k += tl.sum(slope[:, None] * q_rows, axis=0)
    return grad_k, grad_v


@triton.jit
def further_parts_kernel(  # type: ignore[no-untyped-def]
    q, k, v, grad, lse, delta, order, labels, first, part_k, part_v,
    parts, heads, key_heads, queries, key_length, slots, none, factor,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    grad_batch_step, grad_head_step, grad_row_step,
    PART: tl.constexpr, NEEDS_K: tl.constexpr, NEEDS_V: tl.constexpr, MEMBERS: tl.constexpr,
    WIDE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The beginning of a part, if its key began in a part before; else the part's sums stay unwritten."""
    program = tl.program_id(0)
    part = program % (parts - 1) + 1
    begin = part.to(tl.int64) * PART
    label = tl.load(labels + begin).to(tl.int64)
    # The first number of a label that does not exist is the number of slots with a key.
    if (tl.load(first + label).to(tl.int64) < begin) & (label < none):
        end = tl.minimum(tl.load(first + label + 1).to(tl.int64), begin + PART)
        table = label // key_length
        key = label % key_length
        if MEMBERS:
            key_head = program // (parts - 1)
            batch = table
        else:
            key_head = (table % key_heads).to(tl.int32)
            batch = table // key_heads
        k_row = row_at(k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), DIM, WIDTH)
        v_row = row_at(v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), DIM, WIDTH)
        grad_k, grad_v = _sum_slots(
            q, grad, lse, delta, order,
            begin, end, k_row, v_row, batch, key_head,
            heads, queries, slots, factor,
            q_batch_step, q_head_step, q_row_step, grad_batch_step, grad_head_step, grad_row_step,
    NEEDS_K, NEEDS_V, MEMBERS, WIDE, DIM, WIDTH, ROWS,
        )  # fmt: skip
        column = tl.arange(0, WIDTH)
        target = program.to(tl.int64) * DIM + column
        if NEEDS_K:
            tl.store(part_k + target, grad_k, mask=column < DIM)
        if NEEDS_V:
            tl.store(part_v + target, grad_v, mask=column < DIM)


@triton.jit
def key_gradient_kernel(  # type: ignore[no-untyped-def]
    q, k, v, grad, lse, delta, order, first, part_k, part_v, grad_k, grad_v,
    parts, heads, key_heads, queries, key_length, slots, factor, scale,
    q_batch_step, q_head_step, q_row_step, k_batch_step, k_head_step, k_row_step,
    v_batch_step, v_head_step, v_row_step,
    grad_batch_step, grad_head_step, grad_row_step,
    PART: tl.constexpr, NEEDS_K: tl.constexpr, NEEDS_V: tl.constexpr, MEMBERS: tl.constexpr,
    WIDE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of one row of k and v."""
    program = tl.program_id(0)
    key = program % key_length
    key_head = program // key_length % key_heads
    batch = program // key_length // key_heads
    label = (batch if MEMBERS else batch * key_heads + key_head).to(tl.int64) * key_length + key
    begin = tl.load(first + label).to(tl.int64)
    end = tl.load(first + label + 1).to(tl.int64)
    k_row = row_at(k, row_offset(batch, key_head, key, k_batch_step, k_head_step, k_row_step), DIM, WIDTH)
    v_row = row_at(v, row_offset(batch, key_head, key, v_batch_step, v_head_step, v_row_step), DIM, WIDTH)
    sum_k, sum_v = _sum_slots(
        q, grad, lse, delta, order,
        begin, tl.minimum(end, (begin // PART + 1) * PART),
        k_row, v_row, batch, key_head,
        heads, queries, slots, factor,
        q_batch_step, q_head_step, q_row_step, grad_batch_step, grad_head_step, grad_row_step,
    NEEDS_K, NEEDS_V, MEMBERS, WIDE, DIM, WIDTH, ROWS,
    )  # fmt: skip
    # Part p stands in row p - 1.
    table = (key_head.to(tl.int64) if MEMBERS else tl.zeros((), tl.int64)) * (parts - 1)
    lane = tl.arange(0, ROWS)
    after = tl.cdiv(end, PART) - 1
    for part in range(begin // PART, after, ROWS):
        exists = part + lane < after
        offset = (table + part + lane) * DIM
        if NEEDS_K:
            sum_k += tl.sum(rows_at(part_k, offset, exists, DIM, WIDTH), axis=0)
        if NEEDS_V:
            sum_v += tl.sum(rows_at(part_v, offset, exists, DIM, WIDTH), axis=0)
    column = tl.arange(0, WIDTH)
    target = program.to(tl.int64) * DIM + column
    if NEEDS_K:
        tl.store(grad_k + target, (sum_k * scale).to(grad_k.dtype.element_ty), mask=column < DIM)
    if NEEDS_V:
        tl.store(grad_v + target, sum_v.to(grad_v.dtype.element_ty), mask=column < DIM)
