"""Few rows times a weight with as many connections in every row, without gradients.

For few rows a product takes as long as reading its weight, so that a tenth of the weights is read sooner,
positions included; for many, tensor cores win by far.
"""

from __future__ import annotations

from torch import Tensor

from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

#: More rows than this and a general product takes over.
MOST_ROWS = 16

FAN_IN_PRODUCT: Op[()] = Op("fan_in_product", __package__, by_triton(), by_torch(), gradient=False)


def fan_in_product(
    x: Tensor, values: Tensor, columns: Tensor, rows: int, bias: Tensor | None = None, *, impl: Impl = "auto"
) -> Tensor:
    """``x @ weight.T + bias``; results repeat to the bit.

    Args:
        x: (N, in), N from 1 to 16.
        values: (rows * per_row,), same type, by row.
        columns: (rows * per_row,) int32.
        rows: of the weight.
        bias: (rows,), same type.
        impl: ``"reference"`` or ``"triton"``; ``"auto"`` is Triton on CUDA where it is installed.

    Returns:
        (N, rows), summed in float32 at least.

    Raises:
        ValueError: more rows of ``x``.
        ImplementationError: a named ``impl`` cannot run here.
    """
    if not 1 <= len(x) <= MOST_ROWS:
        raise ValueError(f"x must have 1 to {MOST_ROWS} rows, got {len(x)}")
    implementation = FAN_IN_PRODUCT.pick(impl, x.device)
    product: Tensor = implementation.product(x, values, columns, rows, bias)
    return product
