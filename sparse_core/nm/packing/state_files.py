"""What a packed layer is, without its numbers: enough to build an empty one and load it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sparse_core.formats import BSR, index_dtype_for
from sparse_core.nm.layers import SparseLinear
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.conversion import PackedModule
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.linear import Activation
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern

Kind = Literal["nm", "int8", "blocks"]
_DTYPES = {str(dtype): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


@dataclass(frozen=True)
class LayerRecord:
    """One packed layer as it is described in the header of a file.

    Attributes:
        kind: ``"nm"``, ``"int8"`` or ``"blocks"``.
        shape: out, in.
        bias: whether there is one.
        dtype: of the dense weight, such as ``"torch.float32"``.
        n, m: of the pattern; 0 for blocks.
        activation: fused into the layer, or ``None``.
        fixed_input_scale: for int8: whether the scale of the inputs is stored.
        block_size, blocks: of a block-sparse layer; 0 otherwise.
    """

    kind: Kind
    shape: tuple[int, int]
    bias: bool
    dtype: str
    n: int = 0
    m: int = 0
    activation: Activation | None = None
    fixed_input_scale: bool = False
    block_size: int = 0
    blocks: int = 0

    def to_json(self) -> dict[str, Any]:
        """Types that ``json`` writes."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, found: Any) -> LayerRecord:
        """Undo :meth:`to_json`.

        Raises:
            ValueError: a field is missing, unknown or impossible; names it.
        """
        if not isinstance(found, dict):
            raise ValueError(f"a layer must be described by an object, got {type(found).__name__}")
        try:
            record = cls(**{**found, "shape": tuple(found["shape"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"a field is missing or unknown ({error})") from error
        for name, fits in record._checks().items():
            if not fits:
                raise ValueError(f"{name} cannot be {getattr(record, name)!r}")
        return record

    def _checks(self) -> dict[str, bool]:
        blocks = self.kind == "blocks"
        sizes = len(self.shape) == 2 and all(_is_count(size) and size > 0 for size in self.shape)
        counts = _is_count(self.n) and _is_count(self.m)
        fits = sizes and counts and (blocks or (1 <= self.n <= self.m <= 256 and self.shape[1] % self.m == 0))
        size_fits = _is_count(self.block_size) and (not blocks or self.block_size in (8, 16, 32, 64))
        return {
            "kind": self.kind in get_args(Kind),
            "shape": sizes,
            "bias": isinstance(self.bias, bool),
            "dtype": self.dtype in _DTYPES,
            "m": fits,
            "activation": self.activation in (None, "relu", "gelu"),
            "fixed_input_scale": isinstance(self.fixed_input_scale, bool),
            "block_size": size_fits,
            "blocks": _is_count(self.blocks) and size_fits and (not blocks or self.blocks <= self._grid()),
        }

    def _grid(self) -> int:
        return -(-self.shape[0] // self.block_size) * -(-self.shape[1] // self.block_size)

    @property
    def dense_nbytes(self) -> int:
        """Bytes of the dense weight."""
        return self.shape[0] * self.shape[1] * _DTYPES[self.dtype].itemsize

    @property
    def pattern(self) -> str:
        """For tables: ``"2:4"``, ``"2:4 int8"`` or ``"16x16 blocks"``."""
        if self.kind == "blocks":
            return f"{self.block_size}x{self.block_size} blocks"
        return f"{self.n}:{self.m} int8" if self.kind == "int8" else f"{self.n}:{self.m}"

    def empty_layer(self, dtype: torch.dtype, device: torch.device) -> PackedModule:
        """A layer of this kind with zeros, to be loaded."""
        bias = torch.zeros(self.shape[0], dtype=dtype, device=device) if self.bias else None
        if self.kind == "blocks":
            return BlockSparseLinear(self._empty_blocks(dtype, device), bias)
        pattern = NMPattern(self.n, self.m)
        values = torch.int8 if self.kind == "int8" else dtype
        packed = PackedNM.from_dense(torch.zeros(self.shape, dtype=values, device=device), pattern)
        if self.kind == "nm":
            return SparseLinear(packed, bias, activation=self.activation)
        return SparseLinearInt8(
            packed,
            torch.ones(self.shape[0], device=device, dtype=torch.float32),
            bias,
            activation_scale=torch.ones((), device=device, dtype=torch.float32)
            if self.fixed_input_scale
            else None,
            activation=self.activation,
            dtype=dtype,
        )

    def _empty_blocks(self, dtype: torch.dtype, device: torch.device) -> BSR:
        size, blocks = self.block_size, self.blocks
        across, index = -(-self.shape[1] // size), index_dtype_for(*self.shape, blocks)
        rows = torch.arange(-(-self.shape[0] // size) + 1, device=device)
        row_ptr = (rows * across).clamp(max=blocks).to(index)
        col = (torch.arange(blocks, device=device) % across).to(index)
        values: Tensor = torch.zeros(blocks, size, size, dtype=dtype, device=device)
        return BSR(row_ptr, col, values, self.shape, validate=False)


def record_of(layer: PackedModule) -> LayerRecord:
    """The description of a packed layer."""
    shape, bias = (layer.out_features, layer.in_features), layer.bias is not None
    if isinstance(layer, BlockSparseLinear):
        return LayerRecord(
            "blocks",
            shape,
            bias,
            str(layer.values.dtype),
            block_size=layer.block_size,
            blocks=len(layer.values),
        )
    n, m = layer.pattern.n, layer.pattern.m
    activation = layer.activation
    if isinstance(layer, SparseLinearInt8):
        fixed = layer.activation_scale is not None
        return LayerRecord("int8", shape, bias, str(layer.dtype), n, m, activation, fixed)
    return LayerRecord("nm", shape, bias, str(layer.values.dtype), n, m, activation)


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
