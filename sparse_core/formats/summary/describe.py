"""Measurement of a sparse matrix: rows, diagonals, bytes in each format, the choice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.bsr import BSR
from sparse_core.formats.choice.choose import choose_format
from sparse_core.formats.compact import CompactCSR
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.description import Description, RowLengths
from sparse_core.formats.ell import ELL
from sparse_core.formats.hyb import HYB
from sparse_core.formats.nm import NM
from sparse_core.formats.sliced_ell import SlicedELL


def describe(matrix: SparseMatrix) -> Description:
    """Measure a matrix of any format; bytes are exact and need no conversion.

    BSR, NM and slices use their default options; the matrix's own format is measured as it is.
    """
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


operations.describe = describe
