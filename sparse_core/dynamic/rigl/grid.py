"""Positions that connections may take: weights or blocks, anywhere or a fixed number per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from sparse_core.dynamic.ranking import best_entries, true_positions

Structure = Literal["unstructured", "fan-in", "block"]


@dataclass(frozen=True)
class Grid:
    """The cells of a weight matrix; a topology is a set of ``count`` of them.

    Attributes:
        rows, columns: size of the weight matrix (out, in).
        cell_rows, cell_columns: size of a cell.
        per_row: cells in each row of cells, or 0 if they may lie anywhere.
        count: cells of a topology.
    """

    rows: int
    columns: int
    cell_rows: int
    cell_columns: int
    per_row: int
    count: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        return self.rows // self.cell_rows, self.columns // self.cell_columns

    @property
    def size(self) -> int:
        """Number of all cells."""
        return self.shape[0] * self.shape[1]

    @property
    def is_blocked(self) -> bool:
        """True if a cell has more than one weight."""
        return self.cell_rows * self.cell_columns > 1

    @property
    def density(self) -> float:
        """Share of the cells that a topology uses."""
        return self.count / self.size

    @property
    def values_shape(self) -> tuple[int, ...]:
        """(count,) or (count, cell_rows, cell_columns)."""
        return (self.count, self.cell_rows, self.cell_columns) if self.is_blocked else (self.count,)

    def by_cell(self, matrix: Tensor) -> Tensor:
        """Return scores (cell rows, cell columns) of a (rows, columns) matrix: absolute value, or 2-norm."""
        if not self.is_blocked:
            return matrix.abs()
        down, across = self.shape
        cells = matrix.reshape(down, self.cell_rows, across, self.cell_columns)
        exact = cells.to(torch.promote_types(matrix.dtype, torch.float32))
        return exact.square().sum(dim=(1, 3)).sqrt()

    def of_cells(self, values: Tensor) -> Tensor:
        """Return the score (count,) of values: absolute value, or 2-norm of each block."""
        if not self.is_blocked:
            return values.abs()
        exact = values.to(torch.promote_types(values.dtype, torch.float32))
        return exact.square().sum(dim=(1, 2)).sqrt()

    def gather(self, matrix: Tensor, cells: Tensor) -> Tensor:
        """Return the values of a (rows, columns) matrix at the cells."""
        if not self.is_blocked:
            return matrix.reshape(-1).index_select(0, cells)
        down, across = self.shape
        blocks = matrix.reshape(down, self.cell_rows, across, self.cell_columns).transpose(1, 2)
        return blocks.reshape(-1, self.cell_rows, self.cell_columns).index_select(0, cells)

    def scatter(self, values: Tensor, cells: Tensor) -> Tensor:
        """Return a (rows, columns) matrix with zeros elsewhere; differentiable in ``values``."""
        flat = values.new_zeros((self.size, *values.shape[1:])).index_copy(0, cells, values)
        if not self.is_blocked:
            return flat.reshape(self.rows, self.columns)
        blocks = flat.reshape(*self.shape, self.cell_rows, self.cell_columns)
        return blocks.transpose(1, 2).reshape(self.rows, self.columns)

    def best(self, scores: Tensor) -> Tensor:
        """Return the cells (count,) int64 with the largest score (cell rows, cell columns), in rising order.

        Respects ``per_row``.
        """
        lines = scores if self.per_row else scores.reshape(1, -1)
        mask = best_entries(lines, self.per_row or self.count)
        return true_positions(mask.reshape(1, -1), self.count)[0]


def plan_grid(
    rows: int,
    columns: int,
    *,
    density: float,
    structure: Structure = "unstructured",
    block_size: int | tuple[int, int] = 16,
) -> Grid:
    """Return the grid of a weight matrix.

    Unstructured grids have ``size - floor(sparsity * size)`` connections, as google-research/rigl does.
    Structured rows have ``round(density * columns of cells)`` cells, at least one.

    Args:
        rows, columns: size of the weight matrix.
        density: above 0, at most 1.
        structure: ``"unstructured"``; ``"fan-in"``: the same number of weights in every row; ``"block"``: the
            same number of blocks in every block row.
        block_size: rows and columns of a block, or one number for both; they divide the matrix.

    Raises:
        ValueError: an option out of range, or blocks that do not divide the matrix.
    """
    if structure not in get_args(Structure):
        raise ValueError(f"structure must be one of {get_args(Structure)}, got {structure!r}")
    if rows < 1 or columns < 1:
        raise ValueError(f"the weight must have at least one row and column, got {rows}x{columns}")
    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, got {density}")
    if structure == "unstructured":
        # Without the small term, rounding of 1 - 0.1 would cost a connection.
        count = rows * columns - int((1 - density) * rows * columns + 1e-9)
        return Grid(rows, columns, 1, 1, 0, max(1, count))
    r, c = (1, 1) if structure == "fan-in" else _pair(block_size)
    if rows % r or columns % c:
        raise ValueError(f"blocks of {r}x{c} do not divide the {rows}x{columns} weight")
    per_row = max(1, round(density * (columns // c)))
    return Grid(rows, columns, r, c, per_row, per_row * (rows // r))


def _pair(block_size: int | tuple[int, int]) -> tuple[int, int]:
    r, c = block_size if isinstance(block_size, tuple) else (block_size, block_size)
    if r < 1 or c < 1 or r * c == 1:
        raise ValueError(f"block_size must be more than one weight, got {r}x{c}: take structure='fan-in'")
    return r, c


def random_cells(grid: Grid, generator: torch.Generator) -> Tensor:
    """Return random cells (count,) int64 in rising order, on the device of the generator."""
    return grid.best(
        torch.rand(grid.shape, generator=generator, device=generator.device, dtype=torch.float32)
    )
