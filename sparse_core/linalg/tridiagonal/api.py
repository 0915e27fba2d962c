"""Solve batches of tridiagonal systems, with gradients."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels.op import Impl, Implementation, Op, by_torch, by_triton
from sparse_core.linalg.implementation import real
from sparse_core.linalg.operands import WORKING_DTYPES

#: Fewest lanes for Triton: with fewer, most of a GPU idles. Cyclic reduction is parallel within a system.
_LANES_FOR_A_SYSTEM_EACH = 512


def _lapack_runs(kind: str, dtype: torch.dtype, lanes: int) -> str | None:
    return None if kind == "cpu" else f"is LAPACK, which needs CPU tensors, got {kind}"


#: The case: dtype of the operands, and number of right-hand sides of all systems.
TRIDIAGONAL_SOLVE: Op[torch.dtype, int] = Op(
    "tridiagonal_solve",
    __package__,
    Implementation("vendor", "CPU", _lapack_runs),
    by_triton(
        needs="real numbers",
        supports=real,
        prefers=lambda kind, dtype, lanes: lanes >= _LANES_FOR_A_SYSTEM_EACH,
    ),
    by_torch(),
    gradient=True,
)


def tridiagonal_solve(
    lower: Tensor,
    diagonal: Tensor,
    upper: Tensor,
    b: Tensor,
    *,
    check: bool = True,
    impl: Impl = "auto",
) -> Tensor:
    """Solve ``lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1] = b[i]`` for a batch of systems.

    ``"vendor"`` pivots. ``"reference"`` and ``"triton"`` do not: use them for diagonally dominant or
    Hermitian positive definite systems (diffusion, splines, implicit time steps).

    Args:
        lower: (..., n); ``lower[..., 0]`` is ignored.
        diagonal: (..., n).
        upper: (..., n); ``upper[..., -1]`` is ignored.
        b: (..., n), or (..., n, k) for k right-hand sides, distinguished by the number of dimensions. Batch
            dimensions of all four broadcast from size 1. float32, float64, complex64 or complex128; the
            operands are promoted to one type.
        check: raise for a zero pivot, which waits for the device; False leaves NaN or infinity in the
            solution of such a system. NaN in the input stays within its system.
        impl: ``"reference"`` is cyclic reduction in torch, ``"triton"`` a lane per system (real, CUDA or
            Triton's interpreter), ``"vendor"`` LAPACK with pivoting (CPU). ``"auto"`` is LAPACK on a CPU; on
            CUDA it is Triton, or the reference for few or complex systems.

    Returns:
        Solution, shape of the broadcast ``b``; gradients reach all four arguments.

    Raises:
        TypeError: an unsupported dtype.
        ValueError: shapes or devices that do not match; a zero pivot, with its system and row.
        ImplementationError: ``impl`` cannot run here.
    """
    operands = _check(lower, diagonal, upper, b)
    lower, diagonal, upper, b = operands
    several = b.ndim == diagonal.ndim + 1
    batch = torch.broadcast_shapes(
        *(part.shape[:-1] for part in operands[:3]), b.shape[: -2 if several else -1]
    )
    size, columns = diagonal.shape[-1], b.shape[-1] if several else 1
    shape = (*batch, size, columns) if several else (*batch, size)
    if 0 in shape:
        return (b + 0 * (diagonal[..., None] if several else diagonal).sum()).expand(shape).clone()
    bands = [part.expand(*batch, size).reshape(-1, size) for part in operands[:3]]
    right = b.expand(shape).reshape(-1, size, columns)
    chosen = TRIDIAGONAL_SOLVE.choose(impl, right.device, right.dtype, len(right) * columns)
    solution: Tensor = _TridiagonalSolve.apply(*bands, right, (chosen, check, batch))
    return solution.reshape(shape)


class _TridiagonalSolve(torch.autograd.Function):
    """``x = T^-1 b``; with ``g = T^-H dL/dx``: ``dL/db = g``, ``dL/dT[i, j] = -g[i] conj(x[j])``."""

    @staticmethod
    def forward(
        lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor, settings: tuple[str, bool, Any]
    ) -> Tensor:
        return _run(lower, diagonal, upper, b, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        lower, diagonal, upper, _, ctx.settings = inputs
        ctx.save_for_backward(lower, diagonal, upper, output)
        ctx.save_for_forward(lower, diagonal, upper, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        lower, diagonal, upper, x = ctx.saved_tensors
        # The adjoint exchanges upper and lower bands, shifted by one row.
        adjoint = upper.roll(1, dims=1).conj(), diagonal.conj(), lower.roll(-1, dims=1).conj()
        of_b: Tensor = _TridiagonalSolve.apply(*adjoint, gradient, ctx.settings)
        of_lower, of_upper = torch.zeros_like(lower), torch.zeros_like(upper)
        of_lower[:, 1:] = -(of_b[:, 1:] * x[:, :-1].conj()).sum(dim=2)
        of_upper[:, :-1] = -(of_b[:, :-1] * x[:, 1:].conj()).sum(dim=2)
        return of_lower, -(of_b * x.conj()).sum(dim=2), of_upper, of_b, None

    @staticmethod
    def jvp(
        ctx: Any,
        of_lower: Tensor | None,
        of_diagonal: Tensor | None,
        of_upper: Tensor | None,
        of_b: Tensor | None,
        _: None,
    ) -> Tensor:
        lower, diagonal, upper, x = ctx.saved_tensors
        # T dx = db - dT x
        right = torch.zeros_like(x) if of_b is None else of_b.clone()
        if of_lower is not None:
            right[:, 1:] -= of_lower[:, 1:, None] * x[:, :-1]
        if of_diagonal is not None:
            right = right - of_diagonal[..., None] * x
        if of_upper is not None:
            right[:, :-1] -= of_upper[:, :-1, None] * x[:, 1:]
        found: Tensor = _TridiagonalSolve.apply(lower, diagonal, upper, right, ctx.settings)
        return found


def _run(
    lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor, chosen: str, check: bool, batch: Any
) -> Tensor:
    lower, upper = lower.clone(), upper.clone()
    lower[:, 0], upper[:, -1] = 0, 0
    parts = [part.resolve_conj().contiguous() for part in (lower, diagonal, upper, b)]
    solution = TRIDIAGONAL_SOLVE.load(chosen).solve(*parts)
    if check and bool((solution.zero_pivot >= 0).any()):
        system = int((solution.zero_pivot >= 0).nonzero()[0])
        index = (
            tuple(int(place) for place in torch.unravel_index(torch.tensor(system), batch)) if batch else ()
        )
        where = f"system {index if len(index) > 1 else index[0]}" if index else "the system"
        raise ValueError(
            f"zero pivot in row {int(solution.zero_pivot[system])} of {where}: it is singular"
            + ("" if chosen == "vendor" else ", or needs row exchanges: use impl='vendor' on a CPU")
        )
    x: Tensor = solution.x
    return x


def _check(*operands: Tensor) -> list[Tensor]:
    """Check the operands and convert them to one dtype."""
    names = ("lower", "diagonal", "upper", "b")
    for name, part in zip(names, operands, strict=True):
        if not isinstance(part, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(part).__name__}")
        if part.device != operands[1].device:
            raise ValueError(
                f"{name} is on {part.device} but diagonal is on {operands[1].device}: move one with .to"
            )
    lower, diagonal, upper, b = operands
    dtype = reduce(torch.promote_types, (part.dtype for part in operands))
    if dtype not in WORKING_DTYPES:
        raise TypeError(
            f"tridiagonal_solve supports float32, float64, complex64 and complex128, not {dtype}:"
            " convert with .to(torch.float32)"
        )
    bands = diagonal.shape
    if diagonal.ndim < 1:
        raise ValueError("diagonal must have shape (..., n), got a scalar")
    for name, part in (("lower", lower), ("upper", upper)):
        if part.ndim != diagonal.ndim or part.shape[-1] != bands[-1]:
            raise ValueError(
                f"{name} must have shape (..., n) like diagonal {tuple(bands)}, got {tuple(part.shape)}"
            )
    if b.ndim not in (diagonal.ndim, diagonal.ndim + 1) or b.shape[diagonal.ndim - 1] != bands[-1]:
        raise ValueError(
            f"b must be (..., n) or (..., n, k) for a diagonal of shape {tuple(bands)}, got {tuple(b.shape)}"
        )
    try:
        torch.broadcast_shapes(lower.shape, bands, upper.shape, b.shape[: diagonal.ndim])
    except RuntimeError as error:
        raise ValueError(
            "batch dimensions do not broadcast: "
            + ", ".join(f"{name} {tuple(part.shape)}" for name, part in zip(names, operands, strict=True))
        ) from error
    return [part.to(dtype) for part in operands]
