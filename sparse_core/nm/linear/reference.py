"""The packed product in plain torch: unpack, then multiply densely. The oracle of the other
implementations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.nm.linear.common import apply_activation
from sparse_core.nm.packing.packed_weight import PackedNM


def nm_linear(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    *,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """Return ``activation(x @ weight.T * scale + bias)``; see the public function for shapes."""
    matrix = weight.to_dense() if dense is None else dense
    if x.dtype != torch.int8:
        return apply_activation(torch.nn.functional.linear(x, matrix, bias), activation)
    return int8_linear(x, matrix, bias, activation=activation, scale=scale, out_dtype=out_dtype)


def int8_linear(
    x: Tensor,
    matrix: Tensor,
    bias: Tensor | None,
    *,
    activation: str | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """Return the int8 product with exact sums: float64 holds every sum of fewer than 2^39 products."""
    total = x.double() @ matrix.double().T
    if out_dtype == torch.int32:
        return total.to(torch.int32)
    result = total.float() if scale is None else total.float() * scale
    if bias is not None:
        result = result + bias.float()
    return apply_activation(result, activation).to(out_dtype)
