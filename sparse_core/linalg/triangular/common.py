"""Work plan of a triangular solve, shared by its implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg.structure import row_of_entry
from sparse_core.linalg.triangular.levels import Levels, level_schedule

if TYPE_CHECKING:
    from sparse_core.formats import CSR


@dataclass(frozen=True)
class System:
    """Triangle of a matrix to solve with.

    Attributes:
        lower: use the lower triangle of the matrix as stored, else the upper one.
        unit_diagonal: use a diagonal of ones and do not read the stored one.
        transpose: solve with the transpose of that triangle.
    """

    lower: bool
    unit_diagonal: bool
    transpose: bool

    @property
    def forward(self) -> bool:
        """True if unknowns depend on those with lower numbers."""
        return self.lower != self.transpose

    def key(self, what: str) -> str:
        """Return the cache key of a plan."""
        return f"triangular.{what}.{self.lower}.{self.unit_diagonal}.{self.transpose}"


@dataclass(frozen=True, eq=False)
class TriangularPlan:
    """Off-diagonal entries of the system, equation by equation in the order of the levels.

    Attributes:
        levels: schedule of the M equations.
        entry_ptr: (M + 1,) entries of the equation ``levels.order[p]``.
        entry_bounds: on the host, ``entry_ptr`` at the bounds of the levels.
        column: (E,) unknown that each entry multiplies.
        position: (E,) index of its value in the matrix.
    """

    levels: Levels
    entry_ptr: Tensor
    entry_bounds: tuple[int, ...]
    column: Tensor
    position: Tensor


@dataclass(frozen=True, eq=False)
class TriangularValues:
    """Values in the order of the plan, in the dtype of the arithmetic.

    Attributes:
        entry: (E,) off-diagonal values.
        inverse_diagonal: (M,) by equation number, or None for a unit diagonal.
    """

    entry: Tensor
    inverse_diagonal: Tensor | None


def diagonal_positions(matrix: CSR) -> Tensor:
    """Return the index of each row's diagonal value, (M,) int64, -1 where there is none; cached."""

    def build() -> Tensor:
        row = row_of_entry(matrix)
        found = (row == matrix.col).nonzero()[:, 0]
        nowhere = torch.full((matrix.shape[0],), -1, device=matrix.device)
        return nowhere.index_copy_(0, row[found].to(torch.int64), found)

    return matrix.cached("diagonal positions", build)


def triangular_plan(matrix: CSR, system: System) -> TriangularPlan:
    """Return the plan of ``system``, built once per structure."""
    return matrix.cached(system.key("plan"), lambda: _build_plan(matrix, system))


def _build_plan(matrix: CSR, system: System) -> TriangularPlan:
    size = matrix.shape[0]
    row, col = row_of_entry(matrix).to(torch.int64), matrix.col.to(torch.int64)
    position = ((col < row) if system.lower else (col > row)).nonzero()[:, 0]
    equation, unknown = row[position], col[position]
    if system.transpose:
        equation, order = torch.sort(unknown, stable=True)
        unknown, position = row[position[order]], position[order]
    entry_ptr = pointers_from_rows(equation, size)
    levels = level_schedule(entry_ptr, unknown, reverse=not system.forward)

    rank = torch.empty_like(levels.order)
    rank[levels.order] = torch.arange(size, device=matrix.device)
    placed, by_level = torch.sort(rank[equation], stable=True)
    entry_ptr = pointers_from_rows(placed, size)
    bounds = torch.tensor(levels.bounds, device=matrix.device)
    index = matrix.col.dtype
    return TriangularPlan(
        levels,
        entry_ptr.to(index),
        tuple(entry_ptr[bounds].tolist()),
        unknown[by_level].to(index),
        position[by_level],
    )


def triangular_values(matrix: CSR, system: System, dtype: torch.dtype) -> TriangularValues:
    """Return the values of ``system`` in the order of its plan, after a check of its diagonal; cached."""
    return matrix.cached_values(system.key(f"values.{dtype}"), lambda: _build_values(matrix, system, dtype))


def _build_values(matrix: CSR, system: System, dtype: torch.dtype) -> TriangularValues:
    plan = triangular_plan(matrix, system)
    values = matrix.values.detach().to(dtype)
    entry = values[plan.position]
    if system.unit_diagonal:
        return TriangularValues(entry, None)
    check_diagonal(matrix)
    return TriangularValues(entry, values[diagonal_positions(matrix)].reciprocal())


def check_diagonal(matrix: CSR, *, hint: str = "store it, or use unit_diagonal=True for ones") -> None:
    """Raise ``ValueError`` with the row of a zero or missing diagonal value; checks once per values.

    Args:
        hint: how to fix a missing value.
    """
    matrix.cached_values("diagonal checked", lambda: _check_diagonal_values(matrix, hint))


def _check_diagonal_values(matrix: CSR, hint: str) -> bool:
    diagonal = diagonal_positions(matrix)
    missing = (diagonal < 0).nonzero()[:, 0]
    if len(missing):
        raise ValueError(
            f"matrix stores no diagonal entry in row {int(missing[0])} ({len(missing)} such rows): {hint}"
        )
    zero = (matrix.values.detach()[diagonal] == 0).nonzero()[:, 0]
    if len(zero):
        raise ValueError(f"the diagonal value of row {int(zero[0])} is zero ({len(zero)} such rows)")
    return True
