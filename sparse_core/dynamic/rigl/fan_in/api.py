"""Few rows times a weight with as many connections in every row, without gradients.

For few rows a product takes as long as reading its weight, so that a tenth of the weights is read sooner,
positions included; for many, tensor cores win by far.
"""

from __future__ import annotations

from torch import Tensor

from sparse_core.dispatch import Impl, triton_or_reference
from sparse_core.dynamic.rigl.fan_in import reference

#: More rows than this and a general product takes over.
MOST_ROWS = 16


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

    def check(tensor: Tensor) -> None:
        from sparse_core.dynamic.rigl.fan_in import triton

        triton.check_runnable(tensor)

    if triton_or_reference(impl, x, operation="fan-in product", check_runs=check) == "reference":
        return reference.product(x, values, columns, rows, bias)
    from sparse_core.dynamic.rigl.fan_in import triton

    return triton.product(x, values, columns, rows, bias)
