"""The sparse matrices that products are measured on, and what their benchmarks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparse_core.formats import CSR, SparseMatrix, generators


class Case(NamedTuple):
    """A matrix to measure.

    Attributes:
        name: for tables.
        build: makes it on a device, with random values.
    """

    name: str
    build: Callable[[torch.device], CSR]


class Sizes(NamedTuple):
    """Sizes of the matrices: side of the grids, rows of the random ones, rows of the block ones."""

    grid_2d: int
    grid_3d: int
    grid_27: int
    rows: int
    blocks: int


def sizes(device: torch.device, *, quick: bool) -> Sizes:
    """Sizes for a device: larger than any cache on a GPU, seconds in all on a CPU."""
    if device.type == "cuda":
        return Sizes(1024, 96, 64, 100_000, 4096) if quick else Sizes(4096, 256, 128, 1_000_000, 8192)
    return Sizes(64, 16, 10, 2000, 512) if quick else Sizes(1024, 96, 48, 200_000, 2048)


def cases(device: torch.device, *, quick: bool, seed: int = 0) -> list[Case]:
    """Stencils, random rows of equal and of skewed lengths, and blocks of 64 at four sparsities."""
    size = sizes(device, quick=quick)

    def stencil(name: str, make: Callable[..., CSR], side: int) -> Case:
        return Case(name, lambda at: with_random_values(make(side, device=at), seed))

    def blocks(sparsity: float) -> Case:
        return Case(
            f"blocks of 64, {size.blocks}², {sparsity:.0%} zero",
            lambda at: generators.block_sparse(
                size.blocks, block_size=64, density=1 - sparsity, seed=seed, device=at
            ).to(CSR),
        )

    return [
        stencil(f"2-D 5 points, {size.grid_2d}²", generators.poisson_2d, size.grid_2d),
        stencil(f"3-D 7 points, {size.grid_3d}³", generators.poisson_3d, size.grid_3d),
        stencil(f"3-D 27 points, {size.grid_27}³", generators.stencil_27, size.grid_27),
        Case(
            f"uniform random, {short(size.rows)} x 10",
            lambda at: generators.random_uniform(size.rows, per_row=10, seed=seed, device=at),
        ),
        Case(
            f"power law 1.8, {short(size.rows)}",
            lambda at: generators.power_law(size.rows, alpha=1.8, seed=seed, device=at),
        ),
        *(blocks(sparsity) for sparsity in (0.5, 0.75, 0.9, 0.95)),
    ]


def long_row_cases(device: torch.device, *, quick: bool, seed: int = 0) -> list[Case]:
    """An arrow matrix (a full row, a full column and a diagonal), and few rows of many entries."""
    rows = sizes(device, quick=quick).rows

    def wide(count: int, length: int) -> Case:
        return Case(
            f"{count} rows of {short(length)}",
            lambda at: generators.random_uniform(count, 4 * length, per_row=length, seed=seed, device=at),
        )

    length = rows // 10
    return [
        Case(f"arrow, {short(rows)}", lambda at: arrow(rows, seed=seed, device=at)),
        wide(10, 10 * length),
        wide(100, length),
        wide(1000, length // 10),
    ]


def arrow(rows: int, *, seed: int, device: torch.device) -> CSR:
    """A full first row, a full first column and a diagonal, normal values."""
    lengths = torch.full((rows,), 2)
    lengths[0] = rows
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    col = torch.zeros(int(row_ptr[-1]), dtype=torch.int32)
    col[:rows] = torch.arange(rows)
    col[rows + 1 :: 2] = torch.arange(1, rows)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(col), generator=generator)
    return CSR(row_ptr.int(), col, values, (rows, rows)).to(device)


def short(count: int) -> str:
    """``1M``, ``200k``, ``1500``."""
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def with_random_values(matrix: CSR, seed: int) -> CSR:
    """The same structure with normal values."""
    generator = torch.Generator(matrix.device).manual_seed(seed)
    return matrix.with_values(torch.randn(matrix.nnz, generator=generator, device=matrix.device))


def random_dense(*shape: int, device: torch.device, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=device).to(dtype)


def fresh(matrix: CSR) -> CSR:
    """The same matrix without anything cached."""
    return CSR(matrix.row_ptr, matrix.col, matrix.values, matrix.shape, validate=False)


def exact_product(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """``matrix @ dense`` in float64, by torch."""
    csr = matrix.to(CSR).to(torch.float64).to_torch()
    product: Tensor = csr @ dense.double()
    return product


def relative_error(product: Tensor, exact: Tensor) -> float:
    """Largest deviation over the largest exact number; infinite where something is not finite."""
    if exact.numel() == 0:
        return 0.0
    error = float((product.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-300))
    return error if error == error else float("inf")


def noted(error: float) -> float | None:
    """An error for JSON: three digits, None where it is not finite."""
    return float(f"{error:.2e}") if np.isfinite(error) else None


def geometric_mean(ratios: Iterable[float]) -> float:
    """Geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(list(ratios)))))
