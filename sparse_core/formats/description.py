"""What a sparse matrix looks like, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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
