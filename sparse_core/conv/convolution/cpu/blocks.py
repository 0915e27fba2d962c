"""Sparse convolution on a CPU as few matrix products over blocks of rows, planned once per level.

A block has as many output rows as fit the caches with their gathered inputs. Rows are ordered by their taps,
so that rows of a block have similar taps; taps that none of them has are neither gathered nor multiplied. All
layers of a level share the plan. Bias, residual and ReLU are applied while a block is in the cache. Inference
only, without gradients.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparse_core.common.workers import share_tasks, sharing_threads
from sparse_core.conv.convolution.cpu.compiled import TapOrder, plan_blocks

#: Floats gathered per block (or twice as many halves), two megabytes. Smaller blocks fit a second-level cache
#: and balance better among threads, but each block starts half a dozen operations.
BLOCK_ELEMENTS = 1 << 19
_FEWEST_ROWS = 64
#: Floats of contiguous rows that a thread copies or multiplies together.
PART_ELEMENTS = 1 << 18
#: Multiply-adds that take as long as starting another block.
BLOCK_COST = 1 << 22
#: With more taps there are too many sets of taps to compare.
_MOST_TAPS_IN_A_TREE = 12


class RowBlock(NamedTuple):
    """Output rows computed together.

    Attributes:
        start, stop: rows of the output.
        taps: (T,) int64 ascending taps that any of them has; None for all.
        rows: ((stop - start) * T,) int32 input row of each tap of each output row, row-major.
    """

    start: int
    stop: int
    taps: Tensor | None
    rows: Tensor


def rows_by_taps(present: Tensor) -> TapOrder:
    """Order output rows by their taps, rare taps first, so that these meet in few blocks; stable.

    Args:
        present: (K, M) bool: row m has tap k; K at most 16.
    """
    count = len(present)
    if count > 16:
        raise ValueError(f"the kernel must have at most 16 taps, got {count}")
    frequency = present.sum(1).tolist()
    taps = tuple(sorted(range(count), key=lambda tap: (-frequency[tap], tap)))
    values = torch.zeros(count, dtype=torch.float32)
    values[list(taps)] = 2.0 ** torch.arange(count, dtype=torch.float32)
    # Sums of powers of two below 2^16 are exact in float32, and a product beats integer arithmetic.
    codes = (values @ present.float()).numpy().astype(np.uint16)
    # numpy sorts 16-bit numbers by radix.
    order = np.argsort(codes, kind="stable")
    return TapOrder(torch.from_numpy(order), codes[order], taps)


def tap_ranges(sets: npt.NDArray[np.uint16], taps: int, row_cost: float) -> list[int]:
    """Return the cheapest cuts of rows that are ordered by their taps.

    It chooses the cheapest pruning of the binary tree over sets: rows of a range agree in their rarest taps.

    Args:
        sets: (M,) ascending, at least one.
        row_cost: cost of a range, in taps of a row.

    Returns:
        Ascending bounds, from 0 to M.
    """
    counts = np.bincount(sets, minlength=1 << taps)
    unions = np.where(counts > 0, np.arange(1 << taps), 0)
    bits = _set_sizes(taps)
    best, divided, rows = counts * bits[unions] + row_cost * (counts > 0), [], counts
    for _ in range(taps):
        rows, unions = rows[0::2] + rows[1::2], unions[0::2] | unions[1::2]
        whole, halves = rows * bits[unions] + row_cost * (rows > 0), best[0::2] + best[1::2]
        divided.append(halves < whole)
        best = np.minimum(halves, whole)
    starts = np.zeros(1 << taps, dtype=np.bool_)
    reached = np.ones(1, dtype=np.bool_)
    for level in range(taps - 1, -1, -1):
        cut = reached & divided[level]
        starts[(2 * np.flatnonzero(cut) + 1) << level] = True
        reached = np.repeat(cut, 2)
    before = np.cumsum(counts) - counts
    return sorted({0, *before[starts].tolist(), len(sets)})


@functools.cache
def _set_sizes(taps: int) -> npt.NDArray[np.int64]:
    """Return the number of taps of each set."""
    sizes: npt.NDArray[np.int64] = (np.arange(1 << taps)[:, None] >> np.arange(taps) & 1).sum(axis=1)
    return sizes


def even_blocks(
    rows: Tensor, channels: int, ordered: TapOrder, dtype: torch.dtype = torch.float32
) -> list[RowBlock]:
    """Cut a table of neighbours into blocks.

    Args:
        rows: (M, K) int32 of ``gather_rows``.
        channels: width of the input, which decides the rows of a block.
        ordered: taps of the rows, in their order.
    """
    count, taps = rows.shape
    if count == 0:
        return []
    size = max(_FEWEST_ROWS, 4 * BLOCK_ELEMENTS // (taps * channels * dtype.itemsize) // 64 * 64)
    row_cost = BLOCK_COST / channels**2 if taps <= _MOST_TAPS_IN_A_TREE else None
    planned = plan_blocks(ordered, rows, size, row_cost)
    if planned is None:
        return _blocks(rows, ordered, size, row_cost)
    blocks, first = [], 0
    for (start, stop), used in zip(itertools.pairwise(planned.starts), planned.used, strict=True):
        chosen = _taps_of_set(used, taps)
        if chosen is None:
            blocks.append(RowBlock(start, stop, None, rows[start:stop].view(-1)))
        else:
            end = first + (stop - start) * len(chosen)
            blocks.append(RowBlock(start, stop, chosen, planned.rows[first:end]))
            first = end
    return blocks


def _blocks(rows: Tensor, ordered: TapOrder, size: int, row_cost: float | None) -> list[RowBlock]:
    """Cut rows into blocks of at most ``size``, by their taps if a range costs ``row_cost``."""
    count, taps = rows.shape
    bounds = [0, count] if row_cost is None else tap_ranges(ordered.sets, taps, row_cost)
    bounds = [
        bound for start, stop in itertools.pairwise(bounds) for bound in _split_evenly(start, stop, size)
    ]
    bounds.append(count)
    blocks = []
    unions = np.bitwise_or.reduceat(ordered.sets, bounds[:-1]).tolist()
    for (start, stop), union in zip(itertools.pairwise(bounds), unions, strict=True):
        part = rows[start:stop]
        chosen = _taps_of_set(
            sum(1 << tap for place, tap in enumerate(ordered.taps) if union >> place & 1), taps
        )
        if chosen is None:
            blocks.append(RowBlock(start, stop, None, part.reshape(-1)))
        else:
            blocks.append(RowBlock(start, stop, chosen, part.index_select(1, chosen).view(-1)))
    return blocks


@functools.cache
def _taps_of_set(used: int, taps: int) -> Tensor | None:
    """Return the taps (T,) int64 of a set of bits; None for all of them."""
    chosen = [tap for tap in range(taps) if used >> tap & 1]
    if len(chosen) == taps:
        return None
    # The cache outlives inference mode.
    with torch.inference_mode(False):
        return torch.tensor(chosen)


def _split_evenly(start: int, stop: int, size: int) -> list[int]:
    """Return starts of equal parts of at most this size."""
    parts = -(-(stop - start) // size)
    return [start + (stop - start) * part // parts for part in range(parts)]


class RowPool:
    """Reused memory for rows, because new memory costs a page fault every four kilobytes; not thread-safe.

    Args:
        dtype: default type of rows.
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._free: list[Tensor] = []
        self._taken: dict[int, Tensor] = {}

    def take(self, count: int, channels: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return (count, channels) uninitialised rows."""
        dtype = self.dtype if dtype is None else dtype
        # Memory is float32 for rows of any type.
        needed = -(-count * channels * dtype.itemsize // 4)
        fitting = [place for place, flat in enumerate(self._free) if flat.numel() >= needed]
        if fitting:
            flat = self._free.pop(min(fitting, key=lambda place: self._free[place].numel()))
        else:
            # Allocate some reserve for larger frames. Inference tensors cannot be written outside that mode.
            with torch.inference_mode(False):
                flat = torch.empty(max(1, needed + needed // 4), dtype=torch.float32)
        self._taken[flat.untyped_storage().data_ptr()] = flat
        return flat[:needed].view(dtype)[: count * channels].view(count, channels)

    def take_with_zero_row(self, count: int, channels: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return (count + 1, channels) uninitialised rows; the last one is zero, for missing taps."""
        rows = self.take(count + 1, channels, dtype)
        rows[count:].zero_()
        return rows

    def give(self, *taken: Tensor) -> None:
        """Return rows to the pool; the caller must not use them any more."""
        for rows in taken:
            self._free.append(self._taken.pop(rows.untyped_storage().data_ptr()))


def rows_product(
    rows: Tensor, matrix: Tensor, *, out: Tensor, bias: Tensor | None = None, relu: bool = False
) -> Tensor:
    """Compute ``out = bias + rows @ matrix``, or ``out += rows @ matrix`` without a bias, part by part.

    Each part is a task of :func:`~sparse_core.common.workers.share_tasks`, so results do not depend on the
    number of threads.

    Args:
        rows: (N, C_in).
        matrix: (C_in, C_out).
        out: (N, C_out), written and returned.
        bias: (C_out,).
    """
    size = rows_of_part(max(matrix.shape), rows.dtype)

    def compute(part: int) -> None:
        result = _product(rows[part * size :][:size], matrix, out[part * size :][:size], bias)
        if relu:
            relu_rows_(result)

    share_tasks(compute, -(-len(rows) // size))
    return out


def rows_of_part(channels: int, dtype: torch.dtype = torch.float32) -> int:
    """Return the rows of this width that a thread computes together: a multiple of 64."""
    return max(_FEWEST_ROWS, PART_ELEMENTS * 4 // (channels * dtype.itemsize) // 64 * 64)


def take_rows(values: Tensor, rows: Tensor, *, out: Tensor) -> Tensor:
    """Compute ``out = values[rows]``, part by part.

    Args:
        values: (N, C).
        rows: (M,) integers.
        out: (M, C), written and returned.
    """
    size = rows_of_part(values.shape[1], values.dtype)

    def take(part: int) -> None:
        torch.index_select(values, 0, rows[part * size :][:size], out=out[part * size :][:size])

    share_tasks(take, -(-len(rows) // size))
    return out


def _product(rows: Tensor, matrix: Tensor, out: Tensor, bias: Tensor | None) -> Tensor:
    return out.addmm_(rows, matrix) if bias is None else torch.addmm(bias, rows, matrix, out=out)


def relu_rows_(rows: Tensor) -> Tensor:
    """Apply ReLU to contiguous rows in place."""
    if rows.dtype == torch.bfloat16:
        # The sign bit is the same as an integer, and integer clamping is five times as fast.
        rows.view(torch.int16).clamp_min_(0)
        return rows
    return rows.relu_()


def block_convolution(
    features: Tensor,
    weight: Tensor,
    blocks: list[RowBlock],
    *,
    out: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    relu: bool = False,
    pool: RowPool,
) -> Tensor:
    """Compute ``relu(sum over taps of features[rows[:, tap]] @ weight[tap] + bias + residual)`` by blocks.

    Args:
        features: (N + 1, C_in) float32 or bfloat16, like all other tensors; the last row is zero, for missing
            taps. Sums are float32, and rounded once without a residual.
        weight: (K, C_in, C_out) contiguous.
        blocks: cover the rows of the output.
        out: (at least M, C_out) contiguous; rows of the blocks are written. It must not share memory with the
            features.
        bias: (C_out,).
        residual: (at least M, C_out), added before the ReLU.

    Returns:
        ``out``.
    """
    channels_in, channels_out = weight.shape[1:]
    largest = max((block.rows.numel() for block in blocks), default=0)
    # Buffers per thread.
    memory = [
        (pool.take(largest, channels_in), pool.take(len(weight) * channels_in, channels_out))
        for _ in range(min(sharing_threads(), len(blocks)))
    ]
    free = deque(memory)
    # Start the longest blocks first, for an even load.
    in_order = sorted(blocks, key=lambda block: -block.rows.numel())
    whole = weight.view(-1, channels_out)

    def compute(number: int) -> None:
        block, (gathered, chosen) = in_order[number], free.pop()
        tile = gathered[: block.rows.numel()]
        torch.index_select(features, 0, block.rows, out=tile)
        matrix = whole
        if block.taps is not None:
            matrix = chosen[: block.taps.numel() * channels_in]
            torch.index_select(weight, 0, block.taps, out=matrix.view(-1, channels_in, channels_out))
        result = out[block.start : block.stop]
        tile = tile.view(block.stop - block.start, -1)
        if residual is None:
            _product(tile, matrix, result, bias)
        else:
            torch.add(residual[block.start : block.stop], bias, out=result)
            _product(tile, matrix, result, None)
        if relu:
            relu_rows_(result)
        free.append((gathered, chosen))

    share_tasks(compute, len(blocks))
    pool.give(*itertools.chain.from_iterable(memory))
    return out
