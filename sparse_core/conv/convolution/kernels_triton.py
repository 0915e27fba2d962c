"""Kernels of the sparse convolution in Triton.

Input rows are int32 or int64 entries of a table with any strides; an entry below 0, or at the number of
inputs or above, is a missing input. ``WIDE`` computes offsets in 64 bits, for 2^31 elements and more.
"""

# ruff: noqa: RUF005  (tuples in kernels grow by addition)
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def _entries(table, row, tap, rows, stride_row, stride_tap, WIDE: tl.constexpr):
    """Entries of the table under taps; -1 behind the last row. ``row`` and ``tap`` broadcast."""
    if WIDE:
        offset = row.to(tl.int64) * stride_row + tl.cast(tap, tl.int64) * stride_tap
        index = tl.load(table + offset, mask=row < rows, other=-1).to(tl.int64)
    else:
        index = tl.load(table + (row * stride_row + tap * stride_tap), mask=row < rows, other=-1).to(tl.int32)
    return index


@triton.jit
def _present(index, inputs):
    """Missing inputs as -1, whatever the table's sign of them."""
    return tl.where(index < inputs, index, -1)


@triton.jit
def _place(row, channel, CHANNELS: tl.constexpr, WIDE: tl.constexpr):
    """Offsets of (rows, channels)."""
    if WIDE:
        place = row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    else:
        place = row[:, None] * CHANNELS + channel[None, :]
    return place


@triton.jit
def _gather(features, index, first, CHANNELS_IN: tl.constexpr, BLOCK_IN: tl.constexpr):
    """(rows, BLOCK_IN) features from channel ``first`` of rows ``index``; zeros where it is negative."""
    channel = first + tl.arange(0, BLOCK_IN)
    mask = (index >= 0)[:, None]
    if CHANNELS_IN % BLOCK_IN != 0:
        mask = mask & (channel < CHANNELS_IN)[None, :]
    return tl.load(features + index[:, None] * CHANNELS_IN + channel[None, :], mask=mask, other=0.0)


@triton.jit
def _matrix(
    weight, tap, first, channel_out,
    CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr, WEIGHT_TAP: tl.constexpr, WEIGHT_IN: tl.constexpr,
    WEIGHT_OUT: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
):  # fmt: skip
    """(BLOCK_IN, BLOCK_OUT) of one tap's matrix."""
    channel = first + tl.arange(0, BLOCK_IN)
    place = weight + tap * WEIGHT_TAP + channel[:, None] * WEIGHT_IN + channel_out[None, :] * WEIGHT_OUT
    if CHANNELS_IN % BLOCK_IN == 0 and CHANNELS_OUT % BLOCK_OUT == 0:
        matrix = tl.load(place)
    else:
        mask = (channel < CHANNELS_IN)[:, None] & (channel_out < CHANNELS_OUT)[None, :]
        matrix = tl.load(place, mask=mask, other=0.0)
    return matrix


@triton.jit(do_not_specialize=["rows", "inputs"])
def convolve_kernel(
    features, weight, table, count, bias, residual, residual_rows, out, out_rows,
    rows, inputs,
    stride_row, stride_tap,
    CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr, TAPS: tl.constexpr, WEIGHT_TAP: tl.constexpr,
    WEIGHT_IN: tl.constexpr, WEIGHT_OUT: tl.constexpr, HAS_COUNT: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_RESIDUAL_ROWS: tl.constexpr, HAS_OUT_ROWS: tl.constexpr,
    RELU: tl.constexpr, ZERO_EMPTY: tl.constexpr, WIDE: tl.constexpr, VARIANT: tl.constexpr,
    TAP_LANES: tl.constexpr, AHEAD: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr, READY: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rows ``[i * BLOCK_ROWS, ...)`` and output channels ``[j * BLOCK_OUT, ...)``; j runs fastest.

    ``READY``: table, count and rows were complete before the launch before this one began.
    """
    if not READY:
        wait_for_launch(DEPENDENT)
    OUT_BLOCKS: tl.constexpr = (CHANNELS_OUT + BLOCK_OUT - 1) // BLOCK_OUT
    IN_BLOCKS: tl.constexpr = (CHANNELS_IN + BLOCK_IN - 1) // BLOCK_IN
    program = tl.program_id(0)
    first_row = (program // OUT_BLOCKS) * BLOCK_ROWS
    row = first_row + tl.arange(0, BLOCK_ROWS)
    channel_out = (program % OUT_BLOCKS) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    # Entries are asked for before the count is waited for.
    lane = tl.arange(0, TAP_LANES)
    entries = ()
    if VARIANT == "preloaded":
        lanes = tl.where(lane < TAPS, lane, 0)
        entries = _entries(table, row[:, None], lanes[None, :], rows, stride_row, stride_tap, WIDE)
    if VARIANT == "unrolled":
        for tap in tl.static_range(TAPS):
            entries = entries + (_entries(table, row, tap, rows, stride_row, stride_tap, WIDE),)
    known = channel_out < CHANNELS_OUT
    # What is added at the end is on its way during the loop, where it does not take too many registers.
    EARLY: tl.constexpr = BLOCK_ROWS * BLOCK_OUT <= 4096
    if HAS_BIAS and EARLY:
        shift = tl.load(bias + channel_out, mask=known, other=0.0)
    limit = rows
    if HAS_COUNT:
        limit = tl.minimum(tl.load(count), rows)
    if READY:
        wait_for_launch(DEPENDENT)
    if first_row >= limit:
        return
    written = (row < limit)[:, None] & known[None, :]
    place = _place(row, channel_out, CHANNELS_OUT, WIDE)
    if HAS_RESIDUAL_ROWS:
        source = tl.load(residual_rows + row, mask=row < limit, other=-1)
        added = written & (source >= 0)[:, None]
        addend_place = _place(source, channel_out, CHANNELS_OUT, WIDE)
    else:
        added = written
        addend_place = place
    if HAS_OUT_ROWS:
        target = tl.load(out_rows + row, mask=row < limit, other=-1)
        written = written & (target >= 0)[:, None]
        place = _place(target, channel_out, CHANNELS_OUT, WIDE)
    if HAS_RESIDUAL and EARLY:
        addend = tl.load(residual + addend_place, mask=added, other=0.0)
    sums = tl.zeros((BLOCK_ROWS, BLOCK_OUT), tl.float32)
    taken = tl.zeros((BLOCK_ROWS,), tl.int32)
    if VARIANT == "preloaded":
        entries = _present(entries, inputs)
        if ZERO_EMPTY:
            taken = tl.max((entries >= 0).to(tl.int32), axis=1)
    if VARIANT != "unrolled":
        for step in tl.range(0, TAPS * IN_BLOCKS):
            tap = step // IN_BLOCKS
            first = (step % IN_BLOCKS) * BLOCK_IN
            if VARIANT == "preloaded":
                # One lane of each row; the others add nothing.
                index = tl.sum(tl.where((lane == tap)[None, :], entries, 0), axis=1)
            else:
                index = _present(_entries(table, row, tap, rows, stride_row, stride_tap, WIDE), inputs)
                if ZERO_EMPTY:
                    taken = taken | (index >= 0).to(tl.int32)
            x = _gather(features, index, first, CHANNELS_IN, BLOCK_IN)
            matrix = _matrix(
                weight, tap, first, channel_out, CHANNELS_IN, CHANNELS_OUT,
                WEIGHT_TAP, WEIGHT_IN, WEIGHT_OUT, BLOCK_IN, BLOCK_OUT,
            )  # fmt: skip
            sums = tl.dot(x, matrix, sums, input_precision="ieee")
    else:
        gathered = ()
        matrices = ()
        for step in tl.static_range(TAPS + AHEAD):
            if step < TAPS:
                index = _present(entries[step], inputs)
                if ZERO_EMPTY:
                    taken = taken | (index >= 0).to(tl.int32)
                gathered = gathered + (_gather(features, index, 0, CHANNELS_IN, BLOCK_IN),)
                matrices = matrices + (
                    _matrix(
                        weight, step, 0, channel_out, CHANNELS_IN, CHANNELS_OUT,
                        WEIGHT_TAP, WEIGHT_IN, WEIGHT_OUT, BLOCK_IN, BLOCK_OUT,
                    ),
                )  # fmt: skip
            if step >= AHEAD:
                sums = tl.dot(gathered[step - AHEAD], matrices[step - AHEAD], sums, input_precision="ieee")
    if HAS_BIAS:
        if not EARLY:
            shift = tl.load(bias + channel_out, mask=known, other=0.0)
        sums += shift.to(tl.float32)[None, :]
    if HAS_RESIDUAL:
        if not EARLY:
            addend = tl.load(residual + addend_place, mask=added, other=0.0)
        sums += addend.to(tl.float32)
    if RELU:
        sums = tl.maximum(sums, 0.0)
    if ZERO_EMPTY:
        sums = tl.where((taken > 0)[:, None], sums, 0.0)
    begin_next(DEPENDENT)
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=["rows", "inputs"])
def weight_gradient_kernel(
    features, grad, table, partial,
    rows, inputs,
    stride_row, stride_tap, rows_each, weight_size,
    CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr, WEIGHT_TAP: tl.constexpr, WEIGHT_IN: tl.constexpr,
    WEIGHT_OUT: tl.constexpr, WIDE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):  # fmt: skip
    """One tap's outer products summed over ``rows_each`` rows; program (tile, tap, part of the rows)."""
    OUT_BLOCKS: tl.constexpr = (CHANNELS_OUT + BLOCK_OUT - 1) // BLOCK_OUT
    tile = tl.program_id(0)
    tap = tl.program_id(1)
    part = tl.program_id(2)
    first_in = (tile // OUT_BLOCKS) * BLOCK_IN
    channel_in = first_in + tl.arange(0, BLOCK_IN)
    channel_out = (tile % OUT_BLOCKS) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    first_row = part * rows_each
    last_row = tl.minimum(first_row + rows_each, rows)
    sums = tl.zeros((BLOCK_IN, BLOCK_OUT), tl.float32)
    for start in tl.range(first_row, last_row, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        index = _present(_entries(table, row, tap, last_row, stride_row, stride_tap, WIDE), inputs)
        x = _gather(features, index, first_in, CHANNELS_IN, BLOCK_IN)
        mask = (row < last_row)[:, None] & (channel_out < CHANNELS_OUT)[None, :]
        upstream = tl.load(grad + _place(row, channel_out, CHANNELS_OUT, WIDE), mask=mask, other=0.0)
        sums = tl.dot(tl.trans(x), upstream, sums, input_precision="ieee")
    place = tap * WEIGHT_TAP + channel_in[:, None] * WEIGHT_IN + channel_out[None, :] * WEIGHT_OUT
    known = (channel_in < CHANNELS_IN)[:, None] & (channel_out < CHANNELS_OUT)[None, :]
    tl.store(partial + part.to(tl.int64) * weight_size + place, sums, mask=known)
