"""Triton kernels of the sparse matrix-vector product.

Sums are in ``ACC`` (float32, or float64 for double operands), in an order that depends only on the
structure, so results are bitwise reproducible. Entries beyond a row's end and padding are never multiplied.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def scalar_kernel(  # type: ignore[no-untyped-def]
    row_ptr, col, values, x, y, rows, ROWS: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr
):
    """CSR, a thread a row, for rows of at most ``STEPS`` entries: every load is independent."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    total = tl.zeros((ROWS,), ACC)
    for step in tl.static_range(STEPS):
        live = start + step < end
        column = tl.load(col + start + step, mask=live, other=0)
        value = tl.load(values + start + step, mask=live, other=0)
        total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    tl.store(y + row, total, mask=inside)


@triton.jit
def scalar_loop_kernel(  # type: ignore[no-untyped-def]
    row_ptr, col, values, x, y, rows, ROWS: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr
):
    """CSR, a thread a row, any length."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    longest = tl.max(end - start, axis=0)
    total = tl.zeros((ROWS,), ACC)
    for base in range(0, longest, STEPS):
        for step in tl.static_range(STEPS):
            at = start + base + step
            live = at < end
            column = tl.load(col + at, mask=live, other=0)
            value = tl.load(values + at, mask=live, other=0)
            total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    tl.store(y + row, total, mask=inside)


@triton.jit
def vector_kernel(  # type: ignore[no-untyped-def]
    row_ptr, col, values, x, y, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr, ACC: tl.constexpr
):
    """CSR, ``WIDTH`` lanes a row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    longest = tl.max(end - start, axis=0)
    lane = tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), ACC)
    for base in range(0, longest, WIDTH):
        at = start[:, None] + (base + lane)[None, :]
        live = at < end[:, None]
        column = tl.load(col + at, mask=live, other=0, eviction_policy="evict_first")
        value = tl.load(values + at, mask=live, other=0, eviction_policy="evict_first")
        total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    tl.store(y + row, tl.sum(total, axis=1), mask=inside)


@triton.jit
def adaptive_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    col,
    values,
    x,
    y,
    piece_start,
    piece_end,
    piece_row,
    partial,
    rows,
    pieces,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    WIDTH: tl.constexpr,
    LINE: tl.constexpr,
    ACC: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """CSR, pieces of long rows first, then a thread a row for those of at most ``STEPS`` entries.

    See ``AdaptivePlan``. Pieces are read from the beginning of a line of memory on, as by the merge kernel.
    """
    program = tl.program_id(0)
    begin_next(DEPENDENT)
    if program < pieces:
        first = tl.load(piece_start + program)
        behind = tl.load(piece_end + program)
        whole = tl.load(piece_row + program)
        lanes = tl.zeros((WIDTH,), ACC)
        # The compiler sees that a product begins a line, and loads four entries at once.
        for base in range(first // LINE * LINE, behind, WIDTH):
            at = base + tl.arange(0, WIDTH)
            if (base >= first) & (base + WIDTH <= behind):
                column = tl.load(col + at, eviction_policy="evict_first")
                value = tl.load(values + at, eviction_policy="evict_first")
                lanes += value.to(ACC) * tl.load(x + column).to(ACC)
            else:
                live = (at >= first) & (at < behind)
                column = tl.load(col + at, mask=live, other=0, eviction_policy="evict_first")
                value = tl.load(values + at, mask=live, other=0, eviction_policy="evict_first")
                lanes += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
        piece = tl.sum(lanes, axis=0)
        tl.store(partial + program, piece)
        tl.store(y + whole, piece, mask=whole >= 0)
    else:
        row = (program - pieces) * ROWS + tl.arange(0, ROWS)
        inside = row < rows
        start = tl.load(row_ptr + row, mask=inside, other=0)
        end = tl.load(row_ptr + row + 1, mask=inside, other=0)
        inside = inside & (end - start <= STEPS)
        total = tl.zeros((ROWS,), ACC)
        for step in tl.static_range(STEPS):
            live = inside & (start + step < end)
            column = tl.load(col + start + step, mask=live, other=0)
            value = tl.load(values + start + step, mask=live, other=0)
            total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
        tl.store(y + row, total, mask=inside)


@triton.jit
def _add_within_row(first_a, sum_a, first_b, sum_b):  # type: ignore[no-untyped-def]
    """Operator of the segmented scan: a sum starts anew at the first entry of a row."""
    return first_a | first_b, tl.where(first_b != 0, sum_b, sum_a + sum_b)


@triton.jit
def merge_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    row_starts,
    first_row,
    col,
    values,
    x,
    y,
    head,
    tail,
    entries,
    SHARE: tl.constexpr,
    LINE: tl.constexpr,
    ACC: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """CSR by equal parts of the merged row ends and entries; see ``MergePlan``.

    ``tail[p]`` is what program p has of a row that ends later, ``head[p]`` the end of a row begun earlier.
    The type of ``first_row`` is wide enough for all positions. Entries are read from the beginning of a
    line of memory on, so that no warp reads two: what limits this kernel is how many lines the second-level
    cache looks up.
    """
    program = tl.program_id(0)
    begin_next(DEPENDENT)
    row = tl.load(first_row + program)
    row_end = tl.load(first_row + program + 1)
    entry = program.to(row.dtype) * SHARE - row
    entry_end = tl.minimum((program.to(row.dtype) + 1) * SHARE - row_end, entries)
    base = entry & -LINE
    item = tl.arange(0, SHARE + LINE)
    at = base + item
    live = (at >= entry) & (at < entry_end)
    column = tl.load(col + at, mask=live, other=0, eviction_policy="evict_first")
    value = tl.load(values + at, mask=live, other=0, eviction_policy="evict_first")
    word = tl.load(row_starts + (at >> 5), mask=live, other=0)
    first = (word >> (at & 31).to(tl.int32)) & 1
    product = value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    product = tl.where(live, product, 0.0)
    _, running = tl.associative_scan((first, product), 0, _add_within_row)
    ends_here = item < row_end - row
    begin = tl.load(row_ptr + row + item, mask=ends_here, other=0)
    end = tl.load(row_ptr + row + item + 1, mask=ends_here, other=0)
    total = tl.gather(running, tl.maximum(end - base - 1, 0).to(tl.int32), 0)
    total = tl.where((end > entry) & (end > begin), total, 0.0)
    begun_earlier = (item == 0) & (begin < entry)
    tl.store(y + row + item, total, mask=ends_here & ~begun_earlier)
    tl.store(head + program + item, total, mask=ends_here & (item == 0))
    # Rows begin before the entries that are left after the last row end, if there are any.
    left = tl.load(row_ptr + row_end) < entry_end
    tl.store(tail + program, tl.sum(tl.where((at == entry_end - 1) & live & left, running, 0.0), axis=0))


@triton.jit
def join_kernel(  # type: ignore[no-untyped-def]
    rows,
    first,
    last,
    head,
    tail,
    y,
    narrow,
    groups,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    HEADED: tl.constexpr,
    ACC: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Add the parts of rows, ``ROWS`` rows of few parts a program or one of many; see ``JoinPlan``.

    With ``HEADED`` a row ends in another array, at the place of its last part.
    """
    if tl.program_id(0) < groups:
        number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        inside = number < narrow
        row = tl.load(rows + number, mask=inside, other=0)
        start = tl.load(first + number, mask=inside, other=0)
        end = tl.load(last + number, mask=inside, other=0)
        wait_for_launch(DEPENDENT)
        total = tl.zeros((ROWS, WIDTH), ACC)
        for base in range(0, tl.max(end - start, axis=0), WIDTH):
            at = start[:, None] + base + tl.arange(0, WIDTH)[None, :]
            total += tl.load(tail + at, mask=at < end[:, None], other=0)
        joined = tl.sum(total, axis=1)
        if HEADED:
            joined += tl.load(head + end, mask=inside, other=0)
        tl.store(y + row, joined, mask=inside)
    else:
        which = narrow + tl.program_id(0) - groups
        begin = tl.load(first + which)
        behind = tl.load(last + which)
        wait_for_launch(DEPENDENT)
        lanes = tl.zeros((WIDE,), ACC)
        for base in range(begin, behind, WIDE):
            part = base + tl.arange(0, WIDE)
            lanes += tl.load(tail + part, mask=part < behind, other=0)
        whole = tl.sum(lanes, axis=0)
        if HEADED:
            whole += tl.load(head + behind)
        tl.store(y + tl.load(rows + which), whole)


@triton.jit
def pattern_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    pattern,
    offsets,
    lengths,
    values,
    x,
    y,
    rows,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
):
    """CSR, a thread a row, columns from the row's pattern; see ``PatternPlan``."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    number = tl.load(pattern + row, mask=inside, other=0).to(tl.int32)
    length = tl.load(lengths + number, mask=inside, other=0)
    total = tl.zeros((ROWS,), ACC)
    for step in tl.static_range(STEPS):
        live = step < length
        value = tl.load(values + start + step, mask=live, other=0)
        offset = tl.load(offsets + number * WIDTH + step, mask=live, other=0)
        total += value.to(ACC) * tl.load(x + row + offset, mask=live, other=0).to(ACC)
    tl.store(y + row, total, mask=inside)


@triton.jit
def sliced_kernel(  # type: ignore[no-untyped-def]
    slice_ptr,
    col,
    values,
    lengths,
    row_order,
    pattern,
    offsets,
    x,
    y,
    rows,
    HEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    UNROLLED: tl.constexpr,
    PATTERNED: tl.constexpr,
    WIDTH: tl.constexpr,
    ORDERED: tl.constexpr,
    ACC: tl.constexpr,
):
    """Sliced ELL, a thread a row; neighbouring threads read neighbouring values.

    ``lengths`` are those of the stored rows, or with ``PATTERNED`` those of the patterns; ``UNROLLED``
    means that none exceeds ``STEPS``.
    """
    stored = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = stored < rows
    base = tl.load(slice_ptr + stored // HEIGHT, mask=inside, other=0) + stored % HEIGHT
    number = stored
    if PATTERNED:
        number = tl.load(pattern + stored, mask=inside, other=0).to(tl.int32)
    length = tl.load(lengths + number, mask=inside, other=0)
    longest = STEPS
    if not UNROLLED:
        longest = tl.max(length, axis=0)
    total = tl.zeros((ROWS,), ACC)
    for begin in range(0, longest, STEPS):
        for step in tl.static_range(STEPS):
            live = begin + step < length
            at = base + (begin + step) * HEIGHT
            value = tl.load(values + at, mask=live, other=0, eviction_policy="evict_first")
            if PATTERNED:
                column = stored + tl.load(offsets + number * WIDTH + begin + step, mask=live, other=0)
            else:
                column = tl.load(col + at, mask=live, other=0, eviction_policy="evict_first")
            total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    row = stored
    if ORDERED:
        row = tl.load(row_order + stored, mask=inside, other=0)
    tl.store(y + row, total, mask=inside)


@triton.jit
def ell_kernel(  # type: ignore[no-untyped-def]
    col,
    values,
    lengths,
    x,
    y,
    rows,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    UNROLLED: tl.constexpr,
    ACC: tl.constexpr,
):
    """ELL, a thread a row; entry k of all rows lies together. ``UNROLLED``: no row exceeds ``STEPS``."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    length = tl.load(lengths + row, mask=inside, other=0)
    longest = STEPS
    if not UNROLLED:
        longest = tl.max(length, axis=0)
    zero = tl.zeros((ROWS,), tl.int64)
    total = tl.zeros((ROWS,), ACC)
    for begin in range(0, longest, STEPS):
        for step in tl.static_range(STEPS):
            live = begin + step < length
            at = (zero + begin + step) * rows + row
            column = tl.load(col + at, mask=live, other=0, eviction_policy="evict_first")
            value = tl.load(values + at, mask=live, other=0, eviction_policy="evict_first")
            total += value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    tl.store(y + row, total, mask=inside)


@triton.jit
def compact_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    delta,
    values,
    x,
    y,
    rows,
    anchor_offset,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    ACC: tl.constexpr,
):
    """Compact CSR, a thread a row, for rows of at most ``STEPS`` stored entries."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    column = tl.maximum(row + anchor_offset, 0)
    total = tl.zeros((ROWS,), ACC)
    for step in tl.static_range(STEPS):
        live = start + step < end
        column += tl.load(delta + start + step, mask=live, other=0).to(tl.int32) & 0xFFFF
        value = tl.load(values + start + step, mask=live, other=0)
        # The bits of -0.0 mark a filler, which only moves the column on.
        live = live & (value.to(tl.int16, bitcast=True) != -32768)
        product = value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
        total += tl.where(live, product, 0.0)
    tl.store(y + row, total, mask=inside)


@triton.jit
def compact_vector_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    delta,
    values,
    x,
    y,
    rows,
    anchor_offset,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
):
    """Compact CSR, ``WIDTH`` lanes a row; columns are running sums of the gaps."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    start = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    longest = tl.max(end - start, axis=0)
    cursor = tl.maximum(row + anchor_offset, 0)
    lane = tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), ACC)
    for base in range(0, longest, WIDTH):
        at = start[:, None] + (base + lane)[None, :]
        live = at < end[:, None]
        gap = tl.load(delta + at, mask=live, other=0).to(tl.int32) & 0xFFFF
        value = tl.load(values + at, mask=live, other=0)
        column = cursor[:, None] + tl.cumsum(gap, axis=1)
        cursor += tl.sum(gap, axis=1)
        live = live & (value.to(tl.int16, bitcast=True) != -32768)
        product = value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
        total += tl.where(live, product, 0.0)
    tl.store(y + row, tl.sum(total, axis=1), mask=inside)


@triton.jit
def block_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    col,
    values,
    x,
    y,
    rows,
    columns,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    PADDED_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    ACC: tl.constexpr,
):
    """BSR, ``ROWS`` rows of a block row a program, ``GROUP`` blocks at a time."""
    parts: tl.constexpr = (BLOCK_ROWS + ROWS - 1) // ROWS
    block_row = tl.program_id(0) // parts
    local_row = (tl.program_id(0) % parts) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, GROUP * PADDED_COLUMNS)
    member = lane // PADDED_COLUMNS
    local_column = lane % PADDED_COLUMNS
    start = tl.load(row_ptr + block_row)
    end = tl.load(row_ptr + block_row + 1)
    total = tl.zeros((ROWS, GROUP * PADDED_COLUMNS), ACC)
    for first in range(start, end, GROUP):
        block = (first + member).to(tl.int64)
        live = (block < end) & (local_column < BLOCK_COLUMNS)
        column = tl.load(col + block, mask=live, other=0) * BLOCK_COLUMNS + local_column
        live = live & (column < columns)
        at = block[None, :] * (BLOCK_ROWS * BLOCK_COLUMNS) + local_row[:, None] * BLOCK_COLUMNS
        mask = live[None, :] & (local_row < BLOCK_ROWS)[:, None]
        value = tl.load(values + at + local_column[None, :], mask=mask, other=0)
        factor = tl.load(x + column, mask=live, other=0).to(ACC)
        product = value.to(ACC) * factor[None, :]
        total += tl.where(mask, product, 0.0)
    row = block_row * BLOCK_ROWS + local_row
    tl.store(y + row, tl.sum(total, axis=1), mask=(local_row < BLOCK_ROWS) & (row < rows))


@triton.jit
def group_kernel(  # type: ignore[no-untyped-def]
    index,
    values,
    x,
    y,
    rows,
    columns,
    slots,
    KEPT: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
):
    """N:M, ``WIDTH`` slots of a row at a time; slot s belongs to group s // KEPT of GROUP columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    total = tl.zeros((ROWS, WIDTH), ACC)
    for base in range(0, slots, WIDTH):
        slot = base + tl.arange(0, WIDTH)
        mask = inside[:, None] & (slot < slots)[None, :]
        at = row.to(tl.int64)[:, None] * slots + slot[None, :]
        column = (slot // KEPT * GROUP)[None, :] + tl.load(index + at, mask=mask, other=0).to(tl.int32)
        mask = mask & (column < columns)
        value = tl.load(values + at, mask=mask, other=0)
        total += value.to(ACC) * tl.load(x + column, mask=mask, other=0).to(ACC)
    tl.store(y + row, tl.sum(total, axis=1), mask=inside)
