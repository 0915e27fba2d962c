"""A linear layer that keeps whole blocks of weights, run by the block-sparse product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.formats import BSR
from sparse_core.kernels.op import Impl
from sparse_core.linalg import spmm
from sparse_core.linalg.spmm.api import SPMM
from sparse_core.nm.layers.coded_layer import (
    CodedLayer,
    dense_linear,
    own_bias,
    own_copy,
    through_parts,
    trains_weight,
)
from sparse_core.nm.layers.packed_layer import LAYER_FORMAT
from sparse_core.nm.masks import block_mask
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.model import LayerSettings
from sparse_core.nm.pattern import Block


class BlockSparseLinear(CodedLayer):
    """``x @ weight.T + bias`` with a weight stored in blocks; replaces ``nn.Linear``.

    Every number of a stored block trains; the blocks keep their positions. The product is
    :func:`sparse_core.linalg.spmm` of the weight with the transposed input.

    Args:
        matrix: (out, in) weight with square blocks; values are copied.
        bias: (out,); copied.
        impl: implementation of the product, see :func:`sparse_core.linalg.spmm`.

    Attributes:
        in_features, out_features: as in ``nn.Linear``.
        block_size: rows and columns of a block.
        values: (blocks, block_size, block_size).
        row_ptr, col: positions of the blocks, see :class:`sparse_core.formats.BSR`.
        bias: (out,) or ``None``.

    Raises:
        ValueError: blocks are not square, or a bias of another size.
    """

    values: nn.Parameter
    row_ptr: Tensor
    col: Tensor
    _matrix: BSR | None

    def __init__(self, matrix: BSR, bias: Tensor | None = None, *, impl: Impl = "auto") -> None:
        super().__init__()
        SPMM.check(impl)
        height, width = matrix.block_size
        if height != width:
            raise ValueError(f"blocks must be square, got {height}x{width}")
        self.out_features, self.in_features = matrix.shape
        self.block_size = height
        self.impl = impl
        self._matrix = None
        self.values = nn.Parameter(own_copy(matrix.values), requires_grad=matrix.values.requires_grad)
        self.register_buffer("row_ptr", own_copy(matrix.row_ptr))
        self.register_buffer("col", own_copy(matrix.col))
        self.register_parameter("bias", own_bias(bias, self.out_features))

    @classmethod
    def from_dense(
        cls, linear: nn.Linear, block: Block, *, mask: Tensor | None = None, impl: Impl = "auto"
    ) -> BlockSparseLinear:
        """Keep the blocks of a Linear layer, which does not change.

        Args:
            linear: any sizes; the edge may cut blocks. A parametrised weight is evaluated.
            block: block size, and the share of blocks to drop if there is no mask.
            mask: (out, in) bool, constant within each block. By default, a weight with few enough nonzero
                blocks is kept as it is; otherwise the blocks with the largest sum of squares are kept.
            impl: see the class.

        Raises:
            ValueError: a mask of another shape, or one that cuts through a block.
        """
        weight = linear.weight.detach()
        if mask is None:
            mask = _nonzero_blocks(weight, block.size)
            count = -(-weight.shape[0] // block.size) * -(-weight.shape[1] // block.size)
            if int(_blocks(mask, block.size).sum()) > max(1, round(block.density * count)):
                mask = block_mask(weight, block)
        else:
            _check_mask(mask, weight, block.size)
        matrix = BSR.from_dense(mask.to(weight.device, torch.float32), block_size=block.size)
        values = _gather(weight.masked_fill(~mask.to(weight.device), 0), matrix)
        values.requires_grad_(trains_weight(linear))
        return cls(matrix.with_values(values), linear.bias, impl=impl).train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias`` (..., out), contiguous.

        Args:
            x: (..., in), any strides; under autocast cast to its type like the weight.

        Raises:
            ValueError: another number of features, or another device.
            TypeError: another type than the weight's.
        """
        if x.is_nested:
            return through_parts(self, x)
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"x must have {self.in_features} features in its last dimension, got shape {tuple(x.shape)}"
            )
        matrix, bias = self.matrix, self.bias
        if torch.is_autocast_enabled(x.device.type) and torch.float64 not in (x.dtype, matrix.dtype):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, matrix = x.to(dtype), matrix.with_values(matrix.values.to(dtype))
            bias = None if bias is None else bias.to(dtype)  # type: ignore[assignment]
        if x.dtype != matrix.dtype:
            raise TypeError(f"x is {x.dtype} but the weight is {matrix.dtype}: convert one of them")
        product = spmm(matrix, x.reshape(-1, self.in_features).T, impl=self.impl).T
        result = product if bias is None else product + bias
        return result.contiguous().reshape(*x.shape[:-1], self.out_features)

    @property
    def matrix(self) -> BSR:
        """Weight as it is multiplied, with cached preparations of products; gradients reach ``values``."""
        if self._matrix is None or self._matrix.values is not self.values:
            shape = (self.out_features, self.in_features)
            self._matrix = BSR(self.row_ptr, self.col, self.values, shape, validate=False)
        return self._matrix

    @property
    def weight(self) -> Tensor:
        """Dense (out, in) weight, unpacked at each access; gradients reach ``values``."""
        return self.matrix.to_dense()

    @property
    def coded(self) -> BlockWeight:
        """See :attr:`CodedLayer.coded`."""
        shape = (self.out_features, self.in_features)
        return BlockWeight(BSR(self.row_ptr, self.col, self.values.detach(), shape, validate=False))

    @property
    def settings(self) -> LayerSettings:
        """See :attr:`CodedLayer.settings`."""
        return LayerSettings("blocks", str(self.values.dtype))

    def to_dense(self) -> nn.Linear:
        """Return an ``nn.Linear`` with the same weight and bias."""
        return dense_linear(
            own_copy(self.weight), self.bias, requires_grad=self.values.requires_grad, training=self.training
        )

    def extra_repr(self) -> str:
        """Return sizes and blocks for ``print(model)``."""
        size = self.block_size
        total = -(-self.out_features // size) * -(-self.in_features // size)
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None},"
            f" {len(self.values)} of {total} blocks of {size}x{size}"
        )

    def get_extra_state(self) -> Tensor:
        """Return (4,) int64: format version, block size, out and in features."""
        return torch.tensor([LAYER_FORMAT, self.block_size, self.out_features, self.in_features])

    def set_extra_state(self, state: Tensor) -> None:
        """Check that a stored state has this format and size.

        Raises:
            ValueError: another version, block size or shape.
        """
        self._check_extra_state(state, type(self).__name__)

    def _check_extra_state(self, state: Tensor, name: str) -> None:
        expected = self.get_extra_state()
        if not torch.equal(state.cpu(), expected):
            raise ValueError(
                f"{name}: the stored weight is (version, block size, out, in) = {tuple(state.tolist())},"
                f" the layer {tuple(expected.tolist())}"
            )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any, **options: Any
    ) -> None:
        name = prefix[:-1] or type(self).__name__
        if f"{prefix}_extra_state" in state_dict:
            self._check_extra_state(state_dict[f"{prefix}_extra_state"], name)
        self._check_structure(*(state_dict.get(f"{prefix}{key}") for key in ("row_ptr", "col")), name=name)
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        self._matrix = None

    def _check_structure(self, row_ptr: Tensor | None, col: Tensor | None, *, name: str) -> None:
        """Validate stored indices, which kernels do not check; torch reports missing or resized ones."""
        if row_ptr is None or col is None or row_ptr.device.type == "meta":
            return
        if row_ptr.shape != self.row_ptr.shape or col.shape != self.col.shape:
            return
        values = torch.zeros((), device=col.device, dtype=torch.float32).expand(
            len(col), self.block_size, self.block_size
        )
        try:
            BSR(row_ptr, col, values, (self.out_features, self.in_features))
        except ValueError as error:
            raise ValueError(f"{name}: the stored block structure is damaged ({error})") from error

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> BlockSparseLinear:
        super()._apply(fn, recurse)
        self._matrix = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_matrix": None}


def _blocks(mask: Tensor, size: int) -> Tensor:
    """Return (block rows, block columns) bool, true for blocks with a true entry."""
    rows, columns = mask.shape
    padded = nn.functional.pad(mask, (0, -columns % size, 0, -rows % size))
    return padded.reshape(-(-rows // size), size, -(-columns // size), size).any(dim=3).any(dim=1)


def _nonzero_blocks(weight: Tensor, size: int) -> Tensor:
    """Return (out, in) bool, true in blocks with a nonzero."""
    found = _blocks(weight != 0, size)
    spread = found.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return spread[: weight.shape[0], : weight.shape[1]]


def _check_mask(mask: Tensor, weight: Tensor, size: int) -> None:
    if mask.dtype != torch.bool or mask.shape != weight.shape:
        raise ValueError(
            f"mask must be bool of shape {tuple(weight.shape)}, got {mask.dtype} {tuple(mask.shape)}"
        )
    cut = (_nonzero_blocks(mask, size) & ~mask).nonzero()
    if len(cut):
        row, column = (int(place) for place in cut[0])
        raise ValueError(
            f"mask is not made of {size}x{size} blocks:"
            f" the block of row {row}, column {column} is kept in part"
        )


def _gather(weight: Tensor, matrix: BSR) -> Tensor:
    """Return the entries of ``weight`` in the stored blocks of ``matrix``, zero beyond the edge."""
    size = matrix.block_size[0]
    rows, columns = weight.shape
    padded = nn.functional.pad(weight, (0, -columns % size, 0, -rows % size))
    grid = padded.reshape(padded.shape[0] // size, size, padded.shape[1] // size, size).transpose(1, 2)
    row = torch.repeat_interleave(matrix.row_ptr.diff().long())
    return grid[row, matrix.col.long()].contiguous()
