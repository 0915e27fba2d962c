"""Pooling of sparse maps over the active cells of a window or of a whole frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.conv.modules import check_sparse, per_axis
from sparse_core.conv.table import NeighbourTable
from sparse_core.conv.tensor import SparseTensor


class _SparsePool(nn.Module):
    dimensions = 2

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.kernel_size = per_axis(kernel_size, self.dimensions, "kernel_size", least=1)
        self.stride = self.kernel_size if stride is None else per_axis(stride, self.dimensions, "stride")
        self.padding = per_axis(padding, self.dimensions, "padding")
        self.dilation = per_axis(dilation, self.dimensions, "dilation")

    def forward(self, inputs: SparseTensor) -> SparseTensor:
        """Map features (M, C) at M cells to (M', C) at every window that holds an active cell."""
        check_sparse(inputs, self.dimensions)
        table, outputs = inputs.strided_table(
            self.kernel_size, self.stride, self.padding, dilation=self.dilation
        )
        return inputs.at_cells(self.pooled(inputs.features, table), outputs)

    def pooled(self, features: Tensor, table: NeighbourTable) -> Tensor:
        """Map input rows (N, C) to output rows (M, C)."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" dilation={self.dilation}"
        )


class SparseMaxPool2d(_SparsePool):
    """2-D maximum of the active cells of each window; empty cells are ignored.

    Args:
        kernel_size, stride, padding, dilation: as in ``torch.nn.MaxPool2d``; the stride defaults to the
            kernel size.
    """

    def pooled(self, features: Tensor, table: NeighbourTable) -> Tensor:
        """Map input rows (N, C) to output rows (M, C)."""
        result, _ = _Maximum.apply(features, table.rows, table.inverse)
        assert isinstance(result, Tensor)
        return result


class SparseMaxPool3d(SparseMaxPool2d):
    """3-D maximum, see :class:`SparseMaxPool2d`."""

    dimensions = 3


class SparseAvgPool2d(_SparsePool):
    """2-D mean of the active cells of each window; empty cells are ignored.

    Args:
        kernel_size, stride, padding, dilation: as in ``torch.nn.AvgPool2d``; the stride defaults to the
            kernel size.
    """

    def pooled(self, features: Tensor, table: NeighbourTable) -> Tensor:
        """Map input rows (N, C) to output rows (M, C)."""
        total = _Sum.apply(features, table.rows, table.inverse)
        assert isinstance(total, Tensor)
        count = (table.rows >= 0).sum(0)[:, None]
        return total / count.to(total.dtype)


class SparseAvgPool3d(SparseAvgPool2d):
    """3-D mean, see :class:`SparseAvgPool2d`."""

    dimensions = 3


def global_pool(inputs: SparseTensor, reduce: Literal["mean", "max", "sum"] = "mean") -> Tensor:
    """Pool the active cells of each frame to (B, C); zeros for an empty frame.

    Args:
        inputs: of B frames.
        reduce: ``"mean"``, ``"max"`` or ``"sum"``.

    Raises:
        ValueError: another ``reduce``.
    """
    if reduce not in ("mean", "max", "sum"):
        raise ValueError(f"reduce must be 'mean', 'max' or 'sum', got {reduce!r}")
    frames = []
    for frame in range(inputs.batch_size):
        own = inputs.features[inputs.coordinates[:, 0] == frame]
        if len(own) == 0:
            frames.append(inputs.features.new_zeros(inputs.features.shape[1]))
        elif reduce == "max":
            frames.append(own.max(0).values)
        else:
            frames.append(own.sum(0) / (len(own) if reduce == "mean" else 1))
    if not frames:
        return inputs.features.new_zeros((0, inputs.features.shape[1]))
    return torch.stack(frames)


class _Sum(torch.autograd.Function):
    """Sum of the rows under all taps, in their order; its gradient is the sum over the other direction."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
        padded = F.pad(features, (0, 0, 0, 1))
        total = features.new_zeros((rows.shape[1], features.shape[1]))
        # -1 reads the last row, which is zero.
        for line in rows:
            total = total + padded[line]
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, None, None]:
        rows, inverse = ctx.saved_tensors
        return _Sum.apply(grad, inverse, rows), None, None


class _Maximum(torch.autograd.Function):
    """Maximum of the rows under all taps; among equal ones the first tap gets the gradient.

    The gradient is a gather of the incoming one, which autograd follows.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, rows: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        padded = F.pad(features, (0, 0, 0, 1), value=-torch.inf)
        best = padded[rows[0]]
        chosen = torch.zeros(best.shape, dtype=torch.int16, device=best.device)
        is_empty = rows[0, :, None] < 0
        for tap in range(1, len(rows)):
            other = padded[rows[tap]]
            # NaN wins, as in torch.
            takes = (other > best) | (other.isnan() & ~best.isnan())
            # Always take the first active tap.
            takes |= is_empty
            is_empty = is_empty & (rows[tap, :, None] < 0)
            best = torch.where(takes, other, best)
            chosen = torch.where(takes, tap, chosen)
        return best, chosen

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        chosen, inverse = ctx.saved_tensors
        # Missing outputs read a padding row with tap -1, which matches no tap.
        padded, winners = F.pad(grad, (0, 0, 0, 1)), F.pad(chosen, (0, 0, 0, 1), value=-1)
        total = grad.new_zeros((inverse.shape[1], grad.shape[1]))
        for tap, read in enumerate(inverse):
            total = total + torch.where(winners[read] == tap, padded[read], 0.0)
        return total, None, None
