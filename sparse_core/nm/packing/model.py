"""A model with coded weights, the intermediate form between files and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import shapes_of, state_difference
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.report import CompressionReport

LayerKind = Literal["nm", "int8", "blocks"]
DTYPES = {str(dtype): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
"""Types of dense weights by their names in files."""


@dataclass(frozen=True)
class LayerSettings:
    """Settings of a layer of ``sparsify``; layers without settings unpack their weights by tiles.

    Attributes:
        kind: ``"nm"`` for ``SparseLinear``, ``"int8"`` for ``SparseLinearInt8`` or ``"blocks"`` for
            ``BlockSparseLinear``.
        dtype: type of the dense weight, such as ``"torch.float32"``.
        activation: fused into the layer, or ``None``.
        input_scale: scale of int8 inputs; ``None`` for a scale of each row.
    """

    kind: LayerKind
    dtype: str = "torch.float32"
    activation: Literal["relu", "gelu"] | None = None
    input_scale: float | None = None

    def __post_init__(self) -> None:
        scale = self.input_scale
        fits = {
            "kind": self.kind in get_args(LayerKind),
            "dtype": self.dtype in DTYPES,
            "activation": self.activation in (None, "relu", "gelu"),
            "input_scale": scale is None
            or (isinstance(scale, int | float) and math.isfinite(scale) and scale > 0),
        }
        for name, right in fits.items():
            if not right:
                raise ValueError(f"{name} of a layer cannot be {getattr(self, name)!r}")


@dataclass(frozen=True, eq=False)
class CompressedModel:
    """A state dict with some coded weights.

    Attributes:
        weights: coded weights by dotted name of the layer.
        other: the rest of the state dict by name.
        report: report of the compression; ``None`` for a model read from a file.
        tied: names in the state dict of tensors that are the same as another, with its name; stored once.
        settings: settings by name of the layers that ``sparsify`` made.
    """

    weights: dict[str, CompressedWeight | BlockWeight]
    other: dict[str, Tensor]
    report: CompressionReport | None = field(default=None, repr=False)
    tied: dict[str, str] = field(default_factory=dict, repr=False)
    settings: dict[str, LayerSettings] = field(default_factory=dict, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all stored tensors."""
        weights = sum(weight.nbytes for weight in self.weights.values())
        return weights + sum(tensor.nbytes for tensor in self.other.values())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the dense state dict by name."""
        found = {weight_key(name): weight.view.shape for name, weight in self.weights.items()}
        found.update(shapes_of(self.other))
        return {**found, **{name: found[source] for name, source in self.tied.items()}}

    def state_dict(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Return the whole state dict with unpacked weights, floating-point tensors as ``dtype``."""
        found = {weight_key(name): weight.to_dense(dtype) for name, weight in self.weights.items()}
        for name, tensor in self.other.items():
            found[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        found.update({name: found[source] for name, source in self.tied.items()})
        return found

    def check_fits(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ``ValueError`` naming the first difference unless a dense state dict of these shapes fits."""
        difference = state_difference(expected, self.shapes())
        if difference is not None:
            raise ValueError(f"the compressed model belongs to another network: {difference}")

    def load_into(self, model: nn.Module) -> nn.Module:
        """Write the unpacked weights and all other tensors into a dense model.

        The model does not change if they do not fit.

        Raises:
            ValueError: the model has other tensors or shapes; names the first.
        """
        self.check_fits(shapes_of(model.state_dict()))
        model.load_state_dict(self.state_dict())
        return model


def weight_key(name: str) -> str:
    """Return the name of a layer's weight in the state dict."""
    return f"{name}.weight" if name else "weight"


def split_tied(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a state dict to store, and the first name of each shared tensor."""
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[Any, str] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} of the state dict is {type(value).__name__}: a file holds tensors only")
        key = memory_of(value)
        if value.numel() and key in names:
            tied[name] = names[key]
            continue
        names[key] = name
        stored[name] = value.detach()
    return stored, tied


def memory_of(tensor: Tensor) -> tuple[object, ...]:
    """Return a key that is equal only for the same numbers in the same memory."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
