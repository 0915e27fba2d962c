"""Base of n:m weights: kept values of each group of columns, and their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.nm.pattern import NMPattern


class NMWeight:
    """A matrix that keeps n values in every group of m columns; the base of both codings.

    :class:`sparse_core.nm.packing.packed_weight.PackedNM` holds numbers as products read them,
    :class:`sparse_core.nm.packing.compressed_weight.CompressedWeight` stores few bits per value.

    Attributes:
        values: kept values, one row per row of the matrix, as the subclass stores them.
        pattern: n and m.
    """

    values: Tensor
    pattern: NMPattern

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        raise NotImplementedError

    @property
    def sparse(self) -> bool:
        """True if positions are stored."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        raise NotImplementedError

    def kept_values(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the kept values of some rows, (rows, kept) floating point or int8."""
        raise NotImplementedError

    def positions(self, start: int = 0, stop: int | None = None, *, check: bool = True) -> Tensor:
        """Return the position (rows, groups, n) uint8 of each kept value within its group."""
        raise NotImplementedError

    @property
    def groups(self) -> int:
        """Groups per row; the last may extend beyond the columns."""
        return -(-self.matrix_shape[1] // self.pattern.m)

    @property
    def kept(self) -> int:
        """Kept values per row."""
        return self.groups * self.pattern.n

    @property
    def device(self) -> torch.device:
        """Device of the parts."""
        return self.values.device

    def rows(
        self,
        start: int = 0,
        stop: int | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        check: bool = True,
    ) -> Tensor:
        """Return rows ``start`` to ``stop`` of the matrix, (rows, columns) with zeros at dropped positions.

        Differentiable like :meth:`kept_values`. ``check`` raises on damaged positions, which waits for the
        device.
        """
        values, columns = self.kept_values(start, stop).to(dtype), self.matrix_shape[1]
        if not self.sparse:
            return values[:, :columns]
        count, width = len(values), self.groups * self.pattern.m
        dense = torch.zeros((count, self.groups, self.pattern.m), dtype=dtype, device=self.device)
        grouped = values.reshape(count, self.groups, self.pattern.n)
        dense = dense.scatter(2, self.positions(start, stop, check=check).long(), grouped)
        whole = dense.reshape(count, width)
        return whole if width == columns else whole[:, :columns]


def part_of(tensor: Tensor, start: int, stop: int | None) -> Tensor:
    """Return rows ``start`` to ``stop``; the tensor itself if these are all."""
    return tensor if not start and stop is None else tensor[start:stop]
