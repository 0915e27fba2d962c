"""Layers of bytes: which path runs, and how threads share it."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.common.workers import share_tasks
from sparse_core.conv.convolution.cpu.int8 import compiled, reference
from sparse_core.conv.convolution.cpu.int8.compiled import Path
from sparse_core.conv.convolution.cpu.int8.weights import ByteLayer

#: Multiply-adds of a task, a third of a millisecond with VNNI, and a multiple of the rows that paths compute
#: together.
_TASK_PRODUCTS, _TASK_ROWS = 1 << 26, 96
#: Bytes of a task that only moves rows.
_TASK_BYTES = 1 << 19


def byte_layer(
    rows: Tensor,
    layer: ByteLayer,
    *,
    out: Tensor,
    table: Tensor | None = None,
    residual: Tensor | None = None,
    path: Path | None = None,
) -> Tensor:
    """Compute the output rows of a layer; every path and any number of threads give the same bits.

    Args:
        rows: (N, width) uint8 contiguous. With a table the last row is zero, for missing inputs.
        layer: weights.
        out: (M, out_width) contiguous uint8, or float32 if ``layer.floats``; written and returned.
        table: (M, K) int32 input row under each tap, ``N - 1`` for none. None: a layer of one tap, whose
            output row m reads input row m.
        residual: (M, out_width) uint8 contiguous, added before rounding.
        path: instruction set, one of :func:`~sparse_core.conv.convolution.cpu.int8.compiled.paths`; None: the
            fastest, or the reference until the library is compiled.
    """
    work = layer.weight.numel()
    size = max(1, _TASK_PRODUCTS // (work * _TASK_ROWS)) * _TASK_ROWS
    given = (rows, layer, table, residual, out)
    run = compiled.layer_task(*given, path) or reference.layer_task(*given)
    share_tasks(lambda part: run(part * size, min(part * size + size, len(out))), -(-len(out) // size))
    return out


def byte_rows(values: Tensor, inverse: float, *, out: Tensor, order: Tensor | None = None) -> Tensor:
    """Compute ``out = values[order] * inverse`` in bytes, the nearest ones.

    Args:
        values: (N, C) float32 contiguous.
        inverse: one over the step of the bytes.
        out: (M, at least C) uint8 contiguous, written and returned; zero beyond C.
        order: (M,) int64; None for all rows.
    """
    size = max(1, _TASK_BYTES // (4 * max(1, values.shape[1])))

    def compute(part: int) -> None:
        chosen = out[part * size :][:size]
        own = None if order is None else order[part * size :][:size]
        given = values[part * size :][:size] if order is None else values
        if not compiled.round_rows(given, own, inverse, chosen):
            chosen.copy_(reference.round_rows(given, own, inverse, out.shape[1]))

    share_tasks(compute, -(-len(out) // size))
    return out


def largest_bytes(rows: Tensor, counts: Tensor) -> Tensor:
    """Return the maxima (R, width) of runs of rows; zero for an empty run.

    Args:
        rows: (P, width) uint8 contiguous.
        counts: (R,) int64 rows of each run, P in all.
    """
    largest = torch.empty((len(counts), rows.shape[1]), dtype=torch.uint8)
    if not compiled.largest_rows(rows, counts, largest):
        largest.copy_(reference.largest_rows(rows, counts))
    return largest
