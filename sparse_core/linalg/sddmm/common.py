"""Functions that the implementations of the sampled dense product share."""

from __future__ import annotations

from torch import Tensor

from sparse_core.formats import BSR, COO, CSR
from sparse_core.linalg.structure import row_of_entry

#: Formats that can be sampled.
Pattern = CSR | COO | BSR


def positions(pattern: CSR | COO) -> tuple[Tensor, Tensor]:
    """Return row (nnz,) and column (nnz,) of every stored entry, in stored order."""
    return (pattern.row if isinstance(pattern, COO) else row_of_entry(pattern)), pattern.col
