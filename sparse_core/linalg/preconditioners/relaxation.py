"""Relaxations: damped Jacobi and multicolour Gauss-Seidel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton
from sparse_core.linalg.factorisation.colouring import MulticolourOrder, multicolour_order
from sparse_core.linalg.factorisation.pattern import Pattern, check_factorisable, pattern_of
from sparse_core.linalg.implementation import real
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side
from sparse_core.linalg.products import spmm
from sparse_core.linalg.spmv.plan import UNROLLED, PatternPlan, find_patterns
from sparse_core.linalg.triangular.common import check_diagonal, diagonal_positions

GAUSS_SEIDEL: Op[torch.dtype] = Op(
    "gauss_seidel",
    __package__,
    by_triton(needs="real numbers", supports=real),
    by_torch(module=__name__),
    gradient=False,
)


class Jacobi(ApproximateSolver):
    """Multiplication of the residual by ``damping / diagonal``.

    Attributes:
        shape: rows and columns.
        factor: (M,) damping over the diagonal.
    """

    def __init__(self, matrix: CSR, damping: float) -> None:
        check_diagonal(matrix, hint="store it")
        self.shape = matrix.shape
        self.factor = damping / matrix.values.detach()[diagonal_positions(matrix)]

    def solve(self, b: Tensor) -> Tensor:
        """Run one damped Jacobi step from zero for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        return b * (self.factor if b.ndim == 1 else self.factor[:, None])


def jacobi(matrix: CSR, *, damping: float = 1.0) -> Jacobi:
    """Make a Jacobi preconditioner: the inverse of the diagonal.

    Args:
        matrix: (M, M) CSR.
        damping: factor on the correction.

    Raises:
        TypeError: not CSR, or half precision.
        ValueError: not square, or a diagonal value is zero or not stored (names the row).
    """
    check_factorisable(matrix)
    return Jacobi(matrix, damping)


class _ColourBlock(NamedTuple):
    """One colour of the reordered matrix: its places, its rows without the diagonal, its inverse diagonal."""

    first: int
    last: int
    rows: CSR
    inverse_diagonal: Tensor


class _SweepPlan(NamedTuple):
    """Structure of the reordered matrix, colour by colour.

    Attributes:
        order: the ordering.
        blocks: pattern of the rows, with reordered column numbers.
        columns: the same columns in the matrix's numbers.
        unknowns: (C,) the matrix's numbers of the rows.
        patterns: row patterns relative to ``unknowns``, if there are few.
        sources: indices of the values in the matrix.
        longest: entries of the longest row.
    """

    order: MulticolourOrder
    blocks: tuple[CSR, ...]
    columns: tuple[Tensor, ...]
    unknowns: tuple[Tensor, ...]
    patterns: tuple[PatternPlan | None, ...]
    sources: tuple[Tensor, ...]
    longest: int


class GaussSeidel(ApproximateSolver):
    """Multicolour Gauss-Seidel sweeps from zero.

    Attributes:
        shape: rows and columns.
        order: the ordering by colour.
        sweeps: number of sweeps.
        symmetric: True if each sweep runs through the colours and back.
    """

    def __init__(self, matrix: CSR, sweeps: int, symmetric: bool, impl: Impl) -> None:
        self._fused = GAUSS_SEIDEL.choose(impl, matrix.device, matrix.dtype) == "triton"
        check_diagonal(matrix, hint="store it")
        plan: _SweepPlan = matrix.cached("multicolour rows", lambda: _build_plan(matrix))
        values = matrix.values.detach()
        inverse = values[diagonal_positions(matrix)][plan.order.permutation].reciprocal()
        bounds = plan.order.colour_ptr
        self.shape = matrix.shape
        self.order = plan.order
        self.sweeps, self.symmetric = sweeps, symmetric
        self._plan = plan
        self._dtype = values.dtype
        self._colours = [
            _ColourBlock(first, last, block.with_values(values[source]), inverse[first:last])
            for first, last, block, source in zip(bounds, bounds[1:], plan.blocks, plan.sources, strict=False)
        ]
        forward = list(range(plan.order.colours))
        # Repeating a colour changes nothing, so the turning points run once.
        round_trip = forward + forward[-2::-1]
        backward = round_trip[1:] if symmetric else forward
        self._visits = (round_trip if symmetric else forward) + backward * (sweeps - 1)

    def solve(self, b: Tensor) -> Tensor:
        """Return an approximate solution for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        if self._fused and b.ndim == 1 and not b.is_complex():
            return self._solve_fused(b)
        right = b[self.order.permutation].to(torch.promote_types(b.dtype, self._dtype))
        x = torch.zeros_like(right)
        for visit, index in enumerate(self._visits):
            colour = self._colours[index]
            residual = right[colour.first : colour.last]
            if visit > 0:
                residual = residual - spmm(colour.rows, x)
            scale = colour.inverse_diagonal if b.ndim == 1 else colour.inverse_diagonal[:, None]
            x[colour.first : colour.last] = residual * scale
        return torch.empty_like(x).index_copy_(0, self.order.permutation, x)

    def _solve_fused(self, b: Tensor) -> Tensor:
        from sparse_core.linalg.preconditioners import triton

        b = b.to(torch.promote_types(b.dtype, self._dtype)).contiguous()
        x = torch.zeros_like(b)
        for visit, index in enumerate(self._visits):
            colour = self._colours[index]
            triton.relax(
                colour.rows.row_ptr,
                self._plan.columns[index],
                colour.rows.values,
                self._plan.patterns[index],
                self._plan.unknowns[index],
                colour.inverse_diagonal,
                b,
                x,
                # In the first visit all other unknowns are zero.
                self._plan.longest if visit else 0,
            )
        return x


def gauss_seidel(matrix: CSR, *, sweeps: int = 1, symmetric: bool = True, impl: Impl = "auto") -> GaussSeidel:
    """Make a Gauss-Seidel preconditioner in a multicolour ordering (see :func:`multicolour_order`).

    A product with the rows of a colour updates all its unknowns at once. Symmetric sweeps of a symmetric
    positive definite matrix give such a preconditioner, which conjugate gradients need.

    Args:
        matrix: (M, M) CSR.
        sweeps: 1 or more.
        symmetric: run each sweep through the colours and back.
        impl: ``"reference"`` is plain torch products with the rows of each colour. ``"triton"`` relaxes a
            colour in one launch (one real right-hand side; the reference handles several). ``"auto"`` is
            Triton for real matrices on CUDA if installed.

    Raises:
        TypeError: not CSR, or half precision.
        ValueError: not square, ``sweeps`` below 1, or a diagonal value is zero or not stored.
        ImplementationError: the named ``impl`` cannot run here.
    """
    check_factorisable(matrix)
    if sweeps < 1:
        raise ValueError(f"sweeps must be 1 or more, got {sweeps}")
    return GaussSeidel(matrix, sweeps, symmetric, impl)


def _build_plan(matrix: CSR) -> _SweepPlan:
    order = multicolour_order(matrix)
    pattern = pattern_of(matrix, order.permutation)
    coupled = (pattern.row != pattern.col).nonzero()[:, 0]
    row_ptr = pointers_from_rows(pattern.row[coupled], pattern.size)
    rest = Pattern(row_ptr, pattern.row[coupled], pattern.col[coupled], pattern.source[coupled])
    ends = row_ptr[torch.tensor(order.colour_ptr, device=matrix.device)].tolist()
    blocks, columns, unknowns, sources = [], [], [], []
    index, placeholder = matrix.col.dtype, matrix.values.detach().new_zeros(())
    for colour, (first, last) in enumerate(zip(order.colour_ptr, order.colour_ptr[1:], strict=False)):
        begin, end = ends[colour], ends[colour + 1]
        ptr = (row_ptr[first : last + 1] - begin).to(index)
        values = placeholder.expand(end - begin)
        size = (last - first, pattern.size)
        blocks.append(CSR(ptr, rest.col[begin:end].to(index), values, size, validate=False))
        columns.append(order.permutation[rest.col[begin:end]].to(index))
        unknowns.append(order.permutation[first:last].to(index))
        sources.append(rest.source[begin:end])
    longest = int(row_ptr.diff().max()) if pattern.size else 0
    patterns = tuple(map(_patterns, blocks, columns, unknowns)) if 0 < longest <= UNROLLED else ()
    patterns = patterns or (None,) * len(blocks)
    return _SweepPlan(
        order, tuple(blocks), tuple(columns), tuple(unknowns), patterns, tuple(sources), longest
    )


def _patterns(rows: CSR, columns: Tensor, unknowns: Tensor) -> PatternPlan | None:
    start, names = rows.row_ptr.long(), unknowns.long()

    def offset(row: Tensor, entry: Tensor) -> Tensor:
        # find_patterns subtracts the row's number; the offsets must count from the unknown's.
        return columns[start[row] + entry].long() - names[row] + row

    return find_patterns(rows.row_lengths().long(), offset)
