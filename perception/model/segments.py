"""Reductions of runs of rows, in one order, with gradients that are made for all rows at once."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

#: Rows that an exported program reduces together: few where segments are pillars.
_CHUNK = 4


def segment_reduce(
    values: Tensor, counts: Tensor, reduce: Literal["mean", "max"], *, chunk: int = _CHUNK
) -> Tensor:
    """Reduce runs of rows.

    Args:
        values: (N, C), rows of one segment side by side.
        counts: (M,) int64 rows of each segment, at least 1, summing to N.
        reduce: ``"mean"`` or ``"max"``, whose gradient is shared equally by the rows that reach it.
        chunk: rows that an exported program reduces together. There a maximum is of numbers that are not
            negative, and that of no rows is zero.

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


class Spread(NamedTuple):
    """Rows spread out by counts, as ``torch.repeat_interleave``.

    Attributes:
        owner: (T,) int64 row that each comes from, rising.
        within: (T,) int64 its number among those of the row, from 0.
    """

    owner: Tensor
    within: Tensor


def spread(counts: Tensor) -> Spread:
    """Repeat row r ``counts[r]`` times, by operators that exported programs have.

    Args:
        counts: (R,) int64, not negative.
    """
    # A last row of none, so that there is one.
    counts = F.pad(counts, (0, 1))
    ends = torch.cumsum(counts, 0)
    total = size_of(ends[-1])
    starts = ends - counts
    # Rows of no count begin where the next one does: ones add up there; the last place is for the end's.
    begun = starts.new_zeros(total + 1).index_add(0, starts, torch.ones_like(starts))
    owner = torch.cumsum(begun[:total], 0) - 1
    return Spread(owner, torch.arange(total, device=counts.device) - starts.index_select(0, owner))


def size_of(count: Tensor) -> int:
    """Return an integer tensor of one number as a size: not negative."""
    value = count.item()
    torch._check(value >= 0)
    assert isinstance(value, int | torch.SymInt)
    return value


class Chunks(NamedTuple):
    """Runs of rows cut into chunks of one length, the last of each run filled up with its last row.

    Exported programs reduce chunks first, because scattering every row takes longer.

    Attributes:
        rows: (Q, L) int64 rows.
        counted: (Q, L) bool: not filling.
        owner: (Q,) int64 run of each chunk.
    """

    rows: Tensor
    counted: Tensor
    owner: Tensor

    @staticmethod
    def of(counts: Tensor, length: int) -> Chunks:
        """Return chunks of runs side by side that have ``counts`` (R,) rows."""
        starts = torch.cumsum(counts, 0) - counts
        owner, within = spread((counts + (length - 1)) // length)
        number = within[:, None] * length + torch.arange(length)
        last = (counts - 1).index_select(0, owner)[:, None]
        rows = starts.index_select(0, owner)[:, None] + torch.minimum(number, last)
        return Chunks(rows, number <= last, owner)

    def maximum(self, values: Tensor, counts: Tensor) -> Tensor:
        """Return the largest of each run of values (N, C) that are not negative; zero of none: (R, C)."""
        highest = values[self.rows].amax(1)
        owner = self.owner[:, None].expand(-1, values.shape[1])
        empty = torch.zeros(counts.shape[0], values.shape[1], dtype=torch.float32)
        return empty.scatter_reduce(0, owner, highest, "amax")

    def mean(self, values: Tensor, counts: Tensor) -> Tensor:
        """Return the mean of each run of values (N, C): (R, C); counts (R,) are at least 1."""
        total = (values[self.rows] * self.counted[:, :, None]).sum(1)
        empty = torch.zeros(counts.shape[0], values.shape[1], dtype=torch.float32)
        return empty.index_add(0, self.owner, total) / counts[:, None]
