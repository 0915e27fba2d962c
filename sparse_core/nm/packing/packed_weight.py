"""Packed n:m weights: the kept values, and their positions in a few bits per group."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

from sparse_core.formats import NM
from sparse_core.nm.packing.positions import index_row_bytes, pack_index, unpack_positions
from sparse_core.nm.packing.weight import NMWeight, part_of
from sparse_core.nm.pattern import TWO_FOUR, NMPattern, check_groups, check_nm_pattern

DENSE_VERSION = "dense version"
"""Key in ``plans`` for the version of the values from which the dense copy was made."""


class PackedNM(NMWeight):
    """A weight matrix that keeps n values in every group of m columns.

    For 2:4 the metadata is the nibble of the sparse tensor core instruction, ``i0 | i1 << 2`` with i0 < i1,
    two groups per byte, the lower group in the low nibble. In general a slot takes ⌈log2 m⌉ bits, slots in
    rising order, little-endian within a row; rows start at a byte.

    Args:
        values: (out, groups * n), floating point or int8, in column order.
        metadata: (out, ⌈groups * n * bits / 8⌉) uint8.
        shape: out, in.
        pattern: n and m.

    Attributes:
        plans: preparations of the implementations for these values; :meth:`with_values` drops them.

    Raises:
        TypeError: wrong dtypes.
        ValueError: sizes or devices do not fit.
    """

    def __init__(self, values: Tensor, metadata: Tensor, shape: tuple[int, int], pattern: NMPattern) -> None:
        out, columns = shape
        check_groups(columns, pattern.m)
        groups = columns // pattern.m
        if not (values.is_floating_point() or values.dtype == torch.int8):
            raise TypeError(f"values must be floating point or int8, got {values.dtype}")
        if metadata.dtype != torch.uint8:
            raise TypeError(f"metadata must be uint8, got {metadata.dtype}")
        if tuple(values.shape) != (out, groups * pattern.n):
            raise ValueError(
                f"values must have shape {(out, groups * pattern.n)} for a {pattern} weight of shape"
                f" {tuple(shape)}, got {tuple(values.shape)}"
            )
        expected = (out, index_row_bytes(groups, pattern, "slots"))
        if tuple(metadata.shape) != expected:
            raise ValueError(f"metadata must have shape {expected}, got {tuple(metadata.shape)}")
        if metadata.device != values.device:
            raise ValueError(f"metadata is on {metadata.device} but values are on {values.device}")
        self.values = values
        self.metadata = metadata
        self.shape = (int(out), int(columns))
        self.pattern = pattern
        self.plans: dict[object, object] = {}

    @classmethod
    def from_dense(
        cls, weight: Tensor, pattern: NMPattern = TWO_FOUR, mask: Tensor | None = None
    ) -> PackedNM:
        """Pack ``weight`` (out, in), which has at most n nonzeros per group or is cut to ``mask``.

        Args:
            weight: (out, in) floating point or int8.
            pattern: n and m.
            mask: (out, in) bool with at most n true per group; by default the nonzeros.

        Raises:
            TypeError: the mask is not bool, or ``pattern`` no NMPattern.
            ValueError: a group has too many; names row and group.
        """
        if weight.ndim != 2:
            raise ValueError(f"weight must be two-dimensional, got shape {tuple(weight.shape)}")
        check_nm_pattern(pattern)
        check_groups(weight.shape[1], pattern.m)
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(f"mask must be bool, got {mask.dtype}")
        if mask is not None and mask.shape != weight.shape:
            raise ValueError(
                f"mask must have the weight's shape {tuple(weight.shape)}, got {tuple(mask.shape)}"
            )
        kept = weight.detach() if mask is None else weight.detach().masked_fill(~mask, 0)
        # Positions come from a float copy, because NM matrices hold no integers; values are gathered after.
        slots = kept != 0 if mask is None else mask
        matrix = NM.from_dense(slots.to(torch.float32), n=pattern.n, m=pattern.m)
        out, columns = weight.shape
        groups = columns // pattern.m
        values = kept.reshape(out, groups, pattern.m).gather(2, matrix.index.long())
        return cls(
            values.reshape(out, groups * pattern.n),
            pack_index(matrix.index, pattern),
            (out, columns),
            pattern,
        )

    @classmethod
    def from_torch(cls, tensor: Tensor) -> PackedNM:
        """Pack one of torch's 2:4 semi-structured tensors (``to_sparse_semi_structured``).

        torch reads its compressed values by a product with the identity. So -0 becomes 0, and an infinity or
        NaN spoils its row; other numbers do not change.

        Args:
            tensor: two-dimensional, from cuSPARSELt or CUTLASS.

        Raises:
            TypeError: a tensor of another layout, or int8, which torch cannot convert to dense.
            ValueError: not two-dimensional, or its numbers are not finite.
        """
        if not isinstance(tensor, SparseSemiStructuredTensor):
            raise TypeError(
                "expected a semi-structured tensor, which torch.sparse.to_sparse_semi_structured"
                f" makes; got {type(tensor).__name__}: a dense weight is packed by from_dense"
            )
        if tensor.dtype == torch.int8:
            raise TypeError("torch cannot read int8 from its semi-structured tensors: keep the dense weight")
        dense = tensor.detach().to_dense()
        if not bool(dense.isfinite().all()):
            raise ValueError("the tensor holds infinity or NaN, which torch cannot read from its own layout")
        return cls.from_dense(dense)

    def to_torch(self) -> SparseSemiStructuredTensor:
        """Return the 2:4 weight as torch's semi-structured tensor, for ``torch.nn.Linear`` and ``torch.mm``.

        Raises:
            ValueError: the pattern is not 2:4, or the weight is not on a GPU.
            RuntimeError: torch does not support its type or shape, which depends on version and back end.
        """
        if self.pattern != TWO_FOUR:
            raise ValueError(f"torch's semi-structured tensors are 2:4; this weight is {self.pattern}")
        if self.device.type != "cuda":
            raise ValueError(
                f"torch's semi-structured tensors live on a GPU; this weight is on {self.device}"
            )
        made: SparseSemiStructuredTensor = to_sparse_semi_structured(self.to_dense().detach())
        return made

    def index(self) -> Tensor:
        """Return (out, groups, n) uint8: the position of each value within its group."""
        return self.positions(check=False)

    def kept_values(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the values of some rows, (rows, groups * n)."""
        return part_of(self.values, start, stop)

    def positions(self, start: int = 0, stop: int | None = None, *, check: bool = True) -> Tensor:
        """See :meth:`NMWeight.positions`."""
        metadata = part_of(self.metadata, start, stop)
        return unpack_positions(metadata, self.groups, self.pattern, "slots", check=check)

    def to_dense(self) -> Tensor:
        """Return (out, in) with zeros at dropped positions; the gradient flows to ``values``."""
        return self.rows(dtype=self.values.dtype, check=False)

    def to_matrix(self) -> NM:
        """Return the same weight as ``sparse_core.formats.NM``, for solvers and products."""
        out, columns = self.shape
        values = self.values.reshape(out, columns // self.pattern.m, self.pattern.n)
        n, m = self.pattern.n, self.pattern.m
        return NM(values, self.index(), self.shape, n=n, m=m, validate=False)

    def with_values(self, values: Tensor) -> PackedNM:
        """Return the same positions with other values (out, groups * n)."""
        return PackedNM(values, self.metadata, self.shape, self.pattern)

    def drop_stale_plans(self) -> None:
        """Drop preparations of values that changed in place, unless they follow the change."""
        for name, plans in list(self.plans.items()):
            if not getattr(plans, "follows", lambda values: False)(self.values):
                del self.plans[name]

    def to(self, target: torch.device | str | torch.dtype) -> PackedNM:
        """Return the weight on another device, or with values of another type."""
        if isinstance(target, torch.dtype):
            return self.with_values(self.values.to(target))
        return PackedNM(self.values.to(target), self.metadata.to(target), self.shape, self.pattern)

    def __getstate__(self) -> dict[str, object]:
        # Plans refer to the memory of these tensors, so a copy makes its own.
        return {**self.__dict__, "plans": {}}

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns, equal to ``shape``."""
        return self.shape

    @property
    def sparse(self) -> bool:
        """True: positions are always stored."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of values and metadata."""
        return self.values.nbytes + self.metadata.nbytes
