"""Grids of fixed capacity: rows of active cells, pyramids of grids, and tables of neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.conv.coordinates.common import MARGIN, linear_keys
from sparse_core.conv.geometry import output_shape
from sparse_core.conv.grid import reference
from sparse_core.conv.grid.layout import (
    DenseGrid,
    FixedGrid,
    FixedHash,
    Grid,
    GridLevel,
    TableRequest,
    checked_shape,
    word_count,
)
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

GRIDS: Op[()] = Op("grids", __package__, by_triton(), by_torch(), gradient=False)


def grid_from_bits(
    bits: Tensor, spatial_shape: Sequence[int], batch_size: int, capacity: int, *, impl: Impl = "auto"
) -> FixedGrid:
    """Give the active cells of a batch of grids their rows.

    Args:
        bits: (words,) int32, one bit per cell, lowest first, in the order of
            :mod:`sparse_core.conv.grid.layout`; bits of the padding must be 0.
        spatial_shape: 1 to 3 sizes of one grid in cells.
        batch_size: grids.
        capacity: most rows; the lowest cells are kept.
        impl: ``"reference"`` is plain torch and reads sizes to the host; ``"triton"`` takes two launches and
            can be captured in a CUDA graph (CUDA, or Triton's interpreter); ``"auto"`` is Triton for CUDA
            tensors.

    Raises:
        TypeError: ``bits`` is not int32.
        ValueError: sizes that do not match, or more than 2^31 - 1 cells.
        ImplementationError: ``impl`` cannot run here.
    """
    return pyramid(bits, spatial_shape, batch_size, [capacity], [], impl=impl)[0]


def grid_from_cells(
    cells: Tensor, spatial_shape: Sequence[int], batch_size: int, capacity: int, *, impl: Impl = "auto"
) -> FixedGrid:
    """Give cells by number their rows, see :func:`grid_from_bits`.

    Args:
        cells: (N,) int32 cell numbers in any order; repeats are allowed and negative ones are ignored.
            Numbers beyond the grid are not checked.
        spatial_shape, batch_size, capacity, impl: as in :func:`grid_from_bits`.
    """
    words = word_count(spatial_shape, batch_size)
    if cells.dtype != torch.int32 or cells.ndim != 1:
        raise TypeError(f"cells must be (N,) int32, got {tuple(cells.shape)} {cells.dtype}")
    if GRIDS.choose(impl, cells.device) == "triton":
        from sparse_core.conv.grid import triton

        bits = triton.bits_of_cells(cells, words)
    else:
        bits = reference.bits_of_cells(cells, words)
    return grid_from_bits(bits, spatial_shape, batch_size, capacity, impl=impl)


def pyramid(
    bits: Tensor,
    spatial_shape: Sequence[int],
    batch_size: int,
    capacities: Sequence[int],
    levels: Sequence[GridLevel],
    *,
    impl: Impl = "auto",
) -> list[FixedGrid]:
    """Make all levels of a network of strided convolutions from the occupancy of the first.

    With kernels of 3, strides of 2 and paddings of 1 along every axis, the first three further levels are
    read from the first one's bits, and all levels take two launches. Three more such levels take another
    launch, and so does each level of another kind.

    Args:
        bits, spatial_shape, batch_size, impl: as in :func:`grid_from_bits`.
        capacities: most rows of each level, the first included.
        levels: geometry of each further level.

    Returns:
        A grid per capacity.
    """
    shape = checked_shape(spatial_shape)
    words = word_count(shape, batch_size)
    if bits.dtype != torch.int32:
        raise TypeError(f"bits must be int32, got {bits.dtype}")
    if tuple(bits.shape) != (words,):
        raise ValueError(f"{batch_size} grids of {shape} have {words} words, got {tuple(bits.shape)}")
    if len(capacities) != len(levels) + 1:
        raise ValueError(f"{len(levels)} levels need {len(levels) + 1} capacities, got {len(capacities)}")
    if min(capacities) < 1:
        raise ValueError(f"capacity must be at least 1, got {tuple(capacities)}")
    shapes = _level_shapes(shape, levels)
    for level_shape in shapes:
        word_count(level_shape, batch_size)
    if GRIDS.choose(impl, bits.device) == "triton":
        from sparse_core.conv.grid import pyramid_triton

        return pyramid_triton.pyramid(bits, shapes, batch_size, list(capacities), list(levels))
    grids = [reference.grid_from_bits(bits, shape, batch_size, capacities[0])]
    for level, before, after, capacity in zip(levels, shapes[:-1], shapes[1:], capacities[1:], strict=True):
        bits = reference.next_level_bits(bits, before, batch_size, level, after)
        grids.append(reference.grid_from_bits(bits, after, batch_size, capacity))
    return grids


def fixed_hash(
    coordinates: Tensor,
    spatial_shape: Sequence[int],
    batch_size: int,
    capacity: int,
    *,
    impl: Impl = "auto",
) -> FixedHash:
    """Give the distinct cells of grids of any size their rows.

    Args:
        coordinates: (N, 1 + D) integer ``(batch, *spatial)`` inside the grid, not checked; repeats are
            allowed, and a negative batch is ignored.
        spatial_shape: 1 to 3 sizes of one grid in cells; at most 2^42 cells with 4 more on every side.
        batch_size: grids.
        capacity: most rows; the lowest keys are kept.
        impl: as in :func:`grid_from_bits`; Triton hashes and sorts N keys and can be captured.

    Raises:
        ValueError: sizes that do not match or exceed the keys.
        ImplementationError: ``impl`` cannot run here.
    """
    shape = checked_shape(spatial_shape)
    if coordinates.ndim != 2 or coordinates.shape[1] != len(shape) + 1:
        raise ValueError(f"coordinates must be (N, {len(shape) + 1}), got {tuple(coordinates.shape)}")
    _check_hash(shape, batch_size, [capacity])
    keys = torch.where(coordinates[:, 0] < 0, -1, linear_keys(coordinates, shape))
    return _hash_from_keys(keys, shape, batch_size, capacity, impl)


def hash_pyramid(
    first: FixedHash, capacities: Sequence[int], levels: Sequence[GridLevel], *, impl: Impl = "auto"
) -> list[FixedHash]:
    """Make a :func:`pyramid` of hashed grids, level by level.

    Args:
        first: the first level.
        capacities: most rows of each further level.
        levels: geometry of each further level.
        impl: as in :func:`fixed_hash`.

    Returns:
        The first level and one per capacity.
    """
    if len(capacities) != len(levels):
        raise ValueError(f"{len(levels)} levels need as many capacities, got {len(capacities)}")
    grids = [first]
    for level, shape, capacity in zip(
        levels, _level_shapes(first.spatial_shape, levels)[1:], capacities, strict=True
    ):
        _check_hash(shape, first.batch_size, [capacity])
        if GRIDS.choose(impl, first.keys.device) == "triton":
            from sparse_core.conv.grid import hash_triton

            keys = hash_triton.strided_keys(grids[-1], level, shape)
        else:
            keys = reference.strided_keys(grids[-1], level, shape)
        grids.append(_hash_from_keys(keys, shape, first.batch_size, capacity, impl))
    return grids


def neighbour_table(
    inputs: Grid,
    outputs: Grid | str,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    inverse: bool = False,
    *,
    impl: Impl = "auto",
    device: torch.device | None = None,
) -> Tensor:
    """Return the input row that each tap of each output row reads.

    Args:
        inputs: grid to read.
        outputs: grid to write, ``inputs`` itself for a submanifold convolution; ``"all"`` for every cell of
            the output grid, in row-major order without padding (a :class:`DenseGrid`).
        kernel_size, stride, padding: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        inverse: return the other direction: the output row that reads each input row through each tap.
        impl: as in :func:`grid_from_bits`; one launch.
        device: of the table of two dense grids; other tables use their grids' device.

    Returns:
        (taps, rows of ``outputs``, of ``inputs`` if ``inverse``) int32, as ``NeighbourTable.rows``: -1 for
        inactive cells and beyond the last row in use.

    Raises:
        ValueError: grids or sizes that do not match.
    """
    request = TableRequest(inputs, outputs, tuple(kernel_size), tuple(stride), tuple(padding), inverse)
    return neighbour_tables([request], impl=impl, device=device)[0]


def neighbour_tables(
    requests: Sequence[TableRequest], *, impl: Impl = "auto", device: torch.device | None = None
) -> list[Tensor]:
    """Make several tables; Triton makes all tables over bitmaps in one launch.

    Args:
        requests: arguments of :func:`neighbour_table`.
        impl, device: as in :func:`neighbour_table`.
    """
    whole = [_whole_request(request) for request in requests]
    tensors = [_rows_tensor(grid) for request in whole for grid in request[:2]]
    result = [tensor for tensor in tensors if tensor is not None]
    example = result[0] if result else torch.empty(0, dtype=torch.int32, device=device)
    if any(tensor.device != example.device for tensor in result):
        raise ValueError("the grids of the requests are on several devices: move them to one")
    if whole and GRIDS.choose(impl, example.device) == "triton":
        from sparse_core.conv.grid import tables_triton

        return tables_triton.tables(whole, example.device)
    return [
        reference.table(inputs, outputs, kernel_size, stride, padding, inverse, example.device)
        for inputs, outputs, kernel_size, stride, padding, inverse in whole
    ]


def _whole_request(
    request: TableRequest,
) -> tuple[Grid, Grid, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    """Check a request and complete its output grid."""
    inputs, outputs, kernel_size, stride, padding, inverse = request
    expected = _level_shapes(inputs.spatial_shape, [GridLevel(kernel_size, stride, padding)])[1]
    if isinstance(outputs, str):
        if outputs != "all":
            raise ValueError(f"outputs must be a grid or 'all', got {outputs!r}")
        outputs = DenseGrid(expected, inputs.batch_size)
    if outputs.spatial_shape != expected or outputs.batch_size != inputs.batch_size:
        raise ValueError(
            f"a kernel of {kernel_size}, stride {stride} and padding {padding} makes {inputs.batch_size}"
            f" grids of {expected} from {inputs.spatial_shape}, got {outputs.batch_size} of"
            f" {outputs.spatial_shape}"
        )
    for grid in (inputs, outputs):
        if grid.capacity > 2**30:
            raise ValueError(f"a table has at most 2^30 rows, got {grid.capacity}")
    return inputs, outputs, tuple(kernel_size), tuple(stride), tuple(padding), inverse


def _rows_tensor(grid: Grid) -> Tensor | None:
    if isinstance(grid, DenseGrid):
        return None
    return grid.cells if isinstance(grid, FixedGrid) else grid.keys


def _level_shapes(shape: tuple[int, ...], levels: Sequence[GridLevel]) -> list[tuple[int, ...]]:
    """Return the shapes of the grids of a pyramid."""
    shapes = [shape]
    for level in levels:
        sizes = (level.kernel_size, level.stride, level.padding)
        if any(len(part) != len(shape) for part in sizes):
            raise ValueError(f"kernel, stride and padding need {len(shape)} entries, got {sizes}")
        if min(level.kernel_size) < 1 or min(level.stride) < 1 or min(level.padding) < 0:
            raise ValueError(f"kernel and stride must be at least 1 and padding at least 0, got {sizes}")
        shapes.append(output_shape(shapes[-1], *sizes))
        if min(shapes[-1]) < 1:
            raise ValueError(f"kernel {level.kernel_size} is larger than the grid of {shapes[-2]}")
    return shapes


def _check_hash(shape: tuple[int, ...], batch_size: int, capacities: Sequence[int]) -> None:
    if math.prod(size + 2 * MARGIN for size in shape) > 2**42 or not 1 <= batch_size <= 2**20:
        raise ValueError(f"use at most 2^20 grids of 2^42 cells, got {batch_size} of {shape}")
    if min(capacities) < 1:
        raise ValueError(f"capacity must be at least 1, got {tuple(capacities)}")


def _hash_from_keys(
    keys: Tensor, shape: tuple[int, ...], batch_size: int, capacity: int, impl: Impl
) -> FixedHash:
    if GRIDS.choose(impl, keys.device) == "triton":
        from sparse_core.conv.grid import hash_triton

        return hash_triton.hash_from_keys(keys, shape, batch_size, capacity)
    return reference.hash_from_keys(keys, shape, batch_size, capacity)
