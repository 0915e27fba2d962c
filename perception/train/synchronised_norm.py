"""Batch norm over the rows of all processes that train together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.model.layers import norm_scale_shift
from perception.train.ranks import Ranks
from sparse_core.kernels.gradients import once_differentiable


class SynchronisedNorm(nn.BatchNorm1d):
    """Batch norm whose training mean and variance are those of all ranks together.

    Unlike ``torch.nn.SyncBatchNorm``, it also runs on the CPU. A single row over all ranks uses the running
    statistics.

    Args:
        norm: the norm to replace; its parameters and buffers are shared.
        ranks: processes that train together.
    """

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d, ranks: Ranks) -> None:
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum, device="meta")
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.ranks = ranks

    def forward(self, rows: Tensor) -> Tensor:
        """Normalize (N, C) or (B, C, H, W) in its own type."""
        if not self.training:
            return F.batch_norm(
                rows, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        across = [axis for axis in range(rows.ndim) if axis != 1]
        shape = [1, -1, *[1] * (rows.ndim - 2)]
        exact = rows.detach().double()
        count = rows.numel() // max(1, rows.shape[1])
        mean = exact.mean(across) if count else exact.new_zeros(rows.shape[1])
        spread = (exact - mean.view(shape)).square().sum(across)
        # Chan, Golub and LeVeque, "Updating formulae ... for computing sample variances", 1979.
        parts = self.ranks.gathered(torch.cat([exact.new_tensor([count]), mean, spread]))
        counts, means, spreads = parts.split([1, *[rows.shape[1]] * 2], dim=1)
        total = int(counts.sum())
        if total <= 1:
            scale, shift = norm_scale_shift(self)
            return rows * scale.view(shape) + shift.view(shape)
        mean = (counts * means).sum(0) / total
        variance = (spreads + counts * (means - mean).square()).sum(0) / total
        self._remember(mean, variance * total / (total - 1))
        inverse = torch.rsqrt(variance + self.eps)
        result: Tensor = _Normalise.apply(
            rows, self.weight, self.bias, mean.float(), inverse.float(), total, self.ranks
        )
        return result

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean.float(), self.momentum or 0.0)
            self.running_var.lerp_(variance.float(), self.momentum or 0.0)
            self.num_batches_tracked += 1


class _Normalise(torch.autograd.Function):
    """Normalization whose gradient passes through mean and variance of the rows of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse: Tensor,
        total: int,
        ranks: Ranks,
    ) -> Tensor:
        shape = [1, -1, *[1] * (rows.ndim - 2)]
        normal = (rows.float() - mean.view(shape)) * inverse.view(shape)
        ctx.save_for_backward(normal, weight, inverse)
        ctx.total, ctx.ranks, ctx.dtype = total, ranks, rows.dtype
        return (normal * weight.view(shape) + bias.view(shape)).to(rows.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        normal, weight, inverse = ctx.saved_tensors
        slope = gradients[0].float()
        shape = [1, -1, *[1] * (normal.ndim - 2)]
        across = [axis for axis in range(normal.ndim) if axis != 1]
        of_bias, of_weight = slope.sum(across), (slope * normal).sum(across)
        sums = ctx.ranks.total(torch.stack([of_bias, of_weight])) / ctx.total
        centred = slope - sums[0].view(shape) - normal * sums[1].view(shape)
        of_rows = (centred * (weight * inverse).view(shape)).to(ctx.dtype)
        return of_rows, of_weight, of_bias, None, None, None, None


def synchronise_norms(network: nn.Module, ranks: Ranks) -> None:
    """Replace every batch norm of a network by one over all ranks; with one rank, nothing changes."""
    if ranks.count == 1:
        return
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(parent, name, SynchronisedNorm(child, ranks))
