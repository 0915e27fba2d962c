"""Assembly of coordinates to compressed rows: checks and choice of implementation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.formats.assemble.common import Assembled, Assembly
from sparse_core.kernels.gradients import needs_autograd
from sparse_core.kernels.op import Impl, Implementation, Op, by_torch, by_triton

_INT32_MAX = torch.iinfo(torch.int32).max


def _packs(kind: str, entries: int, shape: tuple[int, int]) -> str | None:
    if max(entries, *shape) < _INT32_MAX:
        return None
    return (
        f"supports fewer than 2^31 - 1 entries, rows and columns, not shape {shape} with {entries} entries:"
        " use impl='reference'"
    )


def _counts_cells(kind: str, entries: int, shape: tuple[int, int]) -> str | None:
    return None if shape[0] * shape[1] < 2**63 else f"needs fewer than 2^63 cells, got shape {shape}"


#: The case: number of entries, and shape of the matrix.
ASSEMBLE_CSR: Op[int, tuple[int, int]] = Op(
    "assemble_csr",
    __package__,
    by_triton(needs="fewer than 2^31 - 1 entries, rows and columns", supports=_packs),
    by_torch(),
    Implementation("vendor", "fewer than 2^63 cells", _counts_cells, auto=()),
    gradient=True,
)


def assemble_csr(
    row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, impl: Impl = "auto"
) -> Assembled:
    """Convert entries in any order to compressed rows; entries of one cell are summed.

    The sums do not depend on the device or the run. The entries of a cell are added in input order (beyond
    256 of them in pieces of 256), half types in float32 and rounded once. ``"reference"`` and ``"triton"``
    are bitwise equal. NaN stays in its own cell. Explicit zeros and zero sums are kept. The gradient of
    ``values`` is a gather.

    Args:
        row, col: (N,) int32 or int64 (the same for both), inside ``shape``.
        values: (N,) floating or complex, on the same device.
        shape: rows and columns; either may be zero.
        impl: ``"reference"`` sorts linear keys (any device). ``"triton"`` moves entries to their rows and
            sorts each row in registers (CUDA, or Triton's interpreter). ``"vendor"`` is torch's ``coalesce``
            on CUDA and scipy on a CPU, without a fixed order of the sums. ``"auto"`` is Triton for CUDA
            tensors if installed, else the reference.

    Returns:
        ``Assembled(row_ptr, col, values)``; indices have the input's type, or int64 for more than 2^31 - 1
        stored entries. ``col`` and ``values`` never share memory with the input.

    Raises:
        TypeError: indices are not int32 or int64 or differ in type; values are neither floating nor complex.
        ValueError: wrong shapes, different devices, or an index outside ``shape`` (named with its position).
        ImplementationError: ``impl`` cannot run here.
    """
    ASSEMBLE_CSR.check(impl)
    rows, cols = int(shape[0]), int(shape[1])
    _check(row, col, values, rows, cols)
    if len(row) == 0:
        row_ptr = torch.zeros(rows + 1, dtype=col.dtype, device=col.device)
        return Assembled(row_ptr, col.clone(), values.clone())
    assembly = _assemble(row, col, values, (rows, cols), impl)
    if assembly.target is None:
        return Assembled(assembly.row_ptr, assembly.col, assembly.values)
    return Assembled(
        assembly.row_ptr, assembly.col, _GatherGradient.apply(values, assembly.values, assembly.target)
    )


class _GatherGradient(torch.autograd.Function):
    """Identity of the sums; the gradient of every entry is that of its cell."""

    @staticmethod
    def forward(values: Tensor, summed: Tensor, target: Tensor) -> Tensor:
        # An input returned unchanged cannot get a tangent.
        return summed.view_as(summed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])
        ctx.cells = len(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (target,) = ctx.saved_tensors
        return gradients[0].index_select(0, target), None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor, *_: None) -> Tensor:
        (target,) = ctx.saved_tensors
        return of_values.new_zeros(ctx.cells).index_add(0, target.long(), of_values)


def _assemble(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], impl: Impl) -> Assembly:
    target = needs_autograd(values)
    arguments = (row.contiguous(), col.contiguous(), values.detach().contiguous(), shape)
    chosen = ASSEMBLE_CSR.choose(impl, row.device, len(row), shape)
    if chosen == "triton":
        found: Assembly | None = ASSEMBLE_CSR.load(chosen).assemble(*arguments, target=target)
        if found is not None:
            return found
        # The kernels found an index outside the matrix, which the checks below name.
        chosen = "reference"
    _check_range("row", row, shape[0], "rows")
    _check_range("col", col, shape[1], "columns")
    assembly: Assembly = ASSEMBLE_CSR.load(chosen).assemble(*arguments, target=target)
    return assembly


def _check(row: Tensor, col: Tensor, values: Tensor, rows: int, cols: int) -> None:
    for name, index in (("row", row), ("col", col)):
        if index.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} must be int32 or int64, got {index.dtype}")
        if index.ndim != 1 or len(index) != len(row):
            raise ValueError(
                f"row and col must be (N,) and equally long, got {tuple(row.shape)} and {tuple(col.shape)}"
            )
    if row.dtype != col.dtype:
        raise TypeError(f"row and col must have the same dtype, got {row.dtype} and {col.dtype}")
    if not (values.is_floating_point() or values.is_complex()):
        raise TypeError(f"values must be floating or complex, got {values.dtype} (use values.float())")
    if values.shape != row.shape:
        raise ValueError(f"values must be {tuple(row.shape)} like row and col, got {tuple(values.shape)}")
    if not (row.device == col.device == values.device):
        raise ValueError(
            f"row, col and values must be on one device, got {row.device}, {col.device} and {values.device}"
        )
    if rows < 0 or cols < 0:
        raise ValueError(f"shape must not be negative, got {(rows, cols)}")


def _check_range(name: str, index: Tensor, size: int, unit: str) -> None:
    low, high = torch.aminmax(index)
    if int(low) >= 0 and int(high) < size:
        return
    position = int(((index < 0) | (index >= size)).nonzero()[0, 0])
    raise ValueError(f"{name}[{position}] = {int(index[position])} is outside the matrix of {size} {unit}")
