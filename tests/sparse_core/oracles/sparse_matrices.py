"""Nasty matrices for hypothesis: what a sparse library meets in the wild, small enough to shrink.

Every strategy gives :class:`Entries`, coordinates and values of no container in particular, so that tests of
any format can start from them. scipy or a plain loop over the entries is the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from hypothesis import strategies as st
from torch import Tensor

REAL_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX_DTYPES = (torch.complex64, torch.complex128)
ALL_DTYPES = REAL_DTYPES + COMPLEX_DTYPES
INDEX_DTYPES = (torch.int32, torch.int64)
#: How entries are laid out; see :func:`_lay_out`.
STRUCTURES = ("empty", "uniform", "one dense row", "power law", "blocks", "diagonal", "full", "one cell")


@dataclass(frozen=True, eq=False)
class Entries:
    """Coordinates and values in the order in which they are stored.

    Attributes:
        row, col: (nnz,) int32 or int64.
        values: (nnz,) of any floating or complex dtype.
        shape: rows and columns; either may be zero.
    """

    row: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Stored entries, duplicates and explicit zeros included."""
        return len(self.values)

    def __repr__(self) -> str:
        entries = list(zip(self.row.tolist(), self.col.tolist(), self.values.tolist(), strict=True))
        return f"Entries({self.shape}, {self.values.dtype}, {self.row.dtype}, {entries})"

    def to(self, device: torch.device | str) -> Entries:
        """The same entries on a device."""
        return replace(self, row=self.row.to(device), col=self.col.to(device), values=self.values.to(device))

    def coo(self) -> Any:
        """The entries as a ``sparse_core.formats.COO``, duplicates kept."""
        from sparse_core.formats import COO

        return COO(self.row, self.col, self.values, self.shape)

    def to_scipy(self) -> scipy.sparse.coo_array:
        """scipy's COO; half types become float32. scipy sums duplicates when it converts further."""
        values = self.values.cpu()
        values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        coordinates = (self.row.cpu().numpy(), self.col.cpu().numpy())
        return scipy.sparse.coo_array((values.numpy(), coordinates), shape=self.shape)

    def sums(self) -> dict[tuple[int, int], complex | float]:
        """Sum of each stored cell, entry by entry in order; half types in float32, rounded once."""
        wide = torch.float32 if self.values.dtype in (torch.float16, torch.bfloat16) else self.values.dtype
        found: dict[tuple[int, int], Tensor] = {}
        for row, col, value in zip(
            self.row.tolist(), self.col.tolist(), self.values.cpu().to(wide), strict=True
        ):
            found[row, col] = found[row, col] + value if (row, col) in found else value
        return {cell: found[cell].to(self.values.dtype).item() for cell in sorted(found)}


@st.composite
def entries(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = ALL_DTYPES,
    structures: Sequence[str] = STRUCTURES,
    max_rows: int = 12,
    max_cols: int = 12,
    duplicates: bool = True,
    specials: bool = False,
    ordered: bool | None = None,
) -> Entries:
    """Entries with empty rows, dense rows, zero-size shapes, duplicates and explicit zeros.

    Args:
        dtypes: dtypes of the values to choose from.
        structures: layouts to choose from, see ``STRUCTURES``.
        max_rows, max_cols: largest shape; the smallest is zero.
        duplicates: whether a cell may be stored more than once.
        specials: whether NaN and infinities may appear.
        ordered: True sorts by row and column, False shuffles, None lets hypothesis choose.
    """
    rows, cols = draw(st.integers(0, max_rows)), draw(st.integers(0, max_cols))
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    row, col = _lay_out(draw(st.sampled_from(list(structures))), rows, cols, random)
    if duplicates and len(row) and draw(st.booleans()):
        again = random.integers(0, len(row), draw(st.integers(1, 2 * len(row))))
        row, col = np.append(row, row[again]), np.append(col, col[again])
    if ordered is None:
        ordered = draw(st.booleans())
    order = np.lexsort((col, row)) if ordered else random.permutation(len(row))
    values = _values(draw(st.sampled_from(list(dtypes))), len(row), random)
    if len(row) and draw(st.booleans()):
        values[random.integers(0, len(row), 2)] = 0
    if specials and len(row):
        for special in draw(st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf")]))):
            values[int(random.integers(0, len(row)))] = special
    index = draw(st.sampled_from(INDEX_DTYPES))
    return Entries(
        torch.from_numpy(row[order]).to(index), torch.from_numpy(col[order]).to(index), values, (rows, cols)
    )


def _lay_out(
    structure: str, rows: int, cols: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct cells of one structure; none when a dimension is zero."""
    inside = np.zeros((rows, cols), dtype=bool)
    if rows and cols:
        if structure == "uniform":
            inside = random.random((rows, cols)) < random.choice([0.05, 0.2, 0.6])
        elif structure == "one dense row":
            inside[random.integers(rows)] = True
            inside |= random.random((rows, cols)) < 0.05
        elif structure == "power law":
            lengths = np.minimum(random.zipf(1.8, rows), cols)
            inside = random.random((rows, cols)).argsort(axis=1) < lengths[:, None]
        elif structure == "blocks":
            coarse = random.random((-(-rows // 4), -(-cols // 4))) < 0.3
            inside = np.kron(coarse, np.ones((4, 4), dtype=bool))[:rows, :cols]
        elif structure == "diagonal":
            inside = np.eye(rows, cols, dtype=bool)
        elif structure == "full":
            inside[:] = True
        elif structure == "one cell":
            inside[random.integers(rows), random.integers(cols)] = True
    row, col = inside.nonzero()
    return row, col


def _values(dtype: torch.dtype, count: int, random: np.random.Generator) -> Tensor:
    """Normal values, which halves round but do not overflow."""
    if dtype.is_complex:
        return torch.from_numpy(random.normal(size=count) + 1j * random.normal(size=count)).to(dtype)
    return torch.from_numpy(random.normal(size=count)).to(dtype)
