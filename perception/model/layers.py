"""Units of convolution, batch norm and ReLU, in sparse and dense form with one interface."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.config import BackboneConfig
from perception.model.bands import activated, convolve_map
from sparse_core.common.workers import is_shareable, share_tasks
from sparse_core.conv import SparseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.conv.convolution.cpu.blocks import rows_of_part

NORM_EPSILON = 1e-3
NORM_MOMENTUM = 0.01
#: Largest number of rows that a thread computes at once.
_MOST_ROWS = 2048


def norm_scale_shift(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return scale and shift (C,) of a batch norm in evaluation mode."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return scale, norm.bias - norm.running_mean * scale


def linear_rows(layer: nn.Module, rows: Tensor) -> Tensor:
    """Apply a linear layer to rows, (N, C_in) to (N, C_out), with the same bits for any number of threads.

    On a CPU without gradients, each part of the rows is a separate task.
    """
    if not is_shareable(rows) or len(rows) == 0:
        whole: Tensor = layer(rows)
        return whole
    parts = rows.split(min(_MOST_ROWS, rows_of_part(rows.shape[1])))
    made = list(parts)

    def compute(number: int) -> None:
        made[number] = layer(parts[number])

    share_tasks(compute, len(parts))
    return made[0] if len(made) == 1 else torch.cat(made)


def _normalised(norm: nn.BatchNorm1d | nn.Identity, rows: Tensor) -> Tensor:
    """Normalise rows (N, C); a single row uses the running statistics, because it has no variance."""
    if type(norm) is nn.BatchNorm1d and norm.training and len(rows) == 1:
        scale, shift = norm_scale_shift(norm)
        return rows * scale + shift
    normalised: Tensor = norm(rows)
    return normalised


class SparseUnit(nn.Module):
    """Sparse 3x3 (or 1x1) convolution, batch norm, optional skip and ReLU.

    Args:
        stride: 1 (submanifold) or 2.
        kernel_size: 3 or 1.
        config: implementation and dilation of strided layers.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        config: BackboneConfig,
        *,
        stride: int = 1,
        kernel_size: int = 3,
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.relu = relu
        self.conv: SubmanifoldConv2d | SparseConv2d
        if stride == 1:
            self.conv = SubmanifoldConv2d(in_channels, out_channels, kernel_size, impl=config.impl)
        else:
            self.conv = SparseConv2d(
                in_channels,
                out_channels,
                kernel_size,
                stride=stride,
                padding=kernel_size // 2,
                dilating=config.dilating,
                impl=config.impl,
            )
        self.norm: nn.BatchNorm1d | nn.Identity = nn.BatchNorm1d(
            out_channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM
        )

    def forward(self, inputs: SparseTensor, skip: SparseTensor | None = None) -> SparseTensor:
        """Compute (M', C_out) from (M, C_in); ``skip`` has the output's cells."""
        output: SparseTensor = self.conv(inputs)
        features = _normalised(self.norm, output.features)
        return output.with_features(activated(features, None if skip is None else skip.features, self.relu))

    def fold(self) -> None:
        """Merge the batch norm into the convolution, for inference."""
        if isinstance(self.norm, nn.Identity):
            return
        with torch.no_grad():
            scale, shift = norm_scale_shift(self.norm)
            self.conv.weight.mul_(scale.view(-1, 1, 1, 1))
            self.conv.bias = nn.Parameter(shift, requires_grad=False)
        self.norm = nn.Identity()


class DenseUnit(nn.Module):
    """Dense twin of :class:`SparseUnit`: (B, C_in, H, W) to (B, C_out, H', W')."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int = 1,
        kernel_size: int = 3,
        relu: bool = True,
        transposed: bool = False,
        padding: int | None = None,
    ) -> None:
        super().__init__()
        self.relu = relu
        self.conv: nn.Conv2d | nn.ConvTranspose2d
        if transposed:
            self.conv = nn.ConvTranspose2d(in_channels, out_channels, stride, stride=stride, bias=False)
        else:
            around = kernel_size // 2 if padding is None else padding
            self.conv = nn.Conv2d(
                in_channels, out_channels, kernel_size, stride=stride, padding=around, bias=False
            )
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        self.norm: nn.BatchNorm2d | nn.Identity = nn.BatchNorm2d(
            out_channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM
        )

    def forward(self, inputs: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (B, C_out, H', W') from (B, C_in, H, W); ``skip`` has the output's shape."""
        if self._fuses(inputs):
            return self._fused(inputs, skip)
        if isinstance(self.norm, nn.Identity):
            return convolve_map(self.conv, inputs, skip, relu=self.relu)
        features: Tensor = self.norm(self.conv(inputs))
        return activated(features, skip, self.relu)

    def _fuses(self, inputs: Tensor) -> bool:
        """Return True if cuDNN can add bias and skip and apply the ReLU within the convolution."""
        return (
            inputs.is_cuda
            and self.relu
            and isinstance(self.norm, nn.Identity)
            and type(self.conv) is nn.Conv2d
            and self.conv.weight.dtype == inputs.dtype
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled(inputs.device.type)
            and not (self.conv._forward_hooks or self.conv._forward_pre_hooks)
        )

    def _fused(self, inputs: Tensor, skip: Tensor | None) -> Tensor:
        conv = self.conv
        options = conv.bias, conv.stride, conv.padding, conv.dilation, 1
        if skip is None:
            made: Tensor = torch.ops.aten.cudnn_convolution_relu(inputs, conv.weight, *options)
        else:
            made = torch.ops.aten.cudnn_convolution_add_relu(inputs, conv.weight, skip, 1.0, *options)
        return made

    def fold(self) -> None:
        """Merge the batch norm into the convolution, for inference."""
        if isinstance(self.norm, nn.Identity):
            return
        with torch.no_grad():
            scale, shift = norm_scale_shift(self.norm)
            shape = (1, -1, 1, 1) if isinstance(self.conv, nn.ConvTranspose2d) else (-1, 1, 1, 1)
            self.conv.weight.mul_(scale.view(shape))
            self.conv.bias = nn.Parameter(shift, requires_grad=False)
        self.norm = nn.Identity()


class PointUnit(nn.Module):
    """Linear layer, batch norm and ReLU shared by all rows: (N, C_in) to (N, C_out)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.norm: nn.BatchNorm1d | nn.Identity = nn.BatchNorm1d(
            out_channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Compute (N, C_out), not negative, from (N, C_in)."""
        return activated(_normalised(self.norm, linear_rows(self.linear, rows)), None, relu=True)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Return weight (C_out, C_in) and bias (C_out,) with the batch norm merged."""
        weight, bias = self.linear.weight.detach(), self.linear.bias
        if isinstance(self.norm, nn.Identity):
            return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()
        scale, shift = norm_scale_shift(self.norm)
        return weight * scale.detach()[:, None], shift.detach()

    def fold(self) -> None:
        """Merge the batch norm into the linear layer, for inference."""
        if isinstance(self.norm, nn.Identity):
            return
        weight, bias = self.folded()
        with torch.no_grad():
            self.linear.weight.copy_(weight)
        self.linear.bias = nn.Parameter(bias, requires_grad=False)
        self.norm = nn.Identity()


class SparseBlock(nn.Module):
    """Residual block of two submanifold 3x3 units."""

    def __init__(self, channels: int, config: BackboneConfig) -> None:
        super().__init__()
        self.first = SparseUnit(channels, channels, config)
        self.second = SparseUnit(channels, channels, config)

    def forward(self, inputs: SparseTensor) -> SparseTensor:
        """Compute (M, C) at the same cells."""
        result = self.second(self.first(inputs), skip=inputs)
        assert isinstance(result, SparseTensor)
        return result


class DenseBlock(nn.Module):
    """Residual block of two dense 3x3 units."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = DenseUnit(channels, channels)
        self.second = DenseUnit(channels, channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute a map of the same shape (B, C, H, W)."""
        result = self.second(self.first(inputs), skip=inputs)
        assert isinstance(result, Tensor)
        return result


def fold_batch_norms(module: nn.Module) -> None:
    """Fold the batch norms of all units in ``module``."""
    if module.training:
        raise ValueError("fold_batch_norms needs a module in evaluation mode: call .eval() first")
    for part in module.modules():
        if isinstance(part, SparseUnit | DenseUnit | PointUnit):
            part.fold()
