"""Measurements of a sparse matrix."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RowLengths:
    """Distribution of the stored entries per row; zeros for a matrix without rows.

    Attributes:
        shortest, lower_quartile, median, upper_quartile, longest: entries per row.
        mean: average length.
        empty: rows without an entry.
        gini: inequality of the row lengths (Gini, 1912): 0 if all are equal, near 1 if a few rows hold
            everything.
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
    """Measurements of one matrix; ``str()`` gives a table.

    Attributes:
        format: name of the matrix's format.
        shape: rows, columns.
        dtype, device: names of the values' type and the device.
        nnz: stored entries.
        nbytes: bytes of the matrix as it is.
        sparsity: share of positions without an entry.
        row_lengths: distribution of entries per row.
        diagonals: diagonals that hold an entry.
        format_nbytes: bytes in each format, None if the format cannot hold the matrix.
        misfits: why it cannot, by format.
        choice: name of the recommended format for products with a vector.
        reason: for the choice.
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
        """Return plain numbers, strings, lists and dicts for JSON."""
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
