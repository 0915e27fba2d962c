"""Dense product sampled at the stored positions of a sparse matrix (SDDMM)."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.formats import BSR, COO, CSR
from sparse_core.linalg.implementation import real
from sparse_core.linalg.operands import as_gradient, check_dense, check_matrix, gradient_needed, sum_of
from sparse_core.linalg.sddmm.common import Pattern
from sparse_core.linalg.structure import transposed
from sparse_core.op import Impl, Implementation, Op, by_torch, by_triton

PatternT = TypeVar("PatternT", CSR, COO, BSR)


def _torch_samples(kind: str, dtype: torch.dtype, form: type) -> str | None:
    if form is CSR and (dtype in (torch.float32, torch.float64) or (dtype.is_complex and kind == "cuda")):
        return None
    return (
        "samples CSR in float32 and float64 (complex on CUDA),"
        f" not {form.__name__} in {dtype} on {kind}: take 'reference'"
    )


SDDMM: Op[torch.dtype, type] = Op(
    "sddmm",
    __package__,
    by_triton(needs="real numbers", supports=real),
    Implementation("vendor", "CSR; float32 or float64, on CUDA also complex", _torch_samples),
    by_torch(),
    gradient=True,
)


def sddmm(pattern: PatternT, a: Tensor, b: Tensor, *, impl: Impl = "auto") -> PatternT:
    """``a @ b`` at the stored positions of ``pattern``, with gradients for ``a`` and ``b``.

    Args:
        pattern: (M, N) CSR, COO or BSR; only its structure matters. Every stored position is sampled,
            duplicates of COO each on their own, BSR blocks in full.
        a: (M, K) floating or complex, on the device of the pattern.
        b: (K, N) likewise.
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is torch's own (CSR in single or double precision: cuSPARSE on CUDA); ``"auto"``
            is Triton on CUDA, torch's own on a CPU, and the reference where those do not reach.

    Returns:
        ``pattern`` with other values, of the promoted type; half precision is summed in float32;
        autocast changes nothing.

    Raises:
        TypeError: ``pattern`` has another format, or an operand is neither floating nor complex.
        ValueError: shapes or devices do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    check_matrix(pattern, "pattern")
    if not isinstance(pattern, CSR | COO | BSR):
        raise TypeError(f"pattern must be CSR, COO or BSR, got {type(pattern).__name__}: use .to(CSR)")
    for operand, name in ((a, "a"), (b, "b")):
        check_dense(operand, name, pattern.device)
        if operand.ndim != 2:
            raise ValueError(f"{name} must be a matrix, got shape {tuple(operand.shape)}")
    rows, columns = pattern.shape
    if len(a) != rows or b.shape[1] != columns or a.shape[1] != len(b):
        raise ValueError(
            f"a {pattern.shape} pattern needs a ({rows}, K) and b (K, {columns}),"
            f" got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return pattern.with_values(samples(pattern, a, b, impl))


def samples(pattern: Pattern, a: Tensor, b: Tensor, impl: Impl) -> Tensor:
    """:func:`sampled_values`, recorded where autograd follows an operand."""
    if not gradient_needed(a, b):
        return sampled_values(pattern, a, b, impl)
    values: Tensor = _Sampled.apply(a, b, pattern.detach(), impl)
    return values


@without_autocast
def sampled_values(pattern: Pattern, a: Tensor, b: Tensor, impl: str) -> Tensor:
    """Values of :func:`sddmm`, in the layout of ``pattern.values``, without gradients and argument checks."""
    chosen = SDDMM.choose(impl, pattern.device, torch.promote_types(a.dtype, b.dtype), type(pattern))
    made: Tensor = SDDMM.load(chosen).sddmm(pattern, a.detach(), b.detach())
    return made


class _Sampled(torch.autograd.Function):
    """Sampled values with gradients: products of the sparse gradient with the other operand."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, pattern: Pattern, impl: Impl) -> Tensor:
        return sampled_values(pattern, a, b, impl)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, ctx.pattern, ctx.impl = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # spmm needs sampled values for its own gradient, so the modules cannot import each other at the top.
        from sparse_core.linalg.spmm.api import SPMM, product

        a, b = ctx.saved_tensors
        sparse = ctx.pattern.with_values(gradient)
        # What ran forward runs backward, unless the choice was free or the library's.
        impl: Impl = "auto" if ctx.impl == "vendor" else ctx.impl
        chosen = SPMM.choose(impl, gradient.device, gradient.dtype)
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = as_gradient(product(sparse, b.conj().transpose(0, 1), chosen), a)
        if ctx.needs_input_grad[1]:
            of_b = as_gradient(product(transposed(sparse), a.conj(), chosen).transpose(0, 1), b)
        return of_a, of_b, None, None

    @staticmethod
    def jvp(ctx: Any, of_a: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        a, b = ctx.saved_tensors
        parts = []
        if of_a is not None:
            parts.append(samples(ctx.pattern, of_a, b, ctx.impl))
        if of_b is not None:
            parts.append(samples(ctx.pattern, a, of_b, ctx.impl))
        return sum_of(parts)
