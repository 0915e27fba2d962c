"""Linear and Conv2d layers that hold a compressed weight and unpack it a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sparse_core.common.surgery import replace_modules, share_weight
from sparse_core.compression.model import CompressedModel, weight_key
from sparse_core.nm.linear import nm_linear
from sparse_core.nm.packing.compressed_weight import PARTS, CompressedWeight
from sparse_core.nm.packing.packed_weight import PackedNM

Execution = Literal["tiled", "nm"]
"""``"tiled"``: unpack some output rows at a time and multiply densely. ``"nm"``: through
:func:`sparse_core.nm.nm_linear`, which has kernels for 2:4 on GPUs with sparse tensor cores; keeps the values
unpacked to the input's type, n/m of the dense weight."""

TILE_ROWS = 256
"""Output rows that are unpacked together; the largest piece of dense weight there ever is."""


class _CompressedLayer(nn.Module):
    """What the two layers share: the parts of the weight as buffers, and its tiles."""

    bias: nn.Parameter | None

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
        # Once here and for every state that is loaded, so that no call has to wait for a GPU.
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
        """The weight as it is stored now; gradients reach a trained codebook."""
        parts = {name: cast("Tensor | None", getattr(self, name)) for name in PARTS}
        return replace(self._frame, **cast(Any, parts))

    @property
    def weight(self) -> Tensor:
        """The dense weight, unpacked anew, float32."""
        return self.compressed.to_dense()

    def _apply(self, fn: Any, recurse: bool = True) -> _CompressedLayer:
        # Casting a model must not touch what is stored: types are part of the coding.
        parts = {name: cast("Tensor | None", getattr(self, name)) for name in PARTS}
        # A parameter is cast in place: what it held has to be kept apart.
        stored = {name: None if part is None else part.data for name, part in parts.items()}
        super()._apply(fn, recurse)
        for name, before in stored.items():
            moved = cast("Tensor | None", getattr(self, name))
            if before is None or moved is None or moved.dtype == before.dtype:
                continue
            if isinstance(moved, nn.Parameter):
                moved.data = before.to(moved.device)
            else:
                setattr(self, name, before.to(moved.device))
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.compressed.check()

    def _tiles(self, rows: int) -> Iterator[tuple[int, int]]:
        total = self._frame.view.rows
        for start in range(0, total, rows):
            yield start, min(start + rows, total)

    def _bias_of(self, start: int, stop: int, dtype: torch.dtype) -> Tensor | None:
        return None if self.bias is None else self.bias[start:stop].to(dtype)

    def _joined(self, x: Tensor, tiles: Iterator[tuple[int, int]], dim: int) -> Tensor:
        """Results of all tiles; where gradients are wanted tiles are unpacked again on the way back."""
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


class CompressedLinear(_CompressedLayer):
    """``x @ weight.T + bias`` with a compressed weight.

    Args:
        weight: of a Linear layer.
        bias: (out,); copied.
        tile_rows: output rows unpacked together.
        execution: see :data:`Execution`.
        train_codebook: make the centroids of a codebook a parameter. Gradients reach the input and the bias
            whatever the coding.

    Raises:
        ValueError: arguments that do not fit the weight, or ``"nm"`` for a dense or padded one.
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
        """(..., in) floating point to (..., out) of the same type."""
        if self.execution == "nm":
            bias = self._bias_of(0, self.out_features, x.dtype)
            return nm_linear(x, self._packed_weight(x.dtype), bias)
        return self._joined(x, self._tiles(self.tile_rows), dim=-1)

    def _tile(self, x: Tensor, start: int, stop: int) -> Tensor:
        weight = self.compressed.rows(start, stop, x.dtype, check=False)
        return F.linear(x, weight, self._bias_of(start, stop, x.dtype))

    def _packed_weight(self, dtype: torch.dtype) -> PackedNM:
        """Kept until type, device or codebook change; never while the codebook is trained."""
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
        """Sizes and coding, as ``print(model)`` shows them."""
        return f"in={self.in_features}, out={self.out_features}, {self._describe()}, {self.execution}"


class CompressedConv2d(_CompressedLayer):
    """A convolution with a compressed weight.

    Args:
        weight: of the convolution.
        convolution: whose stride, padding, dilation, groups and bias are taken.
        tile_rows: output channels unpacked together.
        train_codebook: make the centroids of a codebook a parameter.

    Raises:
        ValueError: arguments that do not fit the weight, or padding other than zeros.
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
            raise ValueError(f"padding_mode={convolution.padding_mode!r}: only zeros can be compressed")
        super().__init__(weight, convolution.bias, tile_rows=tile_rows, train_codebook=train_codebook)
        self.stride = convolution.stride
        self.padding = convolution.padding
        self.dilation = convolution.dilation
        self.groups = convolution.groups
        self.in_channels, self.out_channels = convolution.in_channels, convolution.out_channels

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) or (C, H, W) floating point to the convolution of the same type."""
        # A tile of a grouped convolution is one group, so that it reads one set of channels.
        rows = self.tile_rows if self.groups == 1 else self.out_channels // self.groups
        return self._joined(x, self._tiles(rows), dim=-3)

    def _tile(self, x: Tensor, start: int, stop: int) -> Tensor:
        view = self._frame.view
        weight = view.from_matrix(self.compressed.rows(start, stop, x.dtype, check=False))
        if self.groups > 1:
            width = self.in_channels // self.groups
            x = x.narrow(-3, start * self.groups // self.out_channels * width, width)
        bias = self._bias_of(start, stop, x.dtype)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        """Sizes and coding, as ``print(model)`` shows them."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self._frame.view.shape[2:]},"
            f" stride={self.stride}, padding={self.padding}, groups={self.groups}, {self._describe()}"
        )


def compressed_layers(
    model: nn.Module,
    compressed: CompressedModel,
    *,
    tile_rows: int = TILE_ROWS,
    execution: Execution = "tiled",
    train_codebook: bool = False,
) -> nn.Module:
    """Put compressed layers in the place of the Linear and Conv2d layers of those names.

    Layers whose weight was that of another when the model was compressed share what is stored.

    Other compressed weights (sparse and transposed convolutions) and all other tensors are unpacked into the
    model. Where ``execution="nm"`` does not fit a layer, it runs tiled.

    Args:
        model: a dense model, changed in place; its optimiser must be made again.
        compressed: of such a model.
        tile_rows, execution, train_codebook: of the layers.

    Returns:
        The model, or the new layer where the model was one layer.

    Raises:
        ValueError: the compressed model is of another network.
    """
    compressed.load_into(model)
    modules = dict(model.named_modules())
    new: dict[nn.Module, nn.Module] = {}
    for name, weight in compressed.weights.items():
        old = modules[name]
        trained = train_codebook and weight.centroids is not None
        weight = weight.to(cast(Tensor, old.weight).device)
        if type(old) is nn.Linear:
            whole = weight.sparse and weight.view.columns % weight.pattern.m == 0
            new[old] = CompressedLinear(
                weight,
                old.bias,
                tile_rows=tile_rows,
                execution=execution if whole else "tiled",
                train_codebook=trained,
            ).train(old.training)
        elif type(old) is nn.Conv2d:
            layer = CompressedConv2d(weight, old, tile_rows=tile_rows, train_codebook=trained)
            new[old] = layer.train(old.training)
    _share_tied(modules, compressed, new)
    return replace_modules(model, new)


def _share_tied(
    modules: dict[str, nn.Module], compressed: CompressedModel, new: dict[nn.Module, nn.Module]
) -> None:
    """Layers whose weight is that of a compressed one: of the same kind, over the same stored parts."""
    names = {weight_key(name): name for name in modules}
    for key, source in compressed.tied.items():
        if key not in names or source not in names:
            continue
        old, first = modules[names[key]], new.get(modules[names[source]])
        if old in new or not isinstance(first, _CompressedLayer):
            continue
        twin: _CompressedLayer
        if type(old) is nn.Linear and isinstance(first, CompressedLinear):
            twin = CompressedLinear(
                first.compressed, old.bias, tile_rows=first.tile_rows, execution=first.execution
            )
        elif type(old) is nn.Conv2d:
            twin = CompressedConv2d(first.compressed, old, tile_rows=first.tile_rows)
        else:
            continue
        share_weight(twin, first)
        new[old] = twin.train(old.training)
