"""Reductions of runs of rows, in one order, with gradients that are made for all rows at once."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def segment_reduce(values: Tensor, counts: Tensor, reduce: Literal["mean", "max"]) -> Tensor:
    """Reduce runs of rows.

    Args:
        values: (N, C), rows of one segment side by side.
        counts: (M,) int64 rows of each segment, at least 1, summing to N.
        reduce: ``"mean"`` or ``"max"``, whose gradient is shared equally by the rows that reach it.

    Returns:
        (M, C); float32 under autocast.
    """
    if len(counts) == 0:
        return values.new_zeros((0, values.shape[1])).float()
    if not torch.is_grad_enabled():
        return _reduced(values.float(), counts, reduce)
    reduced = _SegmentReduce.apply(values.float(), counts, reduce)
    assert isinstance(reduced, Tensor)
    return reduced


class _SegmentReduce(torch.autograd.Function):
    """As ``torch.segment_reduce``, whose gradient goes through a segment row by row."""

    @staticmethod
    def forward(values: Tensor, counts: Tensor, reduce: Literal["mean", "max"]) -> Tensor:
        return _reduced(values, counts, reduce)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, counts, reduce = inputs
        ctx.save_for_backward(counts, *((values, output) if reduce == "max" else ()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        counts, *maxima = ctx.saved_tensors
        rows = torch.repeat_interleave(counts)
        if not maxima:
            return (gradient / counts[:, None]).index_select(0, rows), None, None
        values, reduced = maxima
        reaches = (values == reduced.index_select(0, rows)).to(values.dtype)
        # Whole numbers, so their sum does not depend on the order.
        sharing = torch.zeros_like(reduced).index_add_(0, rows, reaches)
        return (gradient / sharing).index_select(0, rows) * reaches, None, None


def _reduced(values: Tensor, counts: Tensor, reduce: Literal["mean", "max"]) -> Tensor:
    if values.is_cuda:
        reduced = torch.segment_reduce(values, reduce, lengths=counts, axis=0, unsafe=True)
        assert isinstance(reduced, Tensor)
        return reduced
    # On a CPU torch.segment_reduce is 3 to 10 times slower than these.
    first = torch.cumsum(counts, 0) - counts
    if reduce == "mean":
        return F.embedding_bag(torch.arange(len(values)), values, first, mode="mean")
    rows = torch.repeat_interleave(counts, output_size=len(values))[:, None].expand(-1, values.shape[1])
    return values[first].scatter_reduce_(0, rows, values, "amax")
