"""The packed product by cuSPARSELt."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.nm.linear.common import LinearEpilogue
from sparse_core.nm.linear.cusparselt.compress import compress
from sparse_core.nm.linear.cusparselt.plan import Product
from sparse_core.nm.packing.packed_weight import PackedNM

_TYPES = (torch.float16, torch.bfloat16, torch.int8)
_INT8_RESULTS = (torch.int32, torch.float16, torch.bfloat16)


def supports(weight: PackedNM, out_dtype: torch.dtype) -> bool:
    """Return True if the library supports this weight and result type according to its documentation."""
    out, columns = weight.shape
    pattern = weight.pattern
    if (pattern.n, pattern.m) != (2, 4) or weight.dtype not in _TYPES or out == 0 or columns == 0:
        return False
    step = 32 if weight.dtype == torch.int8 else 16
    # Only contiguous values can live in the compressed buffer; otherwise it would become stale.
    whole = out % step == 0 and columns % step == 0 and weight.values.is_contiguous()
    return whole and out_dtype in results(weight.dtype)


def results(dtype: torch.dtype) -> tuple[torch.dtype, ...]:
    """Return the result types for operands of a type; none if the library does not support them."""
    if dtype not in _TYPES:
        return ()
    return _INT8_RESULTS if dtype == torch.int8 else (dtype,)


def row_step(dtype: torch.dtype) -> int:
    """Return the number of which input rows must be a multiple."""
    return 16 if dtype == torch.int8 else 8


def compress_in_place(weight: PackedNM) -> Tensor:
    """Compress a weight to a buffer (bytes,) uint8 and move its values into it, so that they exist once.

    In-place updates of the values then reach the library.
    """
    buffer = compress(weight)
    values = weight.values
    if not values.is_inference() and values.is_contiguous():
        shared = buffer[: values.numel() * values.dtype.itemsize].view(values.dtype).view(values.shape)
        values.data = shared
    return buffer


def product_of(rows: int, weight: PackedNM, epilogue: LinearEpilogue) -> Product:
    """Return the library's description of a product; without GELU."""
    out, columns = weight.shape
    relu = epilogue.activation == "relu"
    return Product(rows, out, columns, weight.dtype, epilogue.out_dtype, relu, epilogue.scaled)
