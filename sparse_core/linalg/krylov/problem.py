"""Checked and scaled arguments of the Krylov solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, TypeGuard

import torch
from torch import Tensor

from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.convert import from_torch
from sparse_core.linalg.krylov.scaling import Scaling, choose_scaling, magnitude_of, scaled_product
from sparse_core.linalg.operands import WORKING_DTYPES

Product = Callable[[Tensor], Tensor]
#: Called with (iteration, x, residual norm); True stops the solver.
Callback = Callable[[int, Tensor, float], object]
#: A, or an approximation of its inverse.
Operand = SparseMatrix | Tensor | Product


#: Options of scipy's solvers and their names here.
_SCIPY_NAMES = {"maxiter": "max_iterations", "tol": "rtol", "M": "preconditioner"}


class SolveOptions(TypedDict, total=False):
    """Keyword options of every Krylov solver.

    Attributes:
        rtol: tolerance relative to ``‖b‖``; 1e-5 by default.
        atol: absolute tolerance; 0 by default.
        max_iterations: None, the default, is ``10 M``, as in scipy.
        preconditioner: approximation of ``A^-1``: a ``Preconditioner``, a function ``r -> z``, or a matrix.
        callback: called as ``callback(iteration, x, residual norm)`` after every check of the residual.
            ``x`` is the solver's own buffer (copy it to keep it); the norm is the largest of the columns.
            Returning True ends the solve.
        check_every: iterations between two checks; None, the default, is 1 on a CPU or with a callback, else
            10.
    """

    rtol: float
    atol: float
    max_iterations: int | None
    preconditioner: Operand | None
    callback: Callback | None
    check_every: int | None


class GraphOptions(SolveOptions, total=False):
    """Keyword options of solvers whose iterations can be a CUDA graph.

    Attributes:
        use_graph: replay ``check_every`` iterations as one CUDA graph. None, the default, tries it for a
            stored matrix and a preconditioner with ``graph_safe = True``, and runs without a graph if
            capture fails (see the result's ``execution``). True always captures, and raises on failure.
    """

    use_graph: bool | None


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """A checked system with stopping rules, scaled to a usual size.

    Attributes:
        scaling: from the original system to this one.
        apply: product with A.
        precondition: product with the preconditioner, None without one.
        b: (M,) or (M, N), working dtype.
        x: start, same shape as ``b``, owned by the solver; zero where a column of ``b`` is zero.
        starts_at_zero: True without a start.
        tolerance: real, () or (N,), ``max(rtol * ‖b‖, atol)``.
        max_iterations: limit.
        check_every: iterations between two checks of the residual by the host.
        callback: called after every check.
        graph_reason: why no CUDA graph is used; empty if one may be.
        graph_required: ``use_graph=True``: a failure to capture raises.
    """

    scaling: Scaling
    apply: Product
    precondition: Product | None
    b: Tensor
    x: Tensor
    starts_at_zero: bool
    tolerance: Tensor
    max_iterations: int
    check_every: int
    callback: Callback | None
    graph_reason: str
    graph_required: bool

    def residual(self, x: Tensor) -> Tensor:
        """Compute ``b - A x``."""
        return self.b - self.apply(x)

    def restore(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the solution of the original system.

        Args:
            y: (M,) or (M, N) solution of the scaled system.

        Returns:
            ``x``; its ``‖b - A x‖``, () or (N,) float64, in the scale of this system; () or (N,) bool, True
            for columns that no finite ``x`` of this dtype solves, which are zero.
        """
        x = self.scaling.solution(y)
        overflowed = ~torch.isfinite(x).all(dim=0)
        x = torch.where(overflowed, torch.zeros_like(x), x)
        # Use x, not y, because x may have lost digits to underflow.
        return x, safe_norms(self.residual(self.scaling.start(x))).double(), overflowed

    def correction(self, residual: Tensor) -> Tensor:
        """Apply the preconditioner; without one return the residual itself."""
        return residual if self.precondition is None else self.precondition(residual)


def column_norms(vectors: Tensor) -> Tensor:
    """Return the Euclidean norm of a vector (M,) or of each column of (M, N); real, shape () or (N,)."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=0)
    return norms


def safe_norms(vectors: Tensor) -> Tensor:
    """Return :func:`column_norms` without underflow or overflow of squares."""
    norms = column_norms(vectors)
    if vectors.numel() == 0:
        return norms
    limits = torch.finfo(norms.dtype)
    largest = vectors.abs().amax(dim=0)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
    # Squares of smaller numbers lose digits before they underflow.
    unsafe = (norms < limits.tiny**0.5 / limits.eps) | torch.isinf(norms)
    return torch.where(unsafe, column_norms(vectors / scale) * scale, norms)


def column_dots(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sum(conj(a) * b)`` of vectors (M,) or of each column of (M, N); shape () or (N,)."""
    if a.ndim == 1 and not a.is_cuda:
        return torch.vdot(a, b)
    # cuBLAS has no fixed order of sums; torch's reduction has.
    return (a.conj() * b).sum(dim=0)


@torch.no_grad()
def prepare(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    max_iterations: int | None = None,
    preconditioner: Operand | None = None,
    callback: Callback | None = None,
    check_every: int | None = None,
    use_graph: bool | None = None,
    **unknown: object,
) -> LinearSystem:
    """Check and scale the arguments of a solver; see :class:`GraphOptions`."""
    for name in unknown:
        hint = f"use {_SCIPY_NAMES[name]}" if name in _SCIPY_NAMES else f"use {', '.join(_options())}"
        raise TypeError(f"the solvers have no option {name!r}: {hint}")
    matrix = stored(matrix)
    preconditioner = None if preconditioner is None else stored(preconditioner)
    check_numbers(b, max_iterations, rtol=rtol, atol=atol)
    if check_every is not None and check_every < 1:
        raise ValueError(f"check_every must be at least 1, got {check_every}")
    if b.ndim not in (1, 2):
        raise ValueError(f"b must have shape (M,) or (M, N), got {tuple(b.shape)}")
    dtype = working_dtype(matrix, b, x0)
    apply = in_dtype(product_with(matrix, b, "matrix"), dtype)
    b = b.detach().to(dtype)
    precondition = None
    if preconditioner is not None:
        precondition = in_dtype(product_with(preconditioner, b, "preconditioner"), dtype)
    _check_start(x0, b)
    scaling = choose_scaling(lambda right: _magnitude(matrix, apply, right, "matrix"), b, x0)
    b = scaling.right_side(b)
    if precondition is not None:
        precondition = _scaled_preconditioner(preconditioner, precondition, b, scaling)
    norms = safe_norms(b)
    count = 10 * len(b) if max_iterations is None else max_iterations
    default_check = 10 if b.is_cuda and callback is None else 1
    return LinearSystem(
        scaling=scaling,
        apply=in_dtype(scaled_product(matrix, apply, scaling.matrix), dtype),
        precondition=precondition,
        b=b,
        x=_start(x0, b, norms, scaling),
        starts_at_zero=x0 is None,
        tolerance=scaling.tolerances(rtol, atol, norms),
        max_iterations=count,
        check_every=max(1, min(default_check if check_every is None else check_every, count)),
        callback=callback,
        graph_reason=_graph_reason(matrix, b, preconditioner, use_graph),
        graph_required=use_graph is True,
    )


def _options() -> list[str]:
    return sorted(SolveOptions.__annotations__)


def stored(operand: Operand) -> Operand:
    """Return a sparse torch tensor as a sparse matrix, which has more operations; others unchanged."""
    if isinstance(operand, Tensor) and operand.layout != torch.strided:
        return from_torch(operand)
    return operand


def _magnitude(operand: Operand, product: Product, right: Tensor, name: str) -> float:
    """Estimate the largest number of an operand; for a function, from its product with a right-hand side."""
    if isinstance(operand, SparseMatrix | Tensor):
        return magnitude_of(operand)
    if right.numel() == 0:
        return 0.0
    if is_bare_function(operand):
        _check_result(operand, right, name)
    return float(product(right).abs().max())


def _scaled_preconditioner(operand: Operand | None, product: Product, b: Tensor, scaling: Scaling) -> Product:
    """Scale the preconditioner, which changes no method; a solver object counts as ``A^-1``."""
    exponent = -scaling.matrix
    if is_bare_function(operand) or isinstance(operand, SparseMatrix | Tensor):
        exponent = choose_scaling(
            lambda right: _magnitude(operand, product, right, "preconditioner"), b, None
        ).matrix
    return in_dtype(scaled_product(operand, product, exponent), b.dtype)


def check_numbers(b: Tensor, max_iterations: int | None, **tolerances: float) -> None:
    """Raise unless ``b`` is a tensor, and the limits are finite and not negative."""
    for name, value in tolerances.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and not negative, got {value}")
    if max_iterations is not None and max_iterations < 0:
        raise ValueError(f"max_iterations must not be negative, got {max_iterations}")
    if not isinstance(b, Tensor):
        raise TypeError(f"b must be a torch tensor, got {type(b).__name__}: convert it with torch.as_tensor")


def working_dtype(matrix: Operand, b: Tensor, x0: Tensor | None) -> torch.dtype:
    """Return the dtype of the computation: the promotion of all arguments."""
    dtype = b.dtype
    if isinstance(matrix, SparseMatrix | Tensor):
        dtype = torch.promote_types(dtype, matrix.dtype)
    if x0 is not None:
        dtype = torch.promote_types(dtype, x0.dtype)
    if dtype not in WORKING_DTYPES:
        raise TypeError(
            f"the solvers work in float32, float64, complex64 and complex128, not in {dtype}:"
            " pass b.to(torch.float32) (a matrix in half precision may stay as it is)"
        )
    return dtype


def product_with(operand: Operand, b: Tensor, name: str, *, rows_of: str = "b") -> Product:
    """Return a function that multiplies with ``operand``, after checks of its shape and device."""
    if not isinstance(operand, SparseMatrix | Tensor):
        if callable(operand):
            shape = getattr(operand, "shape", None)
            if shape is not None and tuple(shape) != (len(b), len(b)):
                raise ValueError(f"{name} has shape {tuple(shape)}, but {rows_of} has {len(b)} rows")
            return operand
        raise TypeError(
            f"{name} must be a SparseMatrix, a torch tensor or a function, got {type(operand).__name__}"
            " (scipy matrices: CSR.from_scipy)"
        )
    shape = tuple(operand.shape)
    if shape != (len(b), len(b)):
        raise ValueError(
            f"{name} must have shape ({len(b)}, {len(b)}) for the {len(b)} rows of {rows_of}, got {shape}"
        )
    if operand.device != b.device:
        raise ValueError(f"{name} is on {operand.device}, {rows_of} on {b.device}: move one of them")
    if isinstance(operand, Tensor):
        # A dense product does not promote dtypes.
        dense = operand.detach()
        return lambda x: dense.to(x.dtype) @ x
    return operand.__matmul__


def in_dtype(product: Product, dtype: torch.dtype) -> Product:
    """Return the product with results in the working dtype."""
    return lambda x: product(x).to(dtype)


def _check_start(x0: Tensor | None, b: Tensor) -> None:
    if x0 is not None and (x0.shape != b.shape or x0.device != b.device):
        raise ValueError(
            f"x0 must be like b, {tuple(b.shape)} on {b.device}; got {tuple(x0.shape)} on {x0.device}"
        )


def _start(x0: Tensor | None, b: Tensor, norms: Tensor, scaling: Scaling) -> Tensor:
    if x0 is None:
        return torch.zeros_like(b, memory_format=torch.contiguous_format)
    # A zero right-hand side has a zero solution for any start, as in scipy.
    start = scaling.start(x0.detach().to(b.dtype))
    return torch.where(norms == 0, torch.zeros_like(b), start).contiguous()


def is_bare_function(operand: Operand | None) -> TypeGuard[Product]:
    """True if the operand is a function without a shape."""
    return (
        callable(operand) and not isinstance(operand, SparseMatrix | Tensor) and not hasattr(operand, "shape")
    )


def _check_result(product: Product, x: Tensor, name: str) -> None:
    """Multiply once before the start, to find a function of the wrong shape."""
    result = product(x)
    if not isinstance(result, Tensor) or result.shape != x.shape or result.device != x.device:
        found = (
            f"{tuple(result.shape)} on {result.device}"
            if isinstance(result, Tensor)
            else type(result).__name__
        )
        raise ValueError(f"{name} must return a tensor {tuple(x.shape)} on {x.device}, it returned {found}")
    if result.is_complex() and not x.is_complex():
        raise TypeError(f"{name} returned {result.dtype} for {x.dtype}: pass b with that dtype")


def _graph_reason(matrix: Operand, b: Tensor, preconditioner: Operand | None, use_graph: bool | None) -> str:
    if not b.is_cuda:
        if use_graph:
            raise ValueError(f"use_graph=True needs CUDA tensors, b is on {b.device}")
        return "no CUDA"
    if use_graph:
        return ""
    if use_graph is False:
        return "use_graph=False"
    if not isinstance(matrix, SparseMatrix | Tensor):
        return "the matrix is a function (use_graph=True captures it anyway)"
    stored = preconditioner is None or isinstance(preconditioner, SparseMatrix | Tensor)
    if not stored and not getattr(preconditioner, "graph_safe", False):
        return "the preconditioner does not declare graph_safe"
    return ""
