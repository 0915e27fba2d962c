"""A weight in as few bytes as its pattern and coding need, unpacked by rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sparse_core.nm.packing.bits import packed_bytes, unpack_bits
from sparse_core.nm.packing.codebook import code_bits, lookup
from sparse_core.nm.packing.coding import FLOATS, INTEGER_BITS, Coding
from sparse_core.nm.packing.matrix_view import MatrixView
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.positions import IndexCoding, index_row_bytes, pack_index, unpack_positions
from sparse_core.nm.packing.quantisation import dequantise
from sparse_core.nm.packing.weight import NMWeight, part_of
from sparse_core.nm.pattern import NMPattern

Part = Literal["values", "index", "scale", "centroids"]
#: Names of a weight's stored parts, in this order.
PARTS: tuple[Part, ...] = ("values", "index", "scale", "centroids")


@dataclass(frozen=True, eq=False)
class CompressedWeight(NMWeight):
    """Kept values, their positions, and the parameters of their coding.

    Attributes:
        view: shape of the weight, and its layout as a matrix.
        pattern: n kept of each m columns; 1:1 for a dense weight, which has no index.
        coding: storage of the values.
        index_coding: storage of the positions.
        values: (rows, bytes) uint8 for int8, int4 and codebooks, see :mod:`sparse_core.nm.packing.bits`; else
            (rows, kept) floating point.
        index: (rows, bytes) uint8, see :mod:`sparse_core.nm.packing.positions`.
        scale: (rows, groups) for int8 and int4.
        centroids: (entries,) float32 of a codebook.
        zero: for a codebook: code 0 is zero.

    Raises:
        ValueError: a part has an unexpected type, size or device; names it.
    """

    view: MatrixView
    pattern: NMPattern
    coding: Coding
    index_coding: IndexCoding
    values: Tensor
    index: Tensor
    scale: Tensor | None = None
    centroids: Tensor | None = None
    zero: bool = False

    def __post_init__(self) -> None:
        for name, (dtypes, shape) in self._expected().items():
            part = self.parts().get(name)
            if part is None:
                raise ValueError(f"{name} is missing: {self.coding} needs it")
            sizes = " x ".join("any" if size is None else str(size) for size in shape)
            fits = part.ndim == len(shape) and all(
                size in (None, found) for size, found in zip(shape, part.shape, strict=True)
            )
            if part.dtype not in dtypes or not fits:
                raise ValueError(
                    f"{name} must be {' or '.join(map(str, dtypes))} of {sizes}, got {part.dtype}"
                    f" {tuple(part.shape)}"
                )
            if part.device != self.values.device:
                raise ValueError(f"{name} is on {part.device} but values are on {self.values.device}")
        extra = self.parts().keys() - self._expected().keys()
        if extra:
            raise ValueError(f"{self.coding} has no {', '.join(sorted(extra))}")

    def _expected(self) -> dict[Part, tuple[tuple[torch.dtype, ...], tuple[int | None, ...]]]:
        """Return the expected types and sizes of the parts."""
        rows, kept = self.view.rows, self.kept
        bytes_only = (torch.uint8,)
        index_bytes = index_row_bytes(self.groups, self.pattern, self.index_coding) if self.sparse else 0
        found: dict[Part, tuple[tuple[torch.dtype, ...], tuple[int | None, ...]]] = {
            "index": (bytes_only, (rows, index_bytes))
        }
        if self.coding.kind in FLOATS:
            found["values"] = ((FLOATS[self.coding.kind],), (rows, kept))
            return found
        found["values"] = (bytes_only, (rows, packed_bytes(kept, self.value_bits)))
        if self.coding.kind == "codebook":
            found["centroids"] = ((torch.float32,), (None,))
        else:
            wanted = torch.float16 if self.coding.half_scales else torch.float32
            size = self.coding.group_size or max(kept, 1)
            found["scale"] = ((wanted,), (rows, -(-kept // size)))
        return found

    @classmethod
    def from_packed(cls, packed: PackedNM, scale: Tensor | None = None) -> CompressedWeight:
        """Return the same weight in the form of files; the parts share memory with ``packed``.

        Args:
            packed: floating point, or int8.
            scale: (out,) float32 for int8 values.

        Raises:
            ValueError: int8 without a scale, or a scale for other values.
        """
        kind = str(packed.dtype).removeprefix("torch.")
        values, index = packed.values.detach(), packed.metadata
        if packed.dtype == torch.int8:
            values = values.view(torch.uint8)
        if packed.pattern.n == packed.pattern.m:
            index = index.new_empty((len(index), 0))
        return cls(
            MatrixView(packed.shape),
            packed.pattern,
            Coding.parse(kind),
            "slots",
            values,
            index,
            None if scale is None else scale.detach()[:, None],
        )

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.view.rows, self.view.columns

    @property
    def sparse(self) -> bool:
        """True if positions are stored."""
        return self.pattern.n < self.pattern.m

    @property
    def entries(self) -> int:
        """Number of different values of a codebook, 0 without one."""
        return 0 if self.centroids is None else len(self.centroids) + self.zero

    @property
    def value_bits(self) -> int:
        """Bits per stored value."""
        return code_bits(max(self.entries, 1)) if self.coding.kind == "codebook" else self.coding.bits

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts().values())

    def parts(self) -> dict[Part, Tensor]:
        """Stored parts by name."""
        named = {name: getattr(self, name) for name in PARTS}
        return {name: part for name, part in named.items() if part is not None}

    def to(self, device: torch.device | str) -> CompressedWeight:
        """Return the weight on another device."""
        parts: dict[str, Any] = {name: part.to(device) for name, part in self.parts().items()}
        return replace(self, **parts)

    def kept_values(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the kept values of some rows (rows, kept), float32 or their stored floating-point type.

        Differentiable in ``centroids``.
        """
        stored = part_of(self.values, start, stop)
        if self.coding.kind in FLOATS:
            return stored
        numbers = unpack_bits(stored, self.kept, self.value_bits)
        if self.centroids is not None:
            return lookup(self.centroids, numbers, zero=self.zero)
        assert self.scale is not None
        scale = part_of(self.scale, start, stop)
        return dequantise(self._signed(numbers), scale, self.coding.group_size or max(self.kept, 1))

    def integers(self) -> Tensor:
        """Return the int8 numbers (rows, kept) of int8 and int4; ``ValueError`` for another coding."""
        if self.coding.kind not in INTEGER_BITS:
            raise ValueError(f"values are stored as {self.coding}, not as integers")
        return self._signed(unpack_bits(self.values, self.kept, self.value_bits))

    def _signed(self, numbers: Tensor) -> Tensor:
        """Convert to two's complement of int8 and int4."""
        if self.value_bits == 8:
            return numbers.view(torch.int8)
        half = 1 << (self.value_bits - 1)
        return ((numbers ^ half).to(torch.int8)) - half

    def positions(self, start: int = 0, stop: int | None = None, *, check: bool = True) -> Tensor:
        """Return the position (rows, groups, n) uint8 of each kept value within its group.

        Raises:
            ValueError: with ``check``, numbers that are not a choice of n of m.
        """
        if not self.sparse:
            every = torch.arange(self.pattern.m, dtype=torch.uint8, device=self.device)
            return every.expand(len(self.values[start:stop]), self.groups, self.pattern.m)
        return unpack_positions(
            part_of(self.index, start, stop), self.groups, self.pattern, self.index_coding, check=check
        )

    def to_dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the weight in its own shape, with zeros."""
        return self.view.from_matrix(self.rows(dtype=dtype)).contiguous()

    def to_packed(self, dtype: torch.dtype = torch.float32) -> PackedNM:
        """Return the matrix for :func:`sparse_core.nm.nm_linear`, with values of ``dtype``.

        ``torch.int8`` returns the integers of int8 and int4 with one scale per row; multiply the product by
        ``scale``.

        Raises:
            ValueError: a padded weight, or int8 of another coding or with scales per group.
        """
        if self.view.columns % self.pattern.m:
            raise ValueError(
                f"the last of {self.groups} groups reaches beyond the {self.view.columns} columns: packed n:m"
                " layers need whole groups"
            )
        if dtype == torch.int8 and self.coding.group_size is not None:
            raise ValueError("int8 packing needs one scale per row, not scales per group")
        values = self.integers() if dtype == torch.int8 else self.kept_values().to(dtype)
        pattern = NMPattern(self.pattern.n, self.pattern.m)
        return PackedNM(values, pack_index(self.positions(), pattern), self.matrix_shape, pattern)

    def check(self, *, finite: bool = True) -> None:
        """Validate all stored data.

        Args:
            finite: also refuse values, scales and centroids that are not finite.

        Raises:
            ValueError: invalid positions or codebook entries, or numbers that are not finite: the data is
                damaged.
        """
        self.positions()
        if self.coding.kind == "codebook":
            codes = unpack_bits(self.values, self.kept, self.value_bits)
            if codes.numel() and int(codes.max()) >= self.entries:
                raise ValueError(f"code {int(codes.max())} of a codebook of {self.entries} entries: damaged")
        for name in ("scale", "centroids", "values") if finite else ():
            part = self.parts().get(name)
            if part is not None and part.is_floating_point() and not bool(part.isfinite().all()):
                raise ValueError(f"{name} hold NaN or infinite values: damaged")
