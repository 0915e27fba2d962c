"""Linear and convolution layers that store only their connections and can exchange them in training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, unfold
from torch.nn.grad import conv2d_weight

from sparse_core.dynamic.rigl.block_product import BlockPlan, Taps, block_convolution
from sparse_core.dynamic.rigl.grid import Structure, plan_grid
from sparse_core.dynamic.rigl.sparse_layer import Execution, SparseTrainedLayer


class RigLLinear(SparseTrainedLayer):
    """``x @ weight.T + bias`` with a sparse weight whose connections can be exchanged.

    Args:
        in_features, out_features, bias: as in ``nn.Linear``.
        sparsity: share of weights left out, at least 0 and below 1.
        structure, block_size: see :func:`sparse_core.dynamic.rigl.grid.plan_grid`.
        execution: see :class:`SparseTrainedLayer`.
        seed: seed of the first topology and values.
        device, dtype: as in ``nn.Linear``.

    Raises:
        ValueError: an option out of range.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        sparsity: float = 0.9,
        structure: Structure = "unstructured",
        block_size: int | tuple[int, int] = 16,
        execution: Execution = "sparse",
        seed: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sparsity(sparsity)
        grid = plan_grid(
            out_features, in_features, density=1 - sparsity, structure=structure, block_size=block_size
        )
        super().__init__(grid, bias, execution, seed, device, dtype)
        self.in_features, self.out_features = in_features, out_features

    @property
    def weight(self) -> Tensor:
        """Dense (out, in) weight, unpacked at each access."""
        return self.matrix

    def as_matrix(self, weight: Tensor) -> Tensor:
        """Return the weight (out, in) itself."""
        return weight

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., out) for (..., in).

        Raises:
            TypeError: another type than the weight's (outside autocast).
            ValueError: an empty batch, or another number of features.
        """
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"x must have {self.in_features} features in its last dimension, got shape {tuple(x.shape)}"
            )
        x = self._cast(x)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self.execution == "dense":
            return linear(x, self._unpacked(x.dtype), bias)
        product = self._multiply(x.reshape(-1, self.in_features), bias)
        return product.reshape(*x.shape[:-1], self.out_features)

    def to_dense(self) -> nn.Linear:
        """Return an ``nn.Linear`` with the same weight and bias."""
        dense = nn.Linear(self.in_features, self.out_features, self.bias is not None).to(self.values)
        _copy_to(dense, self.weight, self.bias)
        return dense.train(self.training)


class RigLConv2d(SparseTrainedLayer):
    """A convolution with a sparse weight whose connections can be exchanged.

    The weight is the matrix (out channels, in channels * kernel height * kernel width). Sparse execution
    multiplies it with the unfolded input. If blocks divide the channels, columns are ordered by kernel
    position, then by channel, so that a block meets neighbouring channels of one pixel; on CUDA nothing is
    unfolded then.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, bias: as in ``nn.Conv2d``, with
            numeric zero padding and one group.
        sparsity, structure, block_size, execution, seed, device, dtype: see :class:`RigLLinear`.

    Raises:
        ValueError: an option out of range.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        bias: bool = True,
        *,
        sparsity: float = 0.9,
        structure: Structure = "unstructured",
        block_size: int | tuple[int, int] = 16,
        execution: Execution = "sparse",
        seed: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sparsity(sparsity)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            _pair(size) for size in (kernel_size, stride, padding, dilation)
        )
        columns = in_channels * self.kernel_size[0] * self.kernel_size[1]
        grid = plan_grid(
            out_channels, columns, density=1 - sparsity, structure=structure, block_size=block_size
        )
        super().__init__(grid, bias, execution, seed, device, dtype)
        self.in_channels, self.out_channels = in_channels, out_channels
        self._taps = Taps(self.kernel_size, self.stride, self.padding, self.dilation)
        self._by_tap = grid.is_blocked and in_channels % grid.cell_columns == 0
        self._tap_count = self._taps.places if self._by_tap else 1

    @property
    def weight(self) -> Tensor:
        """Dense (out channels, in channels, kernel height, kernel width) weight, unpacked at each access."""
        return self._as_weight(self.matrix)

    def as_matrix(self, weight: Tensor) -> Tensor:
        """Return the matrix of a weight (out channels, in channels, kernel height, kernel width)."""
        ordered = weight.permute(0, 2, 3, 1) if self._by_tap else weight
        return ordered.reshape(self.out_channels, -1)

    def _as_weight(self, matrix: Tensor) -> Tensor:
        if not self._by_tap:
            return matrix.reshape(self.out_channels, self.in_channels, *self.kernel_size)
        return matrix.reshape(self.out_channels, *self.kernel_size, self.in_channels).permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, out channels, H', W') for (B, in channels, H, W).

        Raises:
            TypeError: another type than the weight's (outside autocast).
            ValueError: an empty batch, another number of channels, or an image smaller than the kernel.
        """
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise ValueError(f"x must have shape (B, {self.in_channels}, H, W), got {tuple(x.shape)}")
        x = self._cast(x)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        size = self._taps.extent((x.shape[2], x.shape[3]))
        if min(size) < 1:
            raise ValueError(f"x {tuple(x.shape)} is smaller than the kernel {self.kernel_size}")
        if self.execution == "dense":
            weight = self._as_weight(self._unpacked(x.dtype))
            return conv2d(x, weight, bias, self.stride, self.padding, self.dilation)
        if self._by_tap:
            return self._convolve(x, bias)
        columns = unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)
        product = self._multiply(columns.transpose(0, 1).reshape(self.grid.columns, -1).T, bias)
        return product.T.reshape(self.out_channels, len(x), *size).transpose(0, 1).contiguous()

    def _convolve(self, x: Tensor, bias: Tensor | None) -> Tensor:
        plan = self._current_plan()
        assert isinstance(plan, BlockPlan)
        product = block_convolution(x, self._cast_values(x.dtype), plan, self._taps, bias)
        if self._collects and product.requires_grad:
            seen = x.detach()
            product.register_hook(lambda gradient: self._collect(self._dense_gradient(seen, gradient)))
        return product

    def _dense_gradient(self, x: Tensor, gradient: Tensor) -> Tensor:
        shape = (self.out_channels, self.in_channels, *self.kernel_size)
        # cuDNN's fastest gradient sums in any order: different connections would grow in each run.
        before = torch.backends.cudnn.deterministic
        torch.backends.cudnn.deterministic = True
        try:
            found = conv2d_weight(x, shape, gradient, self.stride, self.padding, self.dilation)
        finally:
            torch.backends.cudnn.deterministic = before
        return self.as_matrix(found)

    def to_dense(self) -> nn.Conv2d:
        """Return an ``nn.Conv2d`` with the same weight and bias."""
        options = (self.kernel_size, self.stride, self.padding, self.dilation)
        dense = nn.Conv2d(self.in_channels, self.out_channels, *options, bias=self.bias is not None)
        _copy_to(dense.to(self.values), self.weight, self.bias)
        return dense.train(self.training)


def _check_sparsity(sparsity: float) -> None:
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be at least 0 and below 1, got {sparsity}")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _copy_to(dense: nn.Linear | nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
    with torch.no_grad():
        dense.weight.copy_(weight)
        if bias is not None and dense.bias is not None:
            dense.bias.copy_(bias)
