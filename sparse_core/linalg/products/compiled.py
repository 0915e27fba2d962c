"""Products with CSR and BSR as operators that ``torch.compile`` keeps as one node."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.formats import BSR, CSR, SparseMatrix
from sparse_core.kernels.op import Impl
from sparse_core.kernels.operators import operator
from sparse_core.linalg.operands import as_gradient
from sparse_core.linalg.products.gradient import columns_of, product
from sparse_core.linalg.sddmm.api import impl_for, sampled_values

#: Most structures with cached work plans; the oldest is dropped first.
_KEPT = 64


class _Structure(NamedTuple):
    """Plans of a structure, and the tensors that identify it."""

    indices: tuple[weakref.ref[Tensor], weakref.ref[Tensor]]
    versions: tuple[int, int]
    plans: dict[str, Any]


_structures: OrderedDict[tuple[int, int, tuple[int, int]], _Structure] = OrderedDict()


def traced_product(matrix: SparseMatrix, dense: Tensor, transpose: bool, impl: Impl) -> Tensor:
    """Multiply during tracing by ``torch.compile``; formats other than CSR and BSR break the graph."""
    if not isinstance(matrix, CSR | BSR):
        untraced: Tensor = _untraced(matrix, dense, transpose, impl)
        return untraced
    rows, columns = matrix.shape
    result: Tensor = sparse_product_op(
        matrix.values, matrix.row_ptr, matrix.col, dense, rows, columns, transpose, impl
    )
    return result


@torch.compiler.disable(
    reason="torch.compile traces products with CSR and BSR only (a conversion has sizes that depend on the"
    " entries): convert the matrix with .to(CSR) before the compiled function"
)
def _untraced(matrix: SparseMatrix, dense: Tensor, transpose: bool, impl: Impl) -> Tensor:
    return product(matrix, dense, transpose, impl)


@operator("sparse_product")
def sparse_product_op(
    values: Tensor,
    row_ptr: Tensor,
    col: Tensor,
    dense: Tensor,
    rows: int,
    columns: int,
    transpose: bool,
    impl: str,
) -> Tensor:
    """:func:`sparse_core.linalg.spmv` and :func:`sparse_core.linalg.spmm` on the parts of a matrix."""
    matrix: CSR | BSR = _matrix(values, row_ptr, col, (rows, columns))
    # A product with a batch is a permuted view, but register_fake declares contiguous results.
    return product(matrix, dense.detach(), transpose, impl).contiguous()


@torch.library.register_fake(sparse_product_op)
def _(values: Tensor, *rest: Any) -> Tensor:
    _row_ptr, _col, dense, rows, columns, transpose, _impl = rest
    size = columns if transpose else rows
    shape = (size,) if dense.ndim == 1 else (*dense.shape[:-2], size, dense.shape[-1])
    result: Tensor = dense.new_empty(shape, dtype=torch.promote_types(values.dtype, dense.dtype))
    return result


@operator("sparse_product_of_values", gradient=False)
def _of_values_op(
    values: Tensor, row_ptr: Tensor, col: Tensor, a: Tensor, b: Tensor, rows: int, columns: int, impl: str
) -> Tensor:
    """Return ``a @ b`` at the entries of the matrix, in the type of its values."""
    matrix = _matrix(values, row_ptr, col, (rows, columns))
    return as_gradient(sampled_values(matrix, a, b, impl), values.dtype).contiguous()


@torch.library.register_fake(_of_values_op)
def _(values: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, row_ptr, col, dense, *ctx.settings = inputs
    ctx.save_for_backward(values, row_ptr, col, dense)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    values, row_ptr, col, dense = ctx.saved_tensors
    rows, columns, transpose, impl = ctx.settings
    of_values = of_dense = None
    if ctx.needs_input_grad[0]:
        pair = (dense.conj(), gradient) if transpose else (gradient, dense.conj())
        left, right = (columns_of(one) for one in pair)
        of_values = _of_values_op(values, row_ptr, col, left, right.mT, rows, columns, impl_for(impl))
    if ctx.needs_input_grad[3]:
        of_adjoint = sparse_product_op(
            values, row_ptr, col, gradient.conj().resolve_conj(), rows, columns, not transpose, impl
        )
        of_dense = as_gradient(of_adjoint.conj().resolve_conj(), dense.dtype)
    return of_values, None, None, of_dense, None, None, None, None


torch.library.register_autograd(sparse_product_op, _backward, setup_context=_setup)


def _matrix(values: Tensor, row_ptr: Tensor, col: Tensor, shape: tuple[int, int]) -> CSR | BSR:
    """Rebuild the matrix, with the cached plans of its structure."""
    values = values.detach().resolve_conj().resolve_neg()
    matrix = CSR(row_ptr, col, values, shape) if values.ndim == 1 else BSR(row_ptr, col, values, shape)
    key, versions = (id(row_ptr), id(col), shape), (row_ptr._version, col._version)
    known = _structures.get(key)
    if (
        known is None
        or known.versions != versions
        or any(ref() is not index for ref, index in zip(known.indices, (row_ptr, col), strict=True))
    ):
        known = _Structure((weakref.ref(row_ptr), weakref.ref(col)), versions, {})
        _structures[key] = known
        if len(_structures) > _KEPT:
            _structures.popitem(last=False)
    matrix._structure_cache = known.plans
    return matrix
