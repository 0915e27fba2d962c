"""Random matrices, drawn on the CPU so that a seed gives the same matrix on every device."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats.base import index_dtype_for
from sparse_core.formats.bsr import BSR
from sparse_core.formats.csr import CSR
from sparse_core.formats.generators.common import Device, normal_values, require_size
from sparse_core.formats.indexing import pointers_from_lengths


def random_uniform(
    rows: int,
    cols: int | None = None,
    per_row: int = 10,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Draw ``per_row`` distinct columns in every row, with normal values; ``cols`` defaults to ``rows``."""
    cols = require_size("cols", rows if cols is None else cols)
    if not 0 <= per_row <= cols:
        raise ValueError(f"per_row must be from 0 to the {cols} columns, got {per_row}")
    lengths = torch.full((require_size("rows", rows),), per_row)
    return _random_rows(lengths, cols, seed, dtype, device)


def power_law(
    rows: int,
    cols: int | None = None,
    *,
    alpha: float = 1.8,
    seed: int = 0,
    min_length: int = 1,
    max_length: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Draw rows whose lengths follow Zipf's law, with distinct random columns and normal values.

    A row has k entries with probability proportional to k^-alpha, for k from ``min_length`` to
    ``max_length``. At alpha 1.8, a million rows of up to 62 500 entries have 22 on average, and two thirds of
    them only one or two.

    Args:
        rows, cols: shape; ``cols`` defaults to ``rows``.
        alpha: exponent.
        min_length, max_length: bounds of k; at most ``cols / 16`` by default, at least ``min_length``.
    """
    cols = require_size("cols", rows if cols is None else cols)
    longest = max(min_length, cols // 16) if max_length is None else max_length
    if not 0 < min_length <= longest <= max(cols, 1):
        raise ValueError(
            f"lengths must satisfy 1 <= min_length <= max_length <= {cols} columns,"
            f" got {min_length} and {longest}"
        )
    if cols == 0:
        return _random_rows(
            torch.zeros(require_size("rows", rows), dtype=torch.int64), 0, seed, dtype, device
        )
    weight = torch.arange(min_length, longest + 1, dtype=torch.float64).pow(-alpha).cumsum(0)
    generator = torch.Generator().manual_seed(seed)
    samples = torch.rand(require_size("rows", rows), generator=generator, dtype=torch.float64) * weight[-1]
    lengths = min_length + torch.searchsorted(weight, samples, right=True).clamp(max=longest - min_length)
    return _random_rows(lengths, cols, seed + 1, dtype, device)


def block_sparse(
    rows: int,
    cols: int | None = None,
    block_size: int = 16,
    density: float = 0.1,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> BSR:
    """Draw random dense blocks of normal values; the rounded share ``density`` of all blocks is stored."""
    shape = (require_size("rows", rows), require_size("cols", rows if cols is None else cols))
    if block_size < 1 or not 0.0 <= density <= 1.0:
        raise ValueError(
            f"block_size must be at least 1 and density in [0, 1], got {block_size} and {density}"
        )
    block_rows, block_cols = (-(-size // block_size) for size in shape)
    generator = torch.Generator().manual_seed(seed)
    total = block_rows * block_cols
    chosen = torch.randperm(total, generator=generator)[: round(density * total)].sort().values
    values = torch.randn(len(chosen), block_size, block_size, generator=generator, dtype=torch.float32).to(
        dtype
    )
    index = index_dtype_for(*shape, total)
    row = torch.div(chosen, max(block_cols, 1), rounding_mode="floor")
    col = chosen - row * block_cols
    # Blocks at the edges must be zero outside the matrix.
    step = torch.arange(block_size)
    values *= ((row[:, None] * block_size + step) < shape[0])[:, :, None]
    values *= ((col[:, None] * block_size + step) < shape[1])[:, None, :]
    pointers = pointers_from_lengths(torch.bincount(row, minlength=block_rows), index)
    return BSR(pointers.to(device), col.to(device, index), values.to(device), shape, validate=False)


def _random_rows(lengths: Tensor, cols: int, seed: int, dtype: torch.dtype, device: Device) -> CSR:
    """Draw rows of these lengths (M,) with distinct random columns and normal values."""
    count, rows = int(lengths.sum()), len(lengths)
    index = index_dtype_for(rows, cols, count)
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(count, generator=generator, dtype=torch.float64).to(device)
    pointers = pointers_from_lengths(lengths.to(device), torch.int64)
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths.to(device))
    # L sorted draws from cols - L + 1 columns become L distinct columns by adding k to the k-th.
    choices = cols - lengths.to(device)[row] + 1
    samples = torch.minimum((share * choices).long(), choices - 1)
    samples = torch.sort(row * max(cols, 1) + samples).values - row * max(cols, 1)
    col = samples + torch.arange(count, device=device) - pointers[row]
    values = normal_values(count, seed + 1, dtype).to(device)
    return CSR(pointers.to(index), col.to(index), values, (rows, cols), validate=False)
