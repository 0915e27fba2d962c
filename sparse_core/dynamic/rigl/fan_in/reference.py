"""The product of a few rows with connections by row, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def product(x: Tensor, values: Tensor, columns: Tensor, rows: int, bias: Tensor | None) -> Tensor:
    """Return (N, rows) for (N, in); see :func:`sparse_core.dynamic.rigl.fan_in.api.fan_in_product`."""
    exact = torch.promote_types(x.dtype, torch.float32)
    met = x.index_select(1, columns).reshape(len(x), rows, -1).to(exact)
    result = (met * values.reshape(rows, -1).to(exact)).sum(dim=2)
    return (result if bias is None else result + bias.to(exact)).to(x.dtype)
