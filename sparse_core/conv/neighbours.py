"""Tables of neighbours of sparse layers, from tables of active coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.coordinates import CoordinateTable, table_from_keys
from sparse_core.conv.coordinates.common import MARGIN, key_offsets, key_strides, linear_keys
from sparse_core.conv.geometry import output_shape, own_cells, taps, transposed_shape
from sparse_core.conv.table import NeighbourTable
from sparse_core.kernels.op import Impl


def submanifold_table(
    table: CoordinateTable, kernel_size: Sequence[int], dilation: Sequence[int] | None = None
) -> NeighbourTable:
    """Return the neighbours of a submanifold convolution, whose outputs are its inputs.

    Args:
        table: active coordinates, M rows.
        kernel_size: odd sizes, one per spatial axis, at most 9.
        dilation: cells from one tap to the next, one per spatial axis; None is 1.

    Raises:
        ValueError: an even or too large kernel size, or a dilation below 1.
    """
    dilation = _check_kernel(kernel_size, len(table.spatial_shape), dilation)
    if any(size % 2 == 0 for size in kernel_size):
        raise ValueError(f"a submanifold kernel must have odd sizes, got {tuple(kernel_size)}")
    if all(size == 1 for size in kernel_size):
        itself = torch.arange(len(table), device=table.keys.device)[None]
        return NeighbourTable(itself, itself)
    if any(step > 1 for step in dilation):
        rows = _dilated_rows(table, kernel_size, dilation)
    else:
        # Taps along the last axis have consecutive keys, so one search finds a whole line of the kernel.
        *leading, width = kernel_size
        first = key_offsets([*leading, 1], [size // 2 for size in kernel_size], table.spatial_shape)
        keys = torch.tensor(first, device=table.keys.device)[:, None] + table.keys
        rows = table.lookup_runs(keys, width).transpose(1, 2).flatten(0, 1)
    # Tap k of row m reads n exactly if the mirrored tap of row n reads m.
    return NeighbourTable(rows, rows.flip(0))


def _dilated_rows(table: CoordinateTable, kernel_size: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Return rows (K, M) under dilated taps, which may exceed the margin of the keys."""
    cells, device = table.coordinates.long(), table.keys.device
    centre = torch.tensor([size // 2 for size in kernel_size], device=device)
    shape, step = (torch.tensor(sizes, device=device) for sizes in (table.spatial_shape, dilation))
    lines = []
    for tap in taps(kernel_size):
        place = cells[:, 1:] + (torch.tensor(tap, device=device) - centre) * step
        inside = ((place >= 0) & (place < shape)).all(1)
        # Cells outside look up any valid cell; their result is not used.
        place = torch.where(inside[:, None], place, 0)
        lines.append(torch.where(inside, table.lookup(torch.cat([cells[:, :1], place], 1)), -1))
    return torch.stack(lines)


def strided_table(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    dilation: Sequence[int] | None = None,
    dilating: bool = True,
    impl: Impl = "auto",
) -> tuple[NeighbourTable, CoordinateTable]:
    """Return the neighbours of a strided convolution, and the table of its outputs.

    Args:
        table: active input coordinates, N rows.
        kernel_size, stride, padding, dilation: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        dilating: True activates an output if any input lies under its window (the usual definition). False
            requires an input in the output's own stride-sized cell, which keeps the set small; the last cell
            of an axis also takes inputs beyond it.
        impl: of the output table.

    Raises:
        ValueError: sizes that do not match the grid.
    """
    dilation = _check_kernel(kernel_size, len(table.spatial_shape), dilation)
    _check_steps(stride, padding, len(table.spatial_shape))
    shape = output_shape(table.spatial_shape, kernel_size, stride, padding, dilation)
    _check_shape(shape, kernel_size, table)

    def reached(axis: int, cells: Tensor, tap: Tensor) -> tuple[Tensor, Tensor]:
        place = cells + (padding[axis] - tap * dilation[axis])
        cell = torch.div(place, stride[axis], rounding_mode="floor")
        return cell, (cell >= 0) & (cell < shape[axis]) & (cell * stride[axis] == place)

    pairs = _reached_cells(table, kernel_size, shape, reached)
    if dilating:
        outputs = table_from_keys(pairs.keys, shape, impl=impl)
        return _table_of_pairs(pairs, outputs.rows, len(table), len(outputs), kernel_size), outputs
    own = linear_keys(own_cells(table.coordinates, stride, shape), shape)
    outputs = table_from_keys(own, shape, impl=impl)
    rows = outputs.lookup_keys(pairs.keys)
    active = rows >= 0
    pairs = _Pairs(*(part[active] for part in pairs))
    return _table_of_pairs(pairs, rows[active], len(table), len(outputs), kernel_size), outputs


def transposed_table(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    dilation: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    impl: Impl = "auto",
) -> tuple[NeighbourTable, CoordinateTable]:
    """Return the neighbours of a transposed convolution, whose outputs are all cells that an input reaches.

    Args:
        table: active input coordinates, N rows.
        kernel_size, stride, padding, dilation, output_padding: one per spatial axis, as in
            ``torch.nn.functional.conv_transpose2d``.
        impl: of the output table.

    Raises:
        ValueError: sizes that do not match the grid.
    """
    dimensions = len(table.spatial_shape)
    dilation = _check_kernel(kernel_size, dimensions, dilation)
    _check_steps(stride, padding, dimensions)
    more = [0] * dimensions if output_padding is None else output_padding
    limits = [max(step, gap) for step, gap in zip(stride, dilation, strict=True)]
    if len(more) != dimensions or not all(0 <= a < b for a, b in zip(more, limits, strict=True)):
        raise ValueError(f"output_padding must be at least 0 and below stride or dilation, got {more!r}")
    shape = transposed_shape(table.spatial_shape, kernel_size, stride, padding, dilation, more)
    _check_shape(shape, kernel_size, table)

    def reached(axis: int, cells: Tensor, tap: Tensor) -> tuple[Tensor, Tensor]:
        cell = cells * stride[axis] + tap * dilation[axis] - padding[axis]
        return cell, (cell >= 0) & (cell < shape[axis])

    pairs = _reached_cells(table, kernel_size, shape, reached)
    outputs = table_from_keys(pairs.keys, shape, impl=impl)
    return _table_of_pairs(pairs, outputs.rows, len(table), len(outputs), kernel_size), outputs


class _Pairs(NamedTuple):
    """Pairs of inputs and outputs inside the grid, in the order of inputs, then taps.

    Attributes:
        keys: (P,) int64 linear key of the output.
        inputs: (P,) int64 input row.
        taps: (P,) int64 tap through which the output reads the input.
    """

    keys: Tensor
    inputs: Tensor
    taps: Tensor


def _reached_cells(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    shape: tuple[int, ...],
    reached: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> _Pairs:
    """List the pairs: keys are sums over the axes, so each axis is computed alone on (N, taps) elements.

    Args:
        reached: from an axis, (N, 1) cells and (taps,) taps to the output cells, and True for valid ones.
    """
    device = table.keys.device
    batch_stride, *strides = key_strides(shape)
    keys = table.coordinates[:, :1].long() * batch_stride
    inside = torch.ones_like(keys, dtype=torch.bool)
    for axis in range(len(shape)):
        tap_index = torch.arange(kernel_size[axis], device=device)
        cell, hit = reached(axis, table.coordinates[:, axis + 1, None].long(), tap_index)
        keys = (keys[:, :, None] + (cell[:, None] + MARGIN) * strides[axis]).flatten(1)
        inside = (inside[:, :, None] & hit[:, None]).flatten(1)
    pairs = inside.view(-1).nonzero()[:, 0]
    inputs = torch.div(pairs, inside.shape[1], rounding_mode="floor")
    return _Pairs(keys.view(-1)[pairs], inputs, pairs - inputs * inside.shape[1])


def _table_of_pairs(
    pairs: _Pairs, output_rows: Tensor, inputs: int, outputs: int, kernel_size: Sequence[int]
) -> NeighbourTable:
    """Build both directions; each (tap, input) and each (tap, output) has at most one pair."""
    count = math.prod(kernel_size)
    rows = output_rows.new_full((count * outputs,), -1)
    rows.scatter_(0, pairs.taps * outputs + output_rows, pairs.inputs)
    inverse = output_rows.new_full((count * inputs,), -1)
    inverse.scatter_(0, pairs.taps * inputs + pairs.inputs, output_rows)
    return NeighbourTable(rows.view(count, outputs), inverse.view(count, inputs))


def _check_kernel(
    kernel_size: Sequence[int], dimensions: int, dilation: Sequence[int] | None
) -> Sequence[int]:
    """Return the dilation, 1 if it is None."""
    if len(kernel_size) != dimensions:
        raise ValueError(f"kernel_size needs {dimensions} entries, got {tuple(kernel_size)}")
    if any(size < 1 or size > 2 * MARGIN + 1 for size in kernel_size):
        raise ValueError(f"kernel sizes must be from 1 to {2 * MARGIN + 1}, got {tuple(kernel_size)}")
    dilation = [1] * dimensions if dilation is None else dilation
    if len(dilation) != dimensions or min(dilation) < 1:
        raise ValueError(f"dilation needs {dimensions} entries of at least 1, got {tuple(dilation)}")
    return dilation


def _check_steps(stride: Sequence[int], padding: Sequence[int], dimensions: int) -> None:
    if len(stride) != dimensions or len(padding) != dimensions:
        raise ValueError(f"stride and padding need {dimensions} entries, got {stride!r} and {padding!r}")
    if min(stride) < 1 or min(padding) < 0:
        raise ValueError(f"stride must be at least 1 and padding at least 0, got {stride!r} and {padding!r}")


def _check_shape(shape: tuple[int, ...], kernel_size: Sequence[int], table: CoordinateTable) -> None:
    if min(shape) < 1:
        raise ValueError(f"kernel {tuple(kernel_size)} is larger than the grid of {table.spatial_shape}")
