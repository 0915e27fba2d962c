"""Product of two sparse matrices."""

from __future__ import annotations

import torch

from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR, SparseMatrix
from sparse_core.kernels import torch_internals
from sparse_core.kernels.op import Impl, Op, by_torch
from sparse_core.linalg.implementation import LIBRARY
from sparse_core.linalg.operands import check_matrix, gradient_needed
from sparse_core.linalg.spgemm.gradient import multiply, recorded
from sparse_core.linalg.structure import as_csr

SPGEMM: Op[torch.dtype] = Op("spgemm", __package__, LIBRARY, by_torch(), gradient=True)


def spgemm(a: SparseMatrix, b: SparseMatrix, *, impl: Impl = "auto") -> CSR:
    """Return ``a @ b`` as CSR, with gradients for the values of both.

    The result has an entry for every product of two stored entries, also if the sum is zero.

    Args:
        a: (M, K), any format; multiplied as CSR.
        b: (K, N), any format, on the device of ``a``.
        impl: ``"reference"`` expands, sorts and compresses in plain torch, ``"vendor"`` is cuSPARSE, or MKL
            or scipy on a CPU; ``"auto"`` is the library (the reference for half precision on a CPU). There is
            no Triton kernel.

    Returns:
        (M, N), columns ascending in every row, values of the promoted type; half precision is summed in
        float32; autocast has no effect.

    Raises:
        TypeError: an operand is not sparse, or its values are neither floating nor complex.
        ValueError: shapes or devices do not match.
        ImplementationError: the named ``impl`` cannot run here, or a transform of ``torch.func`` is active.
    """
    check_matrix(a, "a")
    check_matrix(b, "b")
    if a.device != b.device:
        raise ValueError(f"b is on {b.device} and a on {a.device}: move one of them with .to")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a {a.shape} needs b with {a.shape[1]} rows, got shape {b.shape}")
    if torch_internals.transforms_active():
        raise ImplementationError(
            "the product of two sparse matrices supports no transform of torch.func: use torch.autograd.grad"
        )
    chosen = SPGEMM.choose(impl, a.device, torch.promote_types(a.dtype, b.dtype))
    a, b = as_csr(a), as_csr(b)
    product = multiply(a.detach(), b.detach(), chosen)
    if not gradient_needed(a, b):
        return product
    return product.with_values(recorded(a.values, b.values, a.detach(), b.detach(), product, chosen))
