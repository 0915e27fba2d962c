"""Kernel maps: which input row each tap of each output row reads.

A map is built once per level of a network and shared by its layers. Holding both directions makes the
forward and the gradient of a sparse convolution gathers followed by one matrix product: no atomics, so
the result is the same to the bit in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.coordinates import CoordinateTable, table_from_keys
from sparse_core.conv.coordinates.common import MARGIN, key_strides, linear_keys
from sparse_core.dispatch import Impl


@dataclass(frozen=True, eq=False)
class KernelMap:
    """Pairs of input and output rows of one sparse convolution.

    Attributes:
        neighbors: (M, K) int64: input row under tap k of output row m, or N where none is active.
        inverse: (N, K) int64: output row that reads input row n through tap k, or M where none does.
    """

    neighbors: Tensor
    inverse: Tensor

    @property
    def pairs(self) -> int:
        """Number of (input, output) pairs: the multiply-adds per channel pair."""
        return int((self.inverse < len(self.neighbors)).sum())


def taps(kernel_size: Sequence[int]) -> list[tuple[int, ...]]:
    """Taps of a kernel in row-major order, each from 0 to size - 1 per axis."""
    return list(itertools.product(*(range(size) for size in kernel_size)))


def submanifold_map(
    table: CoordinateTable, kernel_size: Sequence[int], dilation: Sequence[int] | None = None
) -> KernelMap:
    """Map of a submanifold convolution: outputs are the inputs.

    Args:
        table: active coordinates, M rows.
        kernel_size: odd sizes, one per spatial axis, at most 9.
        dilation: cells from one tap to the next, one per spatial axis; None: 1.

    Raises:
        ValueError: an even or too large kernel size, or a dilation below 1.
    """
    dilation = _check_kernel(kernel_size, len(table.spatial_shape), dilation)
    if any(size % 2 == 0 for size in kernel_size):
        raise ValueError(f"a submanifold kernel has odd sizes, got {tuple(kernel_size)}")
    if all(size == 1 for size in kernel_size):
        itself = torch.arange(len(table), device=table.keys.device)[:, None]
        return KernelMap(itself, itself)
    if any(step > 1 for step in dilation):
        neighbors = _dilated_neighbors(table, kernel_size, dilation)
        return KernelMap(neighbors, neighbors.flip(1))
    # Taps along the last axis have consecutive keys: one search serves a whole line of the kernel.
    *leading, width = kernel_size
    strides = key_strides(table.spatial_shape)[1:-1]
    first = [
        sum((tap - size // 2) * stride for tap, size, stride in zip(line, leading, strides, strict=True))
        - width // 2
        for line in taps(leading)
    ]
    rows = table.lookup_runs(table.keys[:, None] + torch.tensor(first, device=table.keys.device), width)
    neighbors = torch.where(rows < 0, len(table), rows).flatten(1)
    # Tap k of row m reads n exactly when the mirrored tap of row n reads m.
    return KernelMap(neighbors, neighbors.flip(1))


def _dilated_neighbors(table: CoordinateTable, kernel_size: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """(M, K) rows under taps that are apart: they reach further than keys outside the grid go."""
    cells, device = table.coordinates.long(), table.keys.device
    centre = torch.tensor([size // 2 for size in kernel_size], device=device)
    shape, step = (torch.tensor(sizes, device=device) for sizes in (table.spatial_shape, dilation))
    columns = []
    for tap in taps(kernel_size):
        place = cells[:, 1:] + (torch.tensor(tap, device=device) - centre) * step
        inside = ((place >= 0) & (place < shape)).all(1)
        # Any cell stands for those outside, whose answer is not used.
        place = torch.where(inside[:, None], place, 0)
        rows = table.lookup(torch.cat([cells[:, :1], place], 1))
        columns.append(torch.where(inside & (rows >= 0), rows, len(table)))
    return torch.stack(columns, 1)


def output_shape(
    spatial_shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Grid of a strided convolution, as in ``torch.nn.functional.conv2d``."""
    apart = [1] * len(spatial_shape) if dilation is None else dilation
    return tuple(
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(
            spatial_shape, kernel_size, stride, padding, apart, strict=True
        )
    )


def transposed_shape(
    spatial_shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """Grid of a transposed convolution, as in ``torch.nn.functional.conv_transpose2d``."""
    return tuple(
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + more + 1
        for size, kernel, step, pad, gap, more in zip(
            spatial_shape, kernel_size, stride, padding, dilation, output_padding, strict=True
        )
    )


def strided_map(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    dilation: Sequence[int] | None = None,
    dilating: bool = True,
    impl: Impl = "auto",
) -> tuple[KernelMap, CoordinateTable]:
    """Map of a strided convolution, and the table of its outputs.

    Args:
        table: active input coordinates, N rows.
        kernel_size, stride, padding, dilation: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        dilating: an output is active where any input lies under its window (the usual definition);
            False: only where an input lies in its own stride-sized cell, which keeps the set small (the
            last cell of an axis also takes what lies beyond it).
        impl: how the output table is built.

    Raises:
        ValueError: sizes that do not fit the grid.
    """
    dilation = _check_kernel(kernel_size, len(table.spatial_shape), dilation)
    _check_steps(stride, padding, len(table.spatial_shape))
    shape = output_shape(table.spatial_shape, kernel_size, stride, padding, dilation)
    if any(size < 1 for size in shape):
        raise ValueError(f"kernel {tuple(kernel_size)} does not fit a grid of {table.spatial_shape}")
    candidates = _candidate_outputs(table, kernel_size, stride, padding, dilation, shape)
    if dilating:
        outputs = table_from_keys(candidates.keys, shape, impl=impl)
        rows = outputs.rows
    else:
        outputs = table_from_keys(_own_cells(table, stride, shape), shape, impl=impl)
        rows = outputs.lookup_keys(candidates.keys)
        active = rows >= 0
        candidates, rows = _Candidates(*(part[active] for part in candidates)), rows[active]
    kernel_map = _map_of_pairs(
        candidates.inputs, candidates.taps, rows, len(table), len(outputs), kernel_size
    )
    return kernel_map, outputs


def transposed_map(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    dilation: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    impl: Impl = "auto",
) -> tuple[KernelMap, CoordinateTable]:
    """Map of a transposed convolution that makes cells: every cell that an input reaches is an output.

    Args:
        table: active input coordinates, N rows.
        kernel_size, stride, padding, dilation, output_padding: one per spatial axis, as in
            ``torch.nn.functional.conv_transpose2d``.
        impl: how the output table is built.

    Raises:
        ValueError: sizes that do not fit the grid.
    """
    dimensions = len(table.spatial_shape)
    dilation = _check_kernel(kernel_size, dimensions, dilation)
    _check_steps(stride, padding, dimensions)
    more = [0] * dimensions if output_padding is None else output_padding
    limits = [max(step, gap) for step, gap in zip(stride, dilation, strict=True)]
    if len(more) != dimensions or not all(0 <= a < b for a, b in zip(more, limits, strict=True)):
        raise ValueError(f"output_padding must be at least 0 and below stride or dilation, got {more!r}")
    shape = transposed_shape(table.spatial_shape, kernel_size, stride, padding, dilation, more)
    if any(size < 1 for size in shape):
        raise ValueError(f"kernel {tuple(kernel_size)} does not fit a grid of {table.spatial_shape}")

    def reached(axis: int, cells: Tensor, tap: Tensor) -> tuple[Tensor, Tensor]:
        cell = cells * stride[axis] + tap * dilation[axis] - padding[axis]
        return cell, (cell >= 0) & (cell < shape[axis])

    candidates = _reached_cells(table, kernel_size, shape, reached)
    outputs = table_from_keys(candidates.keys, shape, impl=impl)
    kernel_map = _map_of_pairs(
        candidates.inputs, candidates.taps, outputs.rows, len(table), len(outputs), kernel_size
    )
    return kernel_map, outputs


class _Candidates(NamedTuple):
    """Outputs inside the grid that may read an input: one entry a pair, in the order of inputs, then taps.

    Attributes:
        keys: (P,) int64 linear key of the output.
        inputs: (P,) int64 input row.
        taps: (P,) int64 tap through which the output reads the input.
    """

    keys: Tensor
    inputs: Tensor
    taps: Tensor


def _candidate_outputs(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    shape: tuple[int, ...],
) -> _Candidates:
    """Outputs of a strided convolution that may read an input."""

    def reached(axis: int, cells: Tensor, tap: Tensor) -> tuple[Tensor, Tensor]:
        place = cells + (padding[axis] - tap * dilation[axis])
        cell = torch.div(place, stride[axis], rounding_mode="floor")
        return cell, (cell >= 0) & (cell < shape[axis]) & (cell * stride[axis] == place)

    return _reached_cells(table, kernel_size, shape, reached)


def _reached_cells(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    shape: tuple[int, ...],
    reached: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> _Candidates:
    """Keys are sums over the axes, so each axis is worked out alone, on (N, taps of the axis) elements.

    Args:
        reached: of an axis, (N, 1) cells and (taps,) taps: the output cells, and which of them there are.
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
    return _Candidates(keys.view(-1)[pairs], inputs, pairs - inputs * inside.shape[1])


def _own_cells(table: CoordinateTable, stride: Sequence[int], shape: tuple[int, ...]) -> Tensor:
    """Key of the stride-sized cell that holds each input; the last cell also takes what lies beyond it."""
    device = table.keys.device
    step = torch.tensor([1, *stride], device=device)
    last = torch.tensor([2**20, *shape], device=device) - 1
    cells = torch.div(table.coordinates, step, rounding_mode="floor")
    return linear_keys(torch.minimum(cells, last), shape)


def _map_of_pairs(
    input_rows: Tensor,
    tap_index: Tensor,
    output_rows: Tensor,
    inputs: int,
    outputs: int,
    kernel_size: Sequence[int],
) -> KernelMap:
    """Both directions of a map from its pairs; each (input, tap) and each (output, tap) has at most one."""
    kernel_taps = math.prod(kernel_size)
    neighbors = output_rows.new_full((outputs * kernel_taps,), inputs)
    neighbors.scatter_(0, output_rows * kernel_taps + tap_index, input_rows)
    inverse = output_rows.new_full((inputs * kernel_taps,), outputs)
    inverse.scatter_(0, input_rows * kernel_taps + tap_index, output_rows)
    return KernelMap(neighbors.view(outputs, kernel_taps), inverse.view(inputs, kernel_taps))


def _check_kernel(
    kernel_size: Sequence[int], dimensions: int, dilation: Sequence[int] | None
) -> Sequence[int]:
    """The dilation, 1 where it is None."""
    if len(kernel_size) != dimensions:
        raise ValueError(f"kernel_size needs {dimensions} entries, got {tuple(kernel_size)}")
    if any(size < 1 or size > 2 * MARGIN + 1 for size in kernel_size):
        raise ValueError(f"kernel sizes go from 1 to {2 * MARGIN + 1}, got {tuple(kernel_size)}")
    dilation = [1] * dimensions if dilation is None else dilation
    if len(dilation) != dimensions or min(dilation) < 1:
        raise ValueError(f"dilation needs {dimensions} entries of at least 1, got {tuple(dilation)}")
    return dilation


def _check_steps(stride: Sequence[int], padding: Sequence[int], dimensions: int) -> None:
    if len(stride) != dimensions or len(padding) != dimensions:
        raise ValueError(f"stride and padding need {dimensions} entries, got {stride!r} and {padding!r}")
    if min(stride) < 1 or min(padding) < 0:
        raise ValueError(f"stride must be at least 1 and padding at least 0, got {stride!r} and {padding!r}")
