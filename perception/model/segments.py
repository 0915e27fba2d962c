"""Mean and maximum of runs of rows, in a fixed order, with vectorized gradients."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

#: Chunk size in exported programs; small, because pillars have few points.
_CHUNK = 4


def segment_reduce(
    values: Tensor, counts: Tensor, reduce: Literal["mean", "max"], *, chunk: int = _CHUNK
) -> Tensor:
    """Reduce runs of rows.

    Args:
        values: (N, C), with the rows of a segment contiguous.
        counts: (M,) int64 rows of each segment, at least 1, with sum N.
        reduce: ``"mean"`` or ``"max"``; rows that share a maximum share its gradient equally.
        chunk: rows that an exported program reduces together. There a maximum needs values that are not
            negative, and the maximum of no rows is zero.

    Returns:
        (M, C); float32 under autocast.
    """
    if torch.compiler.is_exporting():
        chunks = Chunks.of(counts, chunk)
        return chunks.maximum(values, counts) if reduce == "max" else chunks.mean(values, counts)
    if len(counts) == 0:
        return values.new_zeros((0, values.shape[1])).float()
    if not torch.is_grad_enabled():
        return _reduced(values.float(), counts, reduce)
    reduced = _SegmentReduce.apply(values.float(), counts, reduce)
    assert isinstance(reduced, Tensor)
    return reduced


class _SegmentReduce(torch.autograd.Function):
    """``torch.segment_reduce`` with a vectorized gradient."""

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
        # Sums of whole numbers do not depend on the order.
        sharing = torch.zeros_like(reduced).index_add_(0, rows, reaches)
        return (gradient / sharing).index_select(0, rows) * reaches, None, None


def _reduced(values: Tensor, counts: Tensor, reduce: Literal["mean", "max"]) -> Tensor:
    if values.is_cuda:
        reduced = torch.segment_reduce(values, reduce, lengths=counts, axis=0, unsafe=True)
        assert isinstance(reduced, Tensor)
        return reduced
    # On a CPU, torch.segment_reduce is 3 to 10 times slower.
    first = torch.cumsum(counts, 0) - counts
    if reduce == "mean":
        return F.embedding_bag(torch.arange(len(values)), values, first, mode="mean")
    rows = torch.repeat_interleave(counts, output_size=len(values))[:, None].expand(-1, values.shape[1])
    return values[first].scatter_reduce_(0, rows, values, "amax")


class RepeatedRows(NamedTuple):
    """Result of :func:`repeat_rows`.

    Attributes:
        owner: (T,) int64 source row of each copy, ascending.
        within: (T,) int64 number of the copy within its source row, from 0.
    """

    owner: Tensor
    within: Tensor


def repeat_rows(counts: Tensor) -> RepeatedRows:
    """Repeat row r ``counts[r]`` times, with operators that exported programs support.

    Args:
        counts: (R,) int64, not negative.
    """
    # Append an empty row, so that there is at least one row.
    counts = F.pad(counts, (0, 1))
    ends = torch.cumsum(counts, 0)
    total = size_of(ends[-1])
    starts = ends - counts
    # Empty rows start where the next row starts, so count starts; the last element is for trailing ones.
    begun = starts.new_zeros(total + 1).index_add(0, starts, torch.ones_like(starts))
    owner = torch.cumsum(begun[:total], 0) - 1
    return RepeatedRows(owner, torch.arange(total, device=counts.device) - starts.index_select(0, owner))


def size_of(count: Tensor) -> int:
    """Return an integer tensor of one element as a size that is not negative."""
    value: Any = count.item()
    # Only tracing needs the fact, and torch's check imports sympy, which takes half a second.
    if not isinstance(value, int):
        torch._check(value >= 0)
    size: int = value
    return size


class Chunks(NamedTuple):
    """Runs of rows split into chunks of equal length, padded with the last row of the run.

    Exported programs reduce chunks first, because scattering every row takes longer.

    Attributes:
        rows: (Q, L) int64 rows.
        counted: (Q, L) bool, False for padding.
        owner: (Q,) int64 run of each chunk.
    """

    rows: Tensor
    counted: Tensor
    owner: Tensor

    @staticmethod
    def of(counts: Tensor, length: int) -> Chunks:
        """Split contiguous runs of ``counts`` (R,) rows into chunks."""
        starts = torch.cumsum(counts, 0) - counts
        owner, within = repeat_rows((counts + (length - 1)) // length)
        number = within[:, None] * length + torch.arange(length)
        last = (counts - 1).index_select(0, owner)[:, None]
        rows = starts.index_select(0, owner)[:, None] + torch.minimum(number, last)
        return Chunks(rows, number <= last, owner)

    def maximum(self, values: Tensor, counts: Tensor) -> Tensor:
        """Return the maximum (R, C) of each run of non-negative values (N, C); zero for empty runs."""
        highest = values[self.rows].amax(1)
        owner = self.owner[:, None].expand(-1, values.shape[1])
        empty = torch.zeros(counts.shape[0], values.shape[1], dtype=torch.float32)
        return empty.scatter_reduce(0, owner, highest, "amax")

    def mean(self, values: Tensor, counts: Tensor) -> Tensor:
        """Return the mean (R, C) of each run of values (N, C); counts (R,) are at least 1."""
        total = (values[self.rows] * self.counted[:, :, None]).sum(1)
        empty = torch.zeros(counts.shape[0], values.shape[1], dtype=torch.float32)
        return empty.index_add(0, self.owner, total) / counts[:, None]
