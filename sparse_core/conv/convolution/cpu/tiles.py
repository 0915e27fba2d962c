"""3x3 convolution on a CPU by tiles, for dense active cells: a third of the multiplications.

In float32 a tile is 2x4 output cells from 4x6 input cells, with 24 products per pair of channels instead of
72: F(2x2, 3x3) along one axis and F(4x4, 3x3) along the other (Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016). The error is about 1e-6 of the largest value; larger tiles would
lose more digits. In bfloat16 a tile is 2x2 cells, with 16 products instead of 36 and additions with factors
of one. Tiles without active cells are skipped; others are computed whole. Inference only, without gradients.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparse_core.common.workers import share_tasks, sharing_threads
from sparse_core.conv.convolution.cpu.blocks import RowPool, relu_rows_, rows_of_part
from sparse_core.conv.convolution.cpu.compiled import plan_tiles
from sparse_core.conv.convolution.cpu.keyed import merge_keys
from sparse_core.conv.coordinates.common import coordinates_from_keys, linear_keys

#: Margins of the input map for tiles of any shape: before and after, for rows and columns.
TILE_MARGINS = ((1, 2), (1, 4))
#: Floats read per part, the tiles that a thread computes together: a megabyte.
TILE_ELEMENTS = 1 << 18

_Matrix = list[list[float]]
_INPUT_2: _Matrix = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
_INPUT_4: _Matrix = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
_WEIGHT_2: _Matrix = [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]]
_WEIGHT_4: _Matrix = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
_OUTPUT_2: _Matrix = [[1, 1, 1, 0], [0, 1, -1, -1]]
_OUTPUT_4: _Matrix = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def _both_axes(down: _Matrix, across: _Matrix) -> Tensor:
    """Combine a transform of rows and one of columns to one of cells, row-major: float64."""
    return torch.kron(torch.tensor(down, dtype=torch.float64), torch.tensor(across, dtype=torch.float64))


class TileShape(NamedTuple):
    """Cells of a tile, and the transforms around its products.

    Attributes:
        row_bits, column_bits: cells along each axis as powers of two, so that a shift divides.
        reads_of: (R, R) from input cells to factors of the products.
        weights_of: (R, 9) from taps to the other factors, float64.
        makes_of: (cells, R) from products to output cells.
    """

    row_bits: int
    column_bits: int
    reads_of: Tensor
    weights_of: Tensor
    makes_of: Tensor

    @property
    def rows(self) -> int:
        """Cells of a tile along the first axis."""
        return 1 << self.row_bits

    @property
    def columns(self) -> int:
        """Cells of a tile along the second axis."""
        return 1 << self.column_bits

    @property
    def reads(self) -> int:
        """Number of input cells, and of products, of a tile."""
        return (self.rows + 2) * (self.columns + 2)

    @property
    def made(self) -> int:
        """Number of output cells of a tile."""
        return self.rows * self.columns

    @property
    def even(self) -> int:
        """Product that contributes with factor 1 to every output cell, where the bias is added."""
        return self.columns + 3


#: Tiles of each type of the features.
TILE_SHAPES = {
    torch.float32: TileShape(
        1,
        2,
        _both_axes(_INPUT_2, _INPUT_4).float(),
        _both_axes(_WEIGHT_2, _WEIGHT_4),
        _both_axes(_OUTPUT_2, _OUTPUT_4).float(),
    ),
    torch.bfloat16: TileShape(
        1,
        1,
        _both_axes(_INPUT_2, _INPUT_2).bfloat16(),
        _both_axes(_WEIGHT_2, _WEIGHT_2),
        _both_axes(_OUTPUT_2, _OUTPUT_2).bfloat16(),
    ),
}


class TilePlan(NamedTuple):
    """Input rows of the tiles of a layer, and the places of its output rows.

    Attributes:
        shape: of the tiles.
        reads: per part of the tiles (R * tiles,) int32 input rows, by place in the tile, then tile.
        places: (M,) int32 computed row of each output row.
        tiles: number of computed tiles.
    """

    shape: TileShape
    reads: list[Tensor]
    places: Tensor
    tiles: int


#: Function from (T, 3) int64 first cells ``(batch, y, x)`` of windows and their size to the int32 row of each
#: cell, (cells of a window, T), row-major.
TileWindows = Callable[[Tensor, tuple[int, int]], npt.NDArray[np.int32]]


def tile_plan(
    cells: Tensor,
    shape: Sequence[int],
    batch_size: int,
    tile: TileShape,
    rows: Tensor,
    strides: Sequence[int],
    origin: int,
    channels: int,
) -> TilePlan:
    """Plan the tiles of a layer whose output rows are some cells of maps, in their order.

    Args:
        cells: (M, 3) int64 distinct ``(batch, y, x)``.
        shape: rows and columns of a map.
        rows: flat map of the input, int32 row of each cell, with the margins ``TILE_MARGINS``.
        strides: of the map, for batch, row and column.
        origin: place of the first cell in it.
    """
    down, across = -(-shape[0] // tile.rows), -(-shape[1] // tile.columns)
    bits = tile.row_bits, tile.column_bits
    planned = plan_tiles(
        cells, batch_size, (down, across), bits, rows, strides, origin, channels, TILE_ELEMENTS
    )
    if planned is not None:
        cuts = [*range(0, planned.tiles, planned.together), planned.tiles]
        reads = [planned.reads[tile.reads * a : tile.reads * b] for a, b in itertools.pairwise(cuts)]
        return TilePlan(tile, reads, planned.places, planned.tiles)
    frame, row, column = cells.unbind(1)
    keys = (frame * down + (row >> tile.row_bits)) * across + (column >> tile.column_bits)
    among = torch.zeros(batch_size * down * across, dtype=torch.bool)
    among[keys] = True
    used = among.nonzero()[:, 0]
    numbers = torch.empty(len(among), dtype=torch.int64)
    numbers[used] = torch.arange(len(used))
    count, batch_stride = len(used), down * across
    size = _part_size(count, channels, tile)
    corners = used // batch_stride * strides[0] + (origin - strides[1] - strides[2])
    corners += used % batch_stride // across * (tile.rows * strides[1])
    corners += used % across * (tile.columns * strides[2])
    window = itertools.product(range(tile.rows + 2), range(tile.columns + 2))
    window_offsets = torch.tensor([dy * strides[1] + dx * strides[2] for dy, dx in window])[:, None]
    reads = [rows.index_select(0, (window_offsets + part).view(-1)) for part in corners.split(size) if count]
    number = numbers.index_select(0, keys)
    return TilePlan(tile, reads, _places(number, _place_in_tile(row, column, tile), count, size, tile), count)


def keyed_tile_plan(
    cells: Tensor, shape: Sequence[int], windows: TileWindows, channels: int, tile: TileShape
) -> TilePlan:
    """Plan the same tiles in the same order as :func:`tile_plan`, without a map, for any size.

    Args:
        cells: (M, 3) int64 distinct ``(batch, y, x)``.
        shape: rows and columns that keys can number.
        windows: finds the input rows of tiles.
    """
    frame, row, column = cells.unbind(1)
    counts = [-(-size // cells_of) for size, cells_of in zip(shape, (tile.rows, tile.columns), strict=True)]
    tiles = torch.stack([frame, row >> tile.row_bits, column >> tile.column_bits], dim=1)
    keys = linear_keys(tiles, counts).numpy()
    distinct = merge_keys(np.sort(keys))
    number = torch.from_numpy(np.searchsorted(distinct, keys))
    used = torch.from_numpy(distinct)
    size = _part_size(len(used), channels, tile)
    corners = coordinates_from_keys(used, counts).long() * torch.tensor([1, tile.rows, tile.columns])
    read = torch.from_numpy(windows(corners - torch.tensor([0, 1, 1]), (tile.rows + 2, tile.columns + 2)))
    reads = [part.reshape(-1) for part in read.split(size, dim=1) if len(used)]
    places = _places(number, _place_in_tile(row, column, tile), len(used), size, tile)
    return TilePlan(tile, reads, places, len(used))


def _place_in_tile(row: Tensor, column: Tensor, tile: TileShape) -> Tensor:
    """Return the place of each cell in its tile."""
    return ((row & (tile.rows - 1)) << tile.column_bits) + (column & (tile.columns - 1))


def _part_size(count: int, channels: int, tile: TileShape) -> int:
    """Return the number of tiles that are computed together."""
    parts = max(1, -(-count * tile.reads * channels // TILE_ELEMENTS))
    return max(1, -(-count // parts))


def _places(number: Tensor, within: Tensor, count: int, size: int, tile: TileShape) -> Tensor:
    """Return the computed row (M,) int32 of each cell, from the number of its tile and its place in it."""
    first = number // size * size
    together = (count - first).clamp_(max=size)
    return (first * tile.made + within * together + number - first).int()


def tile_weight(weight: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Transform a packed weight (9, C_in, C_out) to factors of a tile's products, (R, C_in, C_out)."""
    tile = TILE_SHAPES[dtype]
    return (tile.weights_of @ weight.double().flatten(1)).view(tile.reads, *weight.shape[1:]).to(dtype)


def tile_convolution(
    features: Tensor,
    weight: Tensor,
    plan: TilePlan,
    *,
    out: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    relu: bool = False,
    pool: RowPool,
) -> Tensor:
    """Compute ``relu(conv(features) + bias + residual)``, all tiles of a part at once.

    Args:
        features: (N, C_in) of a type of ``TILE_SHAPES``, with a row of zeros for missing cells.
        weight: (R, C_in, C_out), see :func:`tile_weight`.
        out: (at least M, C_out) contiguous; the first M rows are written. It must not share memory with the
            features.
        bias: (C_out,).
        residual: (at least M, C_out), added before the ReLU.

    Returns:
        ``out``.
    """
    channels_in, channels_out = weight.shape[1:]
    tile = plan.shape
    if plan.tiles == 0:
        return out
    widest = max(len(reads) for reads in plan.reads)
    threads = min(sharing_threads(), len(plan.reads))
    # Read cells and products share memory, because they are not needed at the same time.
    memory = [
        (pool.take(widest, max(channels_in, channels_out)), pool.take(widest, channels_in))
        for _ in range(threads)
    ]
    free = deque(memory)
    outputs = pool.take(tile.made * plan.tiles, channels_out)
    starts = list(
        itertools.accumulate((len(reads) // tile.reads * tile.made for reads in plan.reads), initial=0)
    )

    def compute(number: int) -> None:
        reads, (shared, transformed) = plan.reads[number], free.pop()
        count = len(reads) // tile.reads
        read = shared.view(-1)[: len(reads) * channels_in]
        torch.index_select(features, 0, reads, out=read.view(-1, channels_in))
        factors = transformed[: len(reads)].view(tile.reads, -1)
        torch.mm(tile.reads_of, read.view(tile.reads, -1), out=factors)
        products = shared.view(-1)[: len(reads) * channels_out].view(tile.reads, count, channels_out)
        torch.bmm(factors.view(tile.reads, count, channels_in), weight, out=products)
        products[tile.even].add_(bias)
        result = outputs[starts[number] : starts[number + 1]].view(tile.made, -1)
        torch.mm(tile.makes_of, products.view(tile.reads, -1), out=result)
        free.append((shared, transformed))

    share_tasks(compute, len(plan.reads))
    size = rows_of_part(channels_out, out.dtype)

    def finish(part: int) -> None:
        places = plan.places[part * size :][:size]
        result = out[part * size :][: len(places)]
        torch.index_select(outputs, 0, places, out=result)
        if residual is not None:
            result.add_(residual[part * size :][: len(places)])
        if relu:
            relu_rows_(result)

    share_tasks(finish, -(-len(plan.places) // size))
    pool.give(outputs, *itertools.chain.from_iterable(memory))
    return out
