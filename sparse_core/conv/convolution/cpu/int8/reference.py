"""Layers of bytes in plain torch: the contract of every other path, to the bit.

Sums are exact. They are rounded to float32, multiplied by a scale per channel, and then the bias and the
scaled residual are added: each operation is rounded to float32 once. Bytes are the nearest integers, ties to
even, limited to 0 to 255.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.int8.weights import ByteLayer


def layer_task(
    rows: Tensor, layer: ByteLayer, table: Tensor | None, residual: Tensor | None, out: Tensor
) -> Callable[[int, int], None]:
    """Return a function that computes a range of output rows.

    Arguments: see :func:`sparse_core.conv.convolution.cpu.int8.byte_layer`.
    """

    def compute(first: int, last: int) -> None:
        out[first:last] = layer_rows(
            rows[first:last] if table is None else rows,
            layer,
            None if table is None else table[first:last],
            None if residual is None else residual[first:last],
        )

    return compute


def layer_rows(rows: Tensor, layer: ByteLayer, table: Tensor | None, residual: Tensor | None) -> Tensor:
    """Return the output rows of a layer, see :func:`sparse_core.conv.convolution.cpu.int8.byte_layer`."""
    taken = rows if table is None else rows.index_select(0, table.view(-1)).view(len(table), -1)
    # float64 holds every sum of fewer than 2^38 products.
    sums = taken.double() @ layer.weight.double().flatten(0, 1)
    result = sums.float() * layer.scale
    result += layer.bias
    if residual is not None:
        result += residual.float() * layer.residual_scale
    if layer.floats:
        return torch.where(result > 0, result, 0.0)
    return to_bytes(result)


def round_rows(values: Tensor, order: Tensor | None, inverse: float, width: int) -> Tensor:
    """Return rows of bytes, see :func:`sparse_core.conv.convolution.cpu.int8.byte_rows`."""
    taken = values if order is None else values.index_select(0, order)
    made = torch.zeros((len(taken), width), dtype=torch.uint8)
    made[:, : taken.shape[1]] = to_bytes(taken * torch.tensor(inverse, dtype=torch.float32))
    return made


def largest_rows(rows: Tensor, counts: Tensor) -> Tensor:
    """Return the maxima of runs, see :func:`sparse_core.conv.convolution.cpu.int8.largest_bytes`."""
    runs = torch.repeat_interleave(counts)[:, None].expand_as(rows)
    made = torch.zeros((len(counts), rows.shape[1]), dtype=torch.uint8)
    return made.scatter_reduce_(0, runs, rows, "amax")


def to_bytes(values: Tensor) -> Tensor:
    """Return the nearest bytes, ties to even."""
    return values.clamp(0, 255).round_().to(torch.uint8)
