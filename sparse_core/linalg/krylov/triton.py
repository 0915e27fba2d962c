"""Vector updates of conjugate gradients in Triton: four launches per iteration besides the products.

Sums take two passes of fixed order in double precision, so results are bitwise reproducible. Every program of
a pass adds the partial sums of the previous pass: a few kilobytes from the cache instead of another launch.
Runs on CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.linalg.krylov.conjugate_gradient import ConjugateGradient
from sparse_core.linalg.krylov.problem import LinearSystem

_BLOCK = 1024
#: Programs of a pass, and so partial sums; a power of two. A few per multiprocessor.
_PROGRAMS = 512

# Indices in the array of scalars (float64).
_RHO_BEFORE = tl.constexpr(0)
_RHO = tl.constexpr(1)
_CURVATURE = tl.constexpr(2)

# sparse_core.linalg.krylov.progress.Status
_RUNNING = tl.constexpr(0)
_CONVERGED = tl.constexpr(1)
_MAX_ITERATIONS = tl.constexpr(2)
_NOT_FINITE = tl.constexpr(3)
_NOT_POSITIVE_DEFINITE = tl.constexpr(4)
_PRECONDITIONER_NOT_POSITIVE_DEFINITE = tl.constexpr(5)


@triton.jit
def _is_finite(value):  # type: ignore[no-untyped-def]
    """NaN fails every comparison."""
    return (value < float("inf")) & (value > float("-inf"))


@triton.jit
def _total(partials, programs, PROGRAMS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sum of the partial sums of the pass before."""
    lane = tl.arange(0, PROGRAMS)
    return tl.sum(tl.load(partials + lane, mask=lane < programs, other=0.0), axis=0)


@triton.jit
def _dot_kernel(a, b, partials, count, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Partial sums of ``a * b``."""
    program = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    lane = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(tl.cdiv(count, programs * BLOCK)):
        inside = lane < count
        left = tl.load(a + lane, mask=inside, other=0.0).to(tl.float64)
        right = tl.load(b + lane, mask=inside, other=0.0).to(tl.float64)
        total += left * right
        lane += programs * BLOCK
    tl.store(partials + program, tl.sum(total, axis=0))


@triton.jit
def _advance_kernel(  # type: ignore[no-untyped-def]
    x,
    residual,
    direction,
    product,
    curvature_partials,
    norm_partials,
    scalars,
    status,
    count,
    programs,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """``x += alpha p``, ``r -= alpha A p`` and partial sums of ``r * r``, in one pass."""
    program = tl.program_id(0)
    rho = tl.load(scalars + _RHO)
    curvature = _total(curvature_partials, programs, PROGRAMS)
    positive = (rho > 0) & (curvature > 0) & _is_finite(rho) & _is_finite(curvature)
    allowed = positive & (tl.load(status) == _RUNNING)
    # A frozen solution is not touched: alpha may be anything then.
    reach = tl.where(allowed, count, 0)
    alpha = rho / curvature
    total = tl.zeros([BLOCK], dtype=tl.float64)
    lane = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(tl.cdiv(count, programs * BLOCK)):
        inside = lane < count
        old = tl.load(residual + lane, mask=inside, other=0.0)
        step = lane < reach
        scale = alpha.to(old.dtype)
        solution = tl.load(x + lane, mask=step, other=0.0)
        solution += scale * tl.load(direction + lane, mask=step, other=0.0)
        new = old - scale * tl.load(product + lane, mask=step, other=0.0)
        tl.store(x + lane, solution, mask=step)
        tl.store(residual + lane, new, mask=step)
        new = tl.where(step, new, old).to(tl.float64)
        total += new * new
        lane += programs * BLOCK
    tl.store(norm_partials + program, tl.sum(total, axis=0))
    if program == 0:
        # Nobody reads this place before the next kernel.
        tl.store(scalars + _CURVATURE, curvature)


@triton.jit
def _record_kernel(  # type: ignore[no-untyped-def]
    norm_partials,
    scalars,
    status,
    counter,
    detail,
    norms,
    tolerance,
    max_iterations,
    programs,
    PROGRAMS: tl.constexpr,
):
    """What ``Progress.record`` does, by one program: norm, verdict, count."""
    rho = tl.load(scalars + _RHO)
    curvature = tl.load(scalars + _CURVATURE)
    norm = tl.sqrt(_total(norm_partials, programs, PROGRAMS))
    before = tl.load(status)
    running = before == _RUNNING
    finite = _is_finite(rho) & _is_finite(curvature)
    taken = running & finite & (rho > 0) & (curvature > 0)
    done = tl.load(counter) + taken.to(tl.int64)

    verdict = tl.where(done >= max_iterations, _MAX_ITERATIONS, _RUNNING)
    verdict = tl.where(norm <= tl.load(tolerance), _CONVERGED, verdict)
    verdict = tl.where(_is_finite(norm), verdict, _NOT_FINITE)
    verdict = tl.where(curvature > 0, verdict, _NOT_POSITIVE_DEFINITE)
    verdict = tl.where(rho > 0, verdict, _PRECONDITIONER_NOT_POSITIVE_DEFINITE)
    verdict = tl.where(finite, verdict, _NOT_FINITE)

    tl.store(counter, done)
    tl.store(norms, norm)
    tl.store(detail, tl.where(running, curvature, tl.load(detail)))
    tl.store(status, tl.where(running, verdict, before))
    tl.store(scalars + _RHO_BEFORE, rho)


@triton.jit
def _turn_kernel(  # type: ignore[no-untyped-def]
    direction,
    correction,
    rho_partials,
    scalars,
    count,
    programs,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """``p = z + beta p``."""
    program = tl.program_id(0)
    rho = _total(rho_partials, programs, PROGRAMS)
    beta = rho / tl.load(scalars + _RHO_BEFORE)
    lane = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(tl.cdiv(count, programs * BLOCK)):
        inside = lane < count
        old = tl.load(direction + lane, mask=inside, other=0.0)
        new = tl.load(correction + lane, mask=inside, other=0.0) + beta.to(old.dtype) * old
        tl.store(direction + lane, new, mask=inside)
        lane += programs * BLOCK
    if program == 0:
        # The others read the place before; this one is read by the next kernel.
        tl.store(scalars + _RHO, rho)


class FusedConjugateGradient(ConjugateGradient):
    """Conjugate gradient recurrence for one real right-hand side, with fused updates."""

    def __init__(self, problem: LinearSystem) -> None:
        super().__init__(problem)
        self.programs = min(_PROGRAMS, triton.cdiv(len(problem.b), _BLOCK))
        self.curvature_partials, self.norm_partials, self.rho_partials = (
            problem.b.new_zeros(self.programs, dtype=torch.float64) for _ in range(3)
        )
        self.scalars = problem.b.new_zeros(3, dtype=torch.float64)

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """See :meth:`Recurrence.begin`."""
        super().begin(columns, residual)
        self.scalars[1] = self.rho

    def step(self, slot: int) -> None:
        """See :meth:`Recurrence.step`."""
        product = self.problem.apply(self.direction).contiguous()
        self._dot(self.direction, product, self.curvature_partials)
        count, grid = len(self.x), (self.programs,)
        progress = self.progress
        _advance_kernel[grid](
            self.x,
            self.residual,
            self.direction,
            product,
            self.curvature_partials,
            self.norm_partials,
            self.scalars,
            progress.status,
            count,
            self.programs,
            BLOCK=_BLOCK,
            PROGRAMS=_PROGRAMS,
        )
        _record_kernel[(1,)](
            self.norm_partials,
            self.scalars,
            progress.status,
            progress.count,
            progress.detail,
            progress.norms[slot],
            progress.tolerance,
            progress.max_iterations,
            self.programs,
            PROGRAMS=_PROGRAMS,
        )
        correction, rho_partials = self.residual, self.norm_partials
        if self.problem.precondition is not None:
            correction = self.problem.precondition(self.residual).contiguous()
            rho_partials = self.rho_partials
            self._dot(self.residual, correction, rho_partials)
        _turn_kernel[grid](
            self.direction,
            correction,
            rho_partials,
            self.scalars,
            count,
            self.programs,
            BLOCK=_BLOCK,
            PROGRAMS=_PROGRAMS,
        )

    def _dot(self, a: Tensor, b: Tensor, partials: Tensor) -> None:
        _dot_kernel[(self.programs,)](a, b, partials, len(a), self.programs, BLOCK=_BLOCK)
