"""Planning of layers in C++: one pass instead of dozens of array operations, with equal results.

It is compiled once per machine, in the background of the first frames. Until it is ready, and without a
compiler, every function here returns None and the array code plans instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparse_core.kernels import native
from sparse_core.kernels.native import int64_array

_NUMBER, _COST, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
PLANNING = native.BackgroundLibrary(
    Path(__file__).with_name("planning.cpp"),
    {
        "plan_taps": (
            None,
            [
                *[_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER, _NUMBER, _POINTER, _NUMBER, _POINTER],
                *[_NUMBER, *[_POINTER] * 5],
            ],
        ),
        "plan_reached": (_NUMBER, [_POINTER, _NUMBER, _NUMBER, *[_POINTER] * 4, _NUMBER, _POINTER]),
        "plan_blocks": (_NUMBER, [*[_POINTER] * 3, *[_NUMBER] * 4, _COST, *[_POINTER] * 3]),
        "plan_dilated": (_NUMBER, [_POINTER, *[_NUMBER] * 3, *[_POINTER] * 2]),
        "plan_rows": (None, [_POINTER, _NUMBER, _POINTER, *[_NUMBER] * 4, *[_POINTER] * 2]),
        "plan_tiles": (
            None,
            [_POINTER, _NUMBER, _NUMBER, *[_POINTER] * 4, *[_NUMBER] * 3, *[_POINTER] * 3],
        ),
    },
    "layers are planned with arrays",
)


class TapOrder(NamedTuple):
    """Order of output rows in which rows with the same taps are adjacent.

    Attributes:
        order: (M,) int64 row of each place.
        sets: (M,) uint16 taps of each place as bits, ascending: bit r for tap ``taps[r]``.
        taps: the taps, frequent ones first.
    """

    order: Tensor
    sets: npt.NDArray[np.uint16]
    taps: tuple[int, ...]


class PlannedTaps(NamedTuple):
    """Cells ordered by their taps.

    Attributes:
        ordered: cell of each place, and its taps.
        gathered: (M, K) int32 row under each tap of each place; ``inputs`` for a missing one.
        cells: (M, 1 + D) int64 in that order; undefined if the map has other cells.
    """

    ordered: TapOrder
    gathered: Tensor
    cells: Tensor


def plan_taps(
    cells: Tensor,
    multiply: Sequence[int],
    strides: Sequence[int],
    margin: int,
    offsets: Sequence[int],
    rows: Tensor,
    inputs: int | None,
) -> PlannedTaps | None:
    """Find the neighbours of cells in a map of rows.

    Args:
        cells: (M, 1 + D) int64.
        multiply: factors of the cells, D + 1.
        strides: of the map's keys, D + 1.
        margin: cells before the first one of every spatial axis.
        offsets: key offset of each tap; at most 16.
        rows: flat int32 map of keys to rows, -1 for none. If ``inputs`` is None, the map of the cells
            themselves, to be filled with their places.
        inputs: number of rows of the map; None for the cells.
    """
    library = PLANNING.library()
    if library is None:
        return None
    cells = cells.contiguous()
    count, axes = cells.shape
    taps = len(offsets)
    order = torch.empty(count, dtype=torch.int64)
    sets = np.empty(count, np.uint16)
    frequent = int64_array(*offsets)
    gathered = torch.empty((count, taps), dtype=torch.int32)
    in_order = torch.empty_like(cells) if inputs is None else cells
    library.plan_taps(
        cells.data_ptr(), count, axes, int64_array(*multiply), int64_array(*strides), margin,
        int64_array(*offsets), taps, rows.data_ptr(), -1 if inputs is None else inputs, order.data_ptr(),
        sets.ctypes.data, frequent, gathered.data_ptr(), in_order.data_ptr(),
    )  # fmt: skip
    return PlannedTaps(TapOrder(order, sets, tuple(frequent)), gathered, in_order)


def plan_reached(
    cells: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shape: Sequence[int],
    batch_size: int,
) -> Tensor | None:
    """Return the outputs (M, 1 + D) int64 of a strided layer that read some cells, in key order.

    Args:
        cells: (N, 1 + D) int64 distinct, in any order.
    """
    library = PLANNING.library()
    if library is None:
        return None
    cells = cells.contiguous()
    taps, places = 1, batch_size
    for size, wide in zip(kernel_size, shape, strict=True):
        taps, places = taps * size, places * wide
    reached = torch.empty((min(places, taps * len(cells)), cells.shape[1]), dtype=torch.int64)
    count = library.plan_reached(
        cells.data_ptr(), *cells.shape, int64_array(*kernel_size), int64_array(*stride),
        int64_array(*padding), int64_array(*shape), batch_size, reached.data_ptr(),
    )  # fmt: skip
    return reached[:count]


class PlannedBlocks(NamedTuple):
    """Blocks of rows.

    Attributes:
        starts: first row of each, then the number of rows.
        used: taps of each as bits: bit t for tap t.
        rows: int32 gathered rows of the blocks that lack a tap, concatenated.
    """

    starts: list[int]
    used: list[int]
    rows: Tensor


def plan_blocks(
    ordered: TapOrder, gathered: Tensor, size: int, row_cost: float | None
) -> PlannedBlocks | None:
    """Cut rows that are ordered by their taps into blocks.

    Args:
        gathered: (M, K) int32, M at least 1.
        row_cost: cost of a range in taps of a row; None does not cut by taps.
    """
    library = PLANNING.library()
    if library is None:
        return None
    gathered = gathered.contiguous()
    count, taps = gathered.shape
    starts, used = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    rows = torch.empty(count * taps, dtype=torch.int32)
    blocks = library.plan_blocks(
        ordered.sets.ctypes.data, int64_array(*ordered.taps), gathered.data_ptr(), count, taps, size,
        row_cost is not None, row_cost or 0.0, starts.ctypes.data, used.ctypes.data, rows.data_ptr(),
    )  # fmt: skip
    return PlannedBlocks(starts[: blocks + 1].tolist(), used[:blocks].tolist(), rows)


def plan_dilated(near: Tensor) -> tuple[Tensor, Tensor] | None:
    """Find the cells within one cell of those of maps, diagonals included.

    Args:
        near: (B, H, W) bool.

    Returns:
        The wider map (B, H, W) bool, and its cells (M, 3) int64.
    """
    library = PLANNING.library()
    if library is None:
        return None
    near = near.contiguous()
    wider = torch.empty_like(near)
    cells = torch.empty((near.numel(), 3), dtype=torch.int64)
    count = library.plan_dilated(near.data_ptr(), *near.shape, wider.data_ptr(), cells.data_ptr())
    return wider, cells[:count]


def plan_rows(
    cells: Tensor, empty: Tensor, others: int, batch_size: int, margins: Sequence[Sequence[int]]
) -> Tensor | None:
    """Return the rows of the cells of maps: listed cells, then those of an empty scene; zero rows in margins.

    Args:
        cells: (M, 3) int64.
        empty: (H, W) int32 row of the empty scene of every cell.
        margins: cells before and after each axis.
    """
    library = PLANNING.library()
    if library is None:
        return None
    cells, empty = cells.contiguous(), empty.contiguous()
    (above, below), (left, right) = margins
    height, width = empty.shape
    rows = torch.empty((batch_size, height + above + below, width + left + right), dtype=torch.int32)
    library.plan_rows(
        cells.data_ptr(), len(cells), empty.data_ptr(), others, batch_size, height, width,
        int64_array(above, below, left, right), rows.data_ptr(),
    )  # fmt: skip
    return rows


class PlannedTiles(NamedTuple):
    """Tiles of a layer.

    Attributes:
        reads: int32 input rows, by part, place in the tile and tile.
        places: (M,) int32 computed row of each output row.
        tiles: number of tiles.
        together: number of tiles of a part.
    """

    reads: Tensor
    places: Tensor
    tiles: int
    together: int


def plan_tiles(
    cells: Tensor,
    batch_size: int,
    counts: Sequence[int],
    bits: Sequence[int],
    rows: Tensor,
    strides: Sequence[int],
    origin: int,
    channels: int,
    most_read: int,
) -> PlannedTiles | None:
    """Find the tiles that hold some cells, and the rows that they read.

    Args:
        cells: (M, 3) int64.
        counts: tiles down and across a map.
        bits: cells of a tile along each axis, as powers of two.
        rows: flat map of the input with margins; strides, origin: of it.
        most_read: most numbers that the tiles of a part read.
    """
    library = PLANNING.library()
    if library is None:
        return None
    cells = cells.contiguous()
    height, width = 1 << bits[0], 1 << bits[1]
    most = min(len(cells), batch_size * counts[0] * counts[1])
    reads = torch.empty((height + 2) * (width + 2) * most, dtype=torch.int32)
    places, tiles = torch.empty(len(cells), dtype=torch.int32), int64_array(0, 0)
    library.plan_tiles(
        cells.data_ptr(), len(cells), batch_size, int64_array(*counts), int64_array(*bits), rows.data_ptr(),
        int64_array(*strides), origin, channels, most_read, reads.data_ptr(), places.data_ptr(), tiles,
    )  # fmt: skip
    return PlannedTiles(reads, places, *tiles)
