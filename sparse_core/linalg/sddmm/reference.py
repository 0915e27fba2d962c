"""Sampled dense product in plain torch: gather rows and columns, multiply, sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from sparse_core.formats import BSR
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.sddmm.common import Pattern, positions
from sparse_core.linalg.structure import row_of_entry

#: Most gathered numbers of one operand per chunk.
_GATHERED = 2**24


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Return ``(a @ b)`` at the stored positions, in slices of bounded memory; padding of BSR is zero."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    working = accumulation_dtype(dtype)
    a, b_rows = a.to(working), b.to(working).transpose(0, 1)
    values = torch.empty(pattern.values.shape, dtype=dtype, device=a.device)
    if isinstance(pattern, BSR):
        _sample_blocks(pattern, a, b_rows, values)
        return values
    rows, columns = positions(pattern)
    step = max(1, _GATHERED // max(1, a.shape[1]))
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        values[part] = (a[rows[part]] * b_rows[columns[part]]).sum(dim=1).to(dtype)
    return values


def _sample_blocks(pattern: BSR, a: Tensor, b_rows: Tensor, values: Tensor) -> None:
    """Multiply blocks; set positions outside the matrix to zero explicitly, because 0 * inf is NaN."""
    height, width = pattern.block_size
    row_blocks, inside_row = _in_blocks(a, height)
    column_blocks, inside_column = _in_blocks(b_rows, width)
    rows, columns = row_of_entry(pattern), pattern.col
    step = max(1, _GATHERED // max(1, (height + width) * a.shape[1]))
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        product = row_blocks[rows[part]] @ column_blocks[columns[part]].mT
        inside = inside_row[rows[part]][:, :, None] & inside_column[columns[part]][:, None, :]
        values[part] = torch.where(inside, product, 0).to(values.dtype)


def _in_blocks(operand: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return rows as (blocks, size, K), padded with zeros, and True for real rows, (blocks, size)."""
    rows, depth = operand.shape
    blocks = -(-rows // size)
    padded = pad(operand, (0, 0, 0, blocks * size - rows)).view(blocks, size, depth)
    return padded, torch.arange(blocks * size, device=operand.device).view(blocks, size) < rows
