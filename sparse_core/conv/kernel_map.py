"""Kernel maps: which input row each tap of each output row reads.

A map is built once per level of a network and shared by its layers. Holding both directions makes the
forward and the gradient of a sparse convolution gathers followed by one matrix product: no atomics, so
the result is the same to the bit in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.table import CoordinateTable, table_from_keys
from sparse_core.conv.table.common import MARGIN, key_strides, linear_keys
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


def submanifold_map(table: CoordinateTable, kernel_size: Sequence[int]) -> KernelMap:
    """Map of a submanifold convolution: outputs are the inputs.

    Args:
        table: active coordinates, M rows.
        kernel_size: odd sizes, one per spatial axis, at most 9.

    Raises:
        ValueError: an even or too large kernel size.
    """
    _check_kernel(kernel_size, len(table.spatial_shape))
    if any(size % 2 == 0 for size in kernel_size):
        raise ValueError(f"a submanifold kernel has odd sizes, got {tuple(kernel_size)}")
    if all(size == 1 for size in kernel_size):
        itself = torch.arange(len(table), device=table.keys.device)[:, None]
        return KernelMap(itself, itself)
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


def output_shape(
    spatial_shape: Sequence[int], kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[int, ...]:
    """Grid of a strided convolution, as in ``torch.nn.functional.conv2d``."""
    return tuple(
        (size + 2 * pad - kernel) // step + 1
        for size, kernel, step, pad in zip(spatial_shape, kernel_size, stride, padding, strict=True)
    )


def strided_map(
    table: CoordinateTable,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    dilating: bool = True,
    impl: Impl = "auto",
) -> tuple[KernelMap, CoordinateTable]:
    """Map of a strided convolution, and the table of its outputs.

    Args:
        table: active input coordinates, N rows.
        kernel_size, stride, padding: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        dilating: an output is active where any input lies under its window (the usual definition);
            False: only where an input lies in its own stride-sized cell, which keeps the set small (the
            last cell of an axis also takes what lies beyond it).
        impl: how the output table is built.

    Raises:
        ValueError: sizes that do not fit the grid.
    """
    dimensions = len(table.spatial_shape)
    _check_kernel(kernel_size, dimensions)
    if len(stride) != dimensions or len(padding) != dimensions:
        raise ValueError(f"stride and padding need {dimensions} entries, got {stride!r} and {padding!r}")
    if min(stride) < 1 or min(padding) < 0:
        raise ValueError(f"stride must be at least 1 and padding at least 0, got {stride!r} and {padding!r}")
    shape = output_shape(table.spatial_shape, kernel_size, stride, padding)
    if any(size < 1 for size in shape):
        raise ValueError(f"kernel {tuple(kernel_size)} does not fit a grid of {table.spatial_shape}")
    candidates = _candidate_outputs(table, kernel_size, stride, padding, shape)
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
    shape: tuple[int, ...],
) -> _Candidates:
    """Keys are sums over the axes, so each axis is worked out alone, on (N, taps of the axis) elements."""
    device = table.keys.device
    batch_stride, *strides = key_strides(shape)
    keys = table.coordinates[:, :1].long() * batch_stride
    inside = torch.ones_like(keys, dtype=torch.bool)
    for axis, size in enumerate(shape):
        tap_index = torch.arange(kernel_size[axis], device=device)
        reached = table.coordinates[:, axis + 1, None].long() + (padding[axis] - tap_index)
        cell = torch.div(reached, stride[axis], rounding_mode="floor")
        hit = (cell >= 0) & (cell < size) & (cell * stride[axis] == reached)
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


def _check_kernel(kernel_size: Sequence[int], dimensions: int) -> None:
    if len(kernel_size) != dimensions:
        raise ValueError(f"kernel_size needs {dimensions} entries, got {tuple(kernel_size)}")
    if any(size < 1 or size > 2 * MARGIN + 1 for size in kernel_size):
        raise ValueError(f"kernel sizes go from 1 to {2 * MARGIN + 1}, got {tuple(kernel_size)}")
