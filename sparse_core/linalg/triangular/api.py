"""Solve with one triangle of a sparse matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels.op import Impl, Implementation, Op, by_torch, by_triton
from sparse_core.linalg.implementation import real
from sparse_core.linalg.operands import as_gradient, check_square
from sparse_core.linalg.preconditioner import check_right_side
from sparse_core.linalg.products import spmm
from sparse_core.linalg.structure import at_values, row_of_entry
from sparse_core.linalg.triangular import reference, vendor
from sparse_core.linalg.triangular.common import System, triangular_plan, triangular_values

#: The case: dtype of the solution. The vendor caches its form of the triangle.
TRIANGULAR_SOLVE: Op[torch.dtype] = Op(
    "triangular_solve",
    __package__,
    by_triton(needs="real numbers", supports=real),
    Implementation("vendor", auto=("cpu", "cuda")),
    by_torch(),
    gradient=True,
)


def triangular_solve(
    matrix: CSR,
    b: Tensor,
    *,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose: bool = False,
    impl: Impl = "auto",
) -> Tensor:
    """Solve ``T x = b``, where ``T`` is one triangle of ``matrix`` with its diagonal.

    Equations are grouped into levels that can be solved at the same time; the levels are cached per
    structure. Reordering (see ``multicolour_order``) reduces their number. The solution is differentiable in
    ``b`` and in ``matrix.values``, to any order and in forward mode.

    Args:
        matrix: (M, M) CSR. Entries of the other triangle are not read.
        b: (M,) or (M, N), floating point or complex, on the matrix's device.
        lower: solve with the lower triangle, else with the upper one.
        unit_diagonal: use a diagonal of ones and do not read the stored one.
        transpose: solve with the transpose of that triangle.
        impl: ``"reference"`` (plain torch), ``"triton"`` (CUDA or Triton's interpreter, real numbers),
            ``"vendor"`` (SuperLU on a CPU, cuSPARSE on CUDA). ``"auto"`` is Triton for real numbers on CUDA
            if installed, else the vendor. SuperLU caches its form of the triangle until the values change.
            The reference is faster if the values change with every solve and there are few levels.

    Returns:
        Same shape as ``b``; dtype that ``matrix.values`` and ``b`` promote to. Half precision is computed
        in float32.

    Raises:
        TypeError: ``matrix`` is not CSR, or ``b`` is not floating point.
        ValueError: shapes or devices do not match; a diagonal value is zero or not stored. The first solve
            with new values checks the diagonal, which waits for the device; later solves do not.
        ImplementationError: ``impl`` cannot run here.
    """
    _check(matrix, b)
    dtype = torch.promote_types(matrix.dtype, b.dtype)
    chosen = TRIANGULAR_SOLVE.choose(impl, b.device, dtype)
    system = System(lower, unit_diagonal, transpose)
    right = b[:, None] if b.ndim == 1 else b
    solution: Tensor = _TriangularSolve.apply(matrix.values, right, matrix, system, chosen, dtype)
    return solution[:, 0] if b.ndim == 1 else solution


class _TriangularSolve(torch.autograd.Function):
    """``x = T^-1 b``; its gradient is one solve with the adjoint, and so is the second derivative."""

    @staticmethod
    def forward(
        values: Tensor, b: Tensor, matrix: CSR, system: System, impl: str, dtype: torch.dtype
    ) -> Tensor:
        return _solve(at_values(matrix, values), system, b, impl, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, b, ctx.matrix, ctx.system, ctx.impl, ctx.dtype = inputs
        ctx.b_dtype = b.dtype
        ctx.save_for_backward(values, output)
        ctx.save_for_forward(values, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        matrix, system = ctx.matrix, ctx.system
        adjoint = System(system.lower, system.unit_diagonal, not system.transpose)
        # T^-H g = conj(T^-T conj(g))
        right = gradients[0].conj().resolve_conj()
        of_b: Tensor = _TriangularSolve.apply(values, right, matrix, adjoint, ctx.impl, ctx.dtype)
        of_b = of_b.conj().resolve_conj()
        of_values = None
        if ctx.needs_input_grad[0]:
            row, col = row_of_entry(matrix), matrix.col
            equation, unknown = (col, row) if system.transpose else (row, col)
            of_values = -(of_b[equation] * x[unknown].conj()).sum(1)
            of_values = torch.where(_entries_of(matrix, system), as_gradient(of_values, values.dtype), 0)
        return of_values, as_gradient(of_b, ctx.b_dtype), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        values, x = ctx.saved_tensors
        matrix, system = ctx.matrix, ctx.system
        # T dx = db - dT x
        right = torch.zeros_like(x) if of_b is None else of_b.to(ctx.dtype)
        if of_values is not None:
            change = matrix.with_values(torch.where(_entries_of(matrix, system), of_values, 0))
            right = right - spmm(change, x, transpose=system.transpose)
        found: Tensor = _TriangularSolve.apply(values, right, matrix, system, ctx.impl, ctx.dtype)
        return found


def _entries_of(matrix: CSR, system: System) -> Tensor:
    """Return the entries of the system, (nnz,) bool."""
    row, col = row_of_entry(matrix), matrix.col
    read = (col <= row) if system.lower else (col >= row)
    return read & (col != row) if system.unit_diagonal else read


def _solve(matrix: CSR, system: System, b: Tensor, impl: str, dtype: torch.dtype) -> Tensor:
    arithmetic = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    right = b.detach().to(arithmetic)
    if right.numel() == 0:
        return torch.empty_like(right, dtype=dtype)
    if impl == "vendor":
        return vendor.solve(matrix, system, right).to(dtype)
    plan = triangular_plan(matrix, system)
    values = triangular_values(matrix, system, arithmetic)
    if impl == "reference":
        return reference.solve(plan, values, right).to(dtype)
    from sparse_core.linalg.triangular import triton

    return triton.solve(plan, triton.schedule(matrix, system, plan), values, right).to(dtype)


def _check(matrix: CSR, b: Tensor) -> None:
    check_square(matrix)
    if not (b.is_floating_point() or b.is_complex()):
        raise TypeError(f"b must be floating point or complex, got {b.dtype}")
    check_right_side(b, matrix.shape)
    if b.device != matrix.device:
        raise ValueError(f"b is on {b.device} but matrix is on {matrix.device}: move one with .to")
