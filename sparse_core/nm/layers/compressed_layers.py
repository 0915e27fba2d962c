"""Linear and Conv2d layers that hold a compressed weight and unpack it a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sparse_core.nm.layers.coded_layer import CodedLayer, dense_linear, own_bias, own_copy
from sparse_core.nm.linear import nm_linear
from sparse_core.nm.packing.compressed_weight import PARTS, CompressedWeight
from sparse_core.nm.packing.packed_weight import PackedNM

Execution = Literal["tiled", "nm"]
"""``"tiled"`` unpacks a few output rows at a time and multiplies densely. ``"nm"`` calls
:func:`sparse_core.nm.nm_linear`, which has kernels for 2:4 on GPUs with sparse tensor cores. It keeps the
values in the input's type, n/m of the dense weight."""

TILE_ROWS = 256
"""Output rows unpacked together, which bounds the dense part of a weight in memory."""


class CompressedLayer(CodedLayer):
    """Base of the two layers: the weight's parts as buffers, and its tiles."""

    pinned: ClassVar[tuple[str, ...]] = PARTS

    def __init__(
        self, weight: CompressedWeight, bias: Tensor | None, *, tile_rows: int, train_codebook: bool
    ) -> None:
        super().__init__()
        if tile_rows < 1:
            raise ValueError(f"tile_rows must be at least 1, got {tile_rows}")
        if train_codebook and weight.centroids is None:
            raise ValueError(f"train_codebook needs a weight stored as a codebook, this is {weight.coding}")
        if weight.view.layout == "transposed":
            raise ValueError("a transposed convolution has no compressed layer: unpack its weight")
        if bias is not None and tuple(bias.shape) != (weight.view.rows,):
            raise ValueError(f"bias must have shape {(weight.view.rows,)}, got {tuple(bias.shape)}")
        # Checked once here and for every loaded state, so that calls never wait for a GPU.
        weight.check()
        self.tile_rows = tile_rows
        self._frame = weight
        for name in PARTS:
            part = weight.parts().get(name)
            if name == "centroids" and train_codebook:
                assert part is not None
                self.centroids = nn.Parameter(part.clone())
            else:
                self.register_buffer(name, None if part is None else part.clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)

    @property
    def compressed(self) -> CompressedWeight:
        """Compressed weight; gradients reach a trained codebook."""
        parts = {name: cast("Tensor | None", getattr(self, name)) for name in PARTS}
        return replace(self._frame, **cast(Any, parts))

    @property
    def coded(self) -> CompressedWeight:
        """See :attr:`CodedLayer.coded`."""
        return self.compressed

    @property
    def weight(self) -> Tensor:
        """Dense float32 weight, unpacked at each access."""
        return self.compressed.to_dense()

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.compressed.check()

    def _tiles(self, rows: int) -> Iterator[tuple[int, int]]:
        total = self._frame.view.rows
        for start in range(0, total, rows):
            yield start, min(start + rows, total)

    def _bias_of(self, start: int, stop: int, dtype: torch.dtype) -> Tensor | None:
        return None if self.bias is None else self.bias[start:stop].to(dtype)

    def _join_tiles(self, x: Tensor, tiles: Iterator[tuple[int, int]], dim: int) -> Tensor:
        """Return the results of all tiles; with gradients, the backward pass unpacks tiles again."""
        trains = torch.is_grad_enabled() and (
            x.requires_grad or any(parameter.requires_grad for parameter in self.parameters())
        )
        if not trains:
            return torch.cat([self._tile(x, start, stop) for start, stop in tiles], dim=dim)
        results = [
            checkpoint(self._tile, x, start, stop, use_reentrant=False, preserve_rng_state=False)
            for start, stop in tiles
        ]
        return torch.cat(cast("list[Tensor]", results), dim=dim)

    def _tile(self, x: Tensor, start: int, stop: int) -> Tensor:
        raise NotImplementedError

    def _describe(self) -> str:
        weight = self._frame
        pattern = str(weight.pattern) if weight.sparse else "dense"
        return f"{pattern}, values={weight.coding}, bytes={weight.nbytes:,}"


class CompressedLinear(CompressedLayer):
    """``x @ weight.T + bias`` with a compressed weight.

    Args:
        weight: weight of a Linear layer.
        bias: (out,); copied.
        tile_rows: output rows unpacked together.
        execution: see :data:`Execution`.
        train_codebook: make the centroids of a codebook a parameter. Gradients reach the input and the bias
            for any coding.

    Raises:
        ValueError: arguments do not fit the weight, or ``"nm"`` for a dense or padded one.
    """

    def __init__(
        self,
        weight: CompressedWeight,
        bias: Tensor | None = None,
        *,
        tile_rows: int = TILE_ROWS,
        execution: Execution = "tiled",
        train_codebook: bool = False,
    ) -> None:
        if len(weight.view.shape) != 2:
            raise ValueError(f"a Linear weight has shape (out, in), this one {weight.view.shape}")
        if execution not in get_args(Execution):
            raise ValueError(f"execution must be one of {', '.join(get_args(Execution))}, got {execution!r}")
        if execution == "nm" and (not weight.sparse or weight.view.columns % weight.pattern.m):
            raise ValueError("execution='nm' needs an n:m weight of whole groups: use execution='tiled'")
        super().__init__(weight, bias, tile_rows=tile_rows, train_codebook=train_codebook)
        self.out_features, self.in_features = weight.view.shape
        self.execution: Execution = execution
        self._packed: PackedNM | None = None
        self._packed_version = -1

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., out) for floating-point (..., in), in the same type."""
        if self.execution == "nm":
            bias = self._bias_of(0, self.out_features, x.dtype)
            return nm_linear(x, self._packed_weight(x.dtype), bias)
        return self._join_tiles(x, self._tiles(self.tile_rows), dim=-1)

    def _tile(self, x: Tensor, start: int, stop: int) -> Tensor:
        weight = self.compressed.rows(start, stop, x.dtype, check=False)
        return F.linear(x, weight, self._bias_of(start, stop, x.dtype))

    def to_dense(self) -> nn.Linear:
        """Return an ``nn.Linear`` with the unpacked weight, of the bias's type where there is one."""
        dtype = torch.float32 if self.bias is None else self.bias.dtype
        weight = own_copy(self.weight.to(dtype))
        return dense_linear(weight, self.bias, requires_grad=False, training=self.training)

    def _packed_weight(self, dtype: torch.dtype) -> PackedNM:
        """Return the packed weight, cached unless the codebook trains."""
        weight = self.compressed
        if weight.centroids is not None and weight.centroids.requires_grad and torch.is_grad_enabled():
            return weight.to_packed(dtype)
        version = -1 if weight.centroids is None else weight.centroids._version
        kept = self._packed
        if (
            kept is None
            or kept.dtype != dtype
            or kept.device != weight.device
            or version != self._packed_version
        ):
            with torch.inference_mode(False), torch.no_grad():
                kept = weight.to_packed(dtype)
            self._packed, self._packed_version = kept, version
        return kept

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._packed = None
        super()._load_from_state_dict(*arguments, **options)

    def extra_repr(self) -> str:
        """Return sizes and coding for ``print(model)``."""
        return f"in={self.in_features}, out={self.out_features}, {self._describe()}, {self.execution}"


class CompressedConv2d(CompressedLayer):
    """A convolution with a compressed weight.

    Args:
        weight: weight of the convolution.
        convolution: provides stride, padding, dilation, groups and bias.
        tile_rows: output channels unpacked together.
        train_codebook: make the centroids of a codebook a parameter.

    Raises:
        ValueError: arguments do not fit the weight, or padding other than zeros.
    """

    def __init__(
        self,
        weight: CompressedWeight,
        convolution: nn.Conv2d,
        *,
        tile_rows: int = TILE_ROWS,
        train_codebook: bool = False,
    ) -> None:
        if weight.view.shape != tuple(convolution.weight.shape):
            raise ValueError(
                f"the compressed weight has shape {weight.view.shape}, the convolution"
                f" {tuple(convolution.weight.shape)}"
            )
        if convolution.padding_mode != "zeros":
            raise ValueError(
                f"padding_mode={convolution.padding_mode!r}: only padding_mode='zeros' is supported"
            )
        super().__init__(weight, convolution.bias, tile_rows=tile_rows, train_codebook=train_codebook)
        self.stride = convolution.stride
        self.padding = convolution.padding
        self.dilation = convolution.dilation
        self.groups = convolution.groups
        self.in_channels, self.out_channels = convolution.in_channels, convolution.out_channels

    def to_dense(self) -> nn.Conv2d:
        """Return an ``nn.Conv2d`` with the unpacked weight, of the bias's type where there is one."""
        dtype = torch.float32 if self.bias is None else self.bias.dtype
        dense = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            cast(Any, self._frame.view.shape[2:]),
            cast(Any, self.stride),
            cast(Any, self.padding),
            cast(Any, self.dilation),
            self.groups,
            bias=False,
            device="meta",
        )
        dense.weight = nn.Parameter(own_copy(self.weight.to(dtype)), requires_grad=False)
        dense.register_parameter("bias", own_bias(self.bias, self.out_channels))
        return dense.train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of floating-point (B, C, H, W) or (C, H, W), in the same type."""
        # A tile of a grouped convolution is one group, so it reads one set of channels.
        rows = self.tile_rows if self.groups == 1 else self.out_channels // self.groups
        return self._join_tiles(x, self._tiles(rows), dim=-3)

    def _tile(self, x: Tensor, start: int, stop: int) -> Tensor:
        view = self._frame.view
        weight = view.from_matrix(self.compressed.rows(start, stop, x.dtype, check=False))
        if self.groups > 1:
            width = self.in_channels // self.groups
            x = x.narrow(-3, start * self.groups // self.out_channels * width, width)
        bias = self._bias_of(start, stop, x.dtype)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        """Return sizes and coding for ``print(model)``."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self._frame.view.shape[2:]},"
            f" stride={self.stride}, padding={self.padding}, groups={self.groups}, {self._describe()}"
        )
