"""What a sparse matrix looks like, in numbers: rows, diagonals, bytes in each format, the choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.bsr import BSR
from sparse_core.formats.compact import CompactCSR
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.ell import ELL
from sparse_core.formats.hyb import HYB
from sparse_core.formats.nm import NM
from sparse_core.formats.sliced_ell import SlicedELL


@dataclass(frozen=True)
class RowLengths:
    """Distribution of the stored entries of a row; zeros for a matrix without rows.

    Attributes:
        shortest, lower_quartile, median, upper_quartile, longest: lengths that occur.
        mean: average length.
        empty: rows without an entry.
        gini: how unevenly entries are spread over the rows: 0 all rows are equally long, towards 1 a few
            rows hold everything (Gini, 1912).
    """

    shortest: int
    lower_quartile: int
    median: int
    upper_quartile: int
    longest: int
    mean: float
    empty: int
    gini: float


@dataclass(frozen=True)
class Description:
    """Numbers about one matrix; ``str()`` gives a table.

    Attributes:
        format: name of the matrix's own format.
        shape: rows, columns.
        dtype, device: names of the values' type and the device.
        nnz: stored entries.
        nbytes: bytes of the matrix as it is.
        sparsity: share of positions without an entry.
        row_lengths: their distribution.
        diagonals: diagonals that hold an entry.
        format_nbytes: bytes in each format, None where the matrix does not fit.
        misfits: why it does not fit, by format.
        choice: name of the recommended format for products with a vector.
        reason: why.
    """

    format: str
    shape: tuple[int, int]
    dtype: str
    device: str
    nnz: int
    nbytes: int
    sparsity: float
    row_lengths: RowLengths
    diagonals: int
    format_nbytes: dict[str, int | None]
    misfits: dict[str, str]
    choice: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, ready for JSON."""
        return {**asdict(self), "shape": list(self.shape)}

    def __str__(self) -> str:
        rows = self.row_lengths
        positions = self.shape[0] * self.shape[1]
        lines = [
            f"{self.format} {self.shape[0]} x {self.shape[1]}, {self.dtype} on {self.device}",
            f"entries      {self.nnz} of {positions} ({100 * self.sparsity:.4g} % sparse)",
            f"row lengths  {rows.shortest} | {rows.lower_quartile} | {rows.median} | {rows.upper_quartile}"
            f" | {rows.longest} (quartiles), mean {rows.mean:.4g}, {rows.empty} empty, Gini {rows.gini:.2f}",
            f"diagonals    {self.diagonals}",
            "bytes",
        ]
        for name, count in self.format_nbytes.items():
            size = f"{count:>16,}" if count is not None else f"{'does not fit':>16}: {self.misfits[name]}"
            own = "  <- this matrix" if name == self.format else ""
            lines.append(f"  {name:<16}{size}{own}")
        lines.append(f"choice       {self.choice}: {self.reason}")
        return "\n".join(lines)


def describe(matrix: SparseMatrix) -> Description:
    """Measure a matrix; bytes are worked out from its structure, exactly, without converting.

    BSR, NM and slices are counted with their default options, and the matrix's own format as it is.

    Args:
        matrix: any format.
    """
    from sparse_core.formats.choose import choose_format

    with torch.no_grad():
        csr = matrix.to(CSR)
        format_nbytes, misfits = _bytes_by_format(csr)
        diagonals = len(torch.unique(csr.col.long() - csr.row_indices().long()))
        lengths = _row_lengths(csr.row_lengths())
        choice = choose_format(matrix)
    own = type(matrix).__name__
    misfits.pop(own, None)
    return Description(
        format=own,
        shape=matrix.shape,
        dtype=str(matrix.dtype).removeprefix("torch."),
        device=str(matrix.device),
        nnz=matrix.nnz,
        nbytes=matrix.nbytes,
        sparsity=matrix.sparsity,
        row_lengths=lengths,
        diagonals=diagonals,
        format_nbytes={**format_nbytes, own: matrix.nbytes},
        misfits=misfits,
        choice=choice.name,
        reason=choice.reason,
    )


def _bytes_by_format(csr: CSR) -> tuple[dict[str, int | None], dict[str, str]]:
    planned: dict[str, Callable[[CSR], int]] = {
        target.__name__: target.planned_nbytes
        for target in (COO, CSR, ELL, SlicedELL, HYB, BSR, NM, CompactCSR)
    }
    sizes: dict[str, int | None] = {"dense": csr.shape[0] * csr.shape[1] * csr.dtype.itemsize}
    misfits: dict[str, str] = {}
    for name, plan in planned.items():
        try:
            sizes[name] = plan(csr)
        except (TypeError, ValueError) as error:
            sizes[name], misfits[name] = None, str(error)
    return sizes, misfits


def _row_lengths(lengths: Tensor) -> RowLengths:
    count = len(lengths)
    if count == 0:
        return RowLengths(0, 0, 0, 0, 0, 0.0, 0, 0.0)
    ranked = torch.sort(lengths.long()).values
    places = torch.tensor([0, (count - 1) // 4, (count - 1) // 2, 3 * (count - 1) // 4, count - 1])
    shortest, lower, median, upper, longest = ranked[places.to(ranked.device)].tolist()
    total = int(ranked.sum())
    weights = 2 * torch.arange(1, count + 1, device=ranked.device) - count - 1
    gini = int((weights * ranked).sum()) / (count * total) if total else 0.0
    empty = int((ranked == 0).sum())
    return RowLengths(shortest, lower, median, upper, longest, total / count, empty, gini)
