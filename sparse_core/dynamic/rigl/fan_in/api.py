"""Products of a few rows with a weight that has the same number of connections in every row; no gradients.

For a few rows a product is as fast as reading its weight, so a tenth of the weights with their positions is
read sooner. For many rows tensor cores are far faster.
"""

from __future__ import annotations

from torch import Tensor

from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

#: Above this number of rows a general product is used.
MOST_ROWS = 16

FAN_IN_PRODUCT: Op[()] = Op("fan_in_product", __package__, by_triton(), by_torch(), gradient=False)


def fan_in_product(
    x: Tensor, values: Tensor, columns: Tensor, rows: int, bias: Tensor | None = None, *, impl: Impl = "auto"
) -> Tensor:
    """Return ``x @ weight.T + bias`` (N, rows), summed in float32 at least; results repeat bit for bit.

    Args:
        x: (N, in), N from 1 to 16.
        values: (rows * per_row,), same type, by row.
        columns: (rows * per_row,) int32.
        rows: rows of the weight.
        bias: (rows,), same type.
        impl: ``"reference"`` or ``"triton"``; ``"auto"`` uses Triton on CUDA if it is installed.
    """
    if not 1 <= len(x) <= MOST_ROWS:
        raise ValueError(f"x must have 1 to {MOST_ROWS} rows, got {len(x)}")
    implementation = FAN_IN_PRODUCT.pick(impl, x.device)
    product: Tensor = implementation.product(x, values, columns, rows, bias)
    return product
