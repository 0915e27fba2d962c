"""A weight with kept blocks, as files hold it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.formats import BSR
from sparse_core.nm.packing.matrix_view import MatrixView


@dataclass(frozen=True, eq=False)
class BlockWeight:
    """Square blocks of a weight (out, in) and their positions."""

    matrix: BSR

    @classmethod
    def from_parts(cls, parts: dict[str, Tensor], shape: tuple[int, ...], size: int) -> BlockWeight:
        """Check and join the result of :meth:`parts`."""
        row_ptr, col, values = (parts[name] for name in ("row_ptr", "col", "values"))
        if len(shape) != 2 or values.ndim != 3 or tuple(values.shape[1:]) != (size, size):
            raise ValueError(f"blocks of {size}x{size} do not fit a weight of shape {shape}")
        try:
            return cls(BSR(row_ptr, col, values, (shape[0], shape[1])))
        except ValueError as error:
            raise ValueError(f"the stored block structure is damaged ({error})") from error

    @property
    def view(self) -> MatrixView:
        """Shape of the weight."""
        return MatrixView(self.matrix.shape)

    @property
    def block_size(self) -> int:
        """Rows and columns of a block."""
        return self.matrix.block_size[0]

    @property
    def device(self) -> torch.device:
        """Device of the parts."""
        return self.matrix.values.device

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts().values())

    def parts(self) -> dict[str, Tensor]:
        """Return the stored parts by name."""
        return {"values": self.matrix.values, "row_ptr": self.matrix.row_ptr, "col": self.matrix.col}

    def to(self, device: torch.device | str) -> BlockWeight:
        """Return the weight on another device."""
        matrix = self.matrix
        row_ptr, col = matrix.row_ptr.to(device), matrix.col.to(device)
        return BlockWeight(BSR(row_ptr, col, matrix.values.to(device), matrix.shape, validate=False))

    def to_dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the weight (out, in) with zeros."""
        return self.matrix.with_values(self.matrix.values.to(dtype)).to_dense()
