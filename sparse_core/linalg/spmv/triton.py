"""Sparse matrix-vector product in Triton: choice and launch of the kernels.

The launch shapes were measured on an H200; see the decision page on sparse formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix
from sparse_core.kernels.launches import dependent, scratch
from sparse_core.kernels.launches import launch as _launch
from sparse_core.linalg.spmv import kernels_triton
from sparse_core.linalg.spmv.plan import (
    MERGE_ITEMS,
    MERGE_LINE,
    PIECE,
    UNROLLED,
    AdaptivePlan,
    JoinPlan,
    adaptive_plan,
    merge_plan,
    pattern_plan,
    row_profile,
)
from sparse_core.linalg.structure import as_csr

#: A row this many times longer than the mean needs the adaptive or the merge kernel.
_SKEW = 16
#: Mean length from which a row gets several lanes.
_LONG_MEAN = 8
#: Most lanes per row.
_MOST_LANES = 256
#: Fewer rows of at least this mean length are cut into pieces, because whole rows leave multiprocessors idle.
_FEW_ROWS, _PIECED_MEAN = 2048, 1024
#: Most nearly empty pieces per program of short rows.
_FEW_PIECES = 0.125
#: Numbers in 128 bytes.
_VECTOR = 32
#: Lanes that keep an H200 busy: about eight tiles of 1024 per multiprocessor.
_OCCUPYING_LANES = 2**20


def spmv(matrix: SparseMatrix, x: Tensor, *, method: str = "auto") -> Tensor:
    """Return ``matrix @ x`` without gradients.

    The first product of a structure makes its work plan and may wait for the device. Later ones do not wait
    and can be captured in a CUDA graph.

    Raises:
        ValueError: a method that the format does not have.
    """
    x = x.contiguous()
    y = torch.empty(matrix.shape[0], dtype=torch.promote_types(matrix.dtype, x.dtype), device=x.device)
    if len(y) == 0:
        return y
    if isinstance(matrix, CSR):
        _csr_method(matrix, method)(matrix, x, y)
        return y
    if method != "auto":
        raise ValueError(
            f"method={method!r} needs a CSR matrix, got {type(matrix).__name__}: use method='auto'"
        )
    multiply: Callable[[Any, Tensor, Tensor], None] | None = _LAUNCHES.get(type(matrix))
    if multiply is None:
        raise TypeError(f"Triton does not support {type(matrix).__name__}: convert it with .to(CSR)")
    multiply(matrix, x, y)
    return y


def _csr_method(matrix: CSR, method: str) -> Callable[[CSR, Tensor, Tensor], None]:
    if method == "auto":
        method = automatic_method(matrix)
    if method not in _METHODS:
        raise ValueError(f"method must be 'auto' or one of {', '.join(_METHODS)}; got {method!r}")
    if method == "pattern" and pattern_plan(matrix) is None:
        raise ValueError(
            "method='pattern' needs rows of at most 32 entries with at most 256 patterns of offsets from the"
            " diagonal; this matrix has more: use method='auto'"
        )
    return _METHODS[method]


def automatic_method(matrix: CSR) -> str:
    """Return the name of the CSR kernel that ``method="auto"`` runs."""
    profile = row_profile(matrix)
    if profile.longest > max(UNROLLED, _SKEW * profile.mean):
        return "adaptive" if _pieces_are_few(adaptive_plan(matrix)) else "merge"
    if profile.longest <= UNROLLED and pattern_plan(matrix) is not None:
        return "pattern"
    if matrix.shape[0] < _FEW_ROWS and profile.mean >= _PIECED_MEAN:
        return "adaptive"
    return "vector" if profile.mean >= _LONG_MEAN else "scalar"


def _pieces_are_few(plan: AdaptivePlan) -> bool:
    """True if few programs of the adaptive kernel would be nearly empty."""
    short_programs = plan.short_rows / _unrolled_shape(plan.longest_short)[0]
    pieces = len(plan.piece_start)
    return plan.mean_short <= _LONG_MEAN and (
        2 * plan.long_entries >= pieces * PIECE or pieces <= _FEW_PIECES * short_programs
    )


def _accumulator(y: Tensor, x: Tensor) -> tl.dtype:
    return tl.float64 if torch.float64 in (x.dtype, y.dtype) else tl.float32


def _unrolled_shape(longest: int) -> tuple[int, int]:
    """Return rows and warps of a program that unrolls rows; longer rows need more threads."""
    return (256, 4) if longest <= _LONG_MEAN else (256, 8)


def _scalar(matrix: CSR, x: Tensor, y: Tensor) -> None:
    longest = row_profile(matrix).longest
    unrolled = longest <= UNROLLED
    kernel = kernels_triton.scalar_kernel if unrolled else kernels_triton.scalar_loop_kernel
    _launch(
        kernel,
        triton.cdiv(len(y), 128),
        matrix.row_ptr,
        matrix.col,
        _stored(matrix),
        x,
        y,
        len(y),
        ROWS=128,
        STEPS=longest if unrolled else 4,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def _vector(matrix: CSR, x: Tensor, y: Tensor) -> None:
    width = vector_width(len(y), row_profile(matrix).mean)
    block = max(1, min(128, 1024 // width))
    _launch(
        kernels_triton.vector_kernel,
        triton.cdiv(len(y), block),
        matrix.row_ptr,
        matrix.col,
        _stored(matrix),
        x,
        y,
        len(y),
        ROWS=block,
        WIDTH=width,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def vector_width(rows: int, mean: float) -> int:
    """Return lanes per row: few, so that many rows are in flight, but enough to occupy the device."""
    width: int = min(16, max(4, triton.next_power_of_2(max(1, round(mean)))))
    while rows * width < _OCCUPYING_LANES and width < min(_MOST_LANES, mean):
        width *= 2
    return width


def _adaptive(matrix: CSR, x: Tensor, y: Tensor) -> None:
    plan = adaptive_plan(matrix)
    accumulator = _accumulator(y, x)
    following = dependent(x)
    pieces = len(plan.piece_start)
    rows, warps = _unrolled_shape(plan.longest_short)
    partial = _scratch(max(1, pieces), y, accumulator)
    _launch(
        kernels_triton.adaptive_kernel,
        pieces + (triton.cdiv(len(y), rows) if plan.short_rows else 0),
        matrix.row_ptr,
        matrix.col,
        _stored(matrix),
        x,
        y,
        plan.piece_start,
        plan.piece_end,
        plan.piece_row,
        partial,
        len(y),
        pieces,
        ROWS=rows,
        STEPS=plan.longest_short,
        WIDTH=PIECE,
        LINE=MERGE_LINE,
        ACC=accumulator,
        DEPENDENT=following["DEPENDENT"],
        num_warps=warps,
    )
    _join(plan.split, None, partial, y, accumulator)


def _join(parts: JoinPlan, head: Tensor | None, tail: Tensor, y: Tensor, accumulator: tl.dtype) -> None:
    """Add the parts of rows, in a launch that is set up while the last one ends."""
    if len(parts.rows) == 0:
        return
    groups = triton.cdiv(parts.narrow, 16)
    _launch(
        kernels_triton.join_kernel,
        groups + len(parts.rows) - parts.narrow,
        parts.rows,
        parts.first,
        parts.last,
        tail if head is None else head,
        tail,
        y,
        parts.narrow,
        groups,
        ROWS=16,
        WIDTH=32,
        WIDE=1024,
        HEADED=head is not None,
        ACC=accumulator,
        num_warps=4,
        **dependent(y),
    )


def _merge(matrix: CSR, x: Tensor, y: Tensor) -> None:
    plan = merge_plan(matrix)
    programs = len(plan.first_row) - 1
    accumulator = _accumulator(y, x)
    # One buffer for both parts, each aligned for vector loads.
    apart = triton.cdiv(programs, _VECTOR) * _VECTOR
    both = _scratch(2 * apart, y, accumulator)
    head, tail = both[:apart], both[apart:]
    _launch(
        kernels_triton.merge_kernel,
        programs,
        matrix.row_ptr,
        plan.row_starts,
        plan.first_row,
        matrix.col,
        _stored(matrix),
        x,
        y,
        head,
        tail,
        len(matrix.col),
        SHARE=MERGE_ITEMS,
        LINE=MERGE_LINE,
        ACC=accumulator,
        DEPENDENT=dependent(x)["DEPENDENT"],
        num_warps=4,
    )
    _join(plan.split, head, tail, y, accumulator)


def _pattern(matrix: CSR, x: Tensor, y: Tensor) -> None:
    plan = pattern_plan(matrix)
    assert plan is not None  # _csr_method checked it.
    rows, warps = _unrolled_shape(plan.longest)
    _launch(
        kernels_triton.pattern_kernel,
        triton.cdiv(len(y), rows),
        matrix.row_ptr,
        plan.pattern,
        plan.offsets,
        plan.lengths,
        _stored(matrix),
        x,
        y,
        len(y),
        ROWS=rows,
        STEPS=plan.longest,
        WIDTH=plan.offsets.shape[1],
        ACC=_accumulator(y, x),
        num_warps=warps,
    )


_METHODS: dict[str, Callable[[CSR, Tensor, Tensor], None]] = {
    "scalar": _scalar,
    "vector": _vector,
    "adaptive": _adaptive,
    "merge": _merge,
    "pattern": _pattern,
}


def _sliced(matrix: SlicedELL, x: Tensor, y: Tensor) -> None:
    plan = pattern_plan(matrix)
    nothing = matrix.lengths
    longest = row_profile(matrix).longest
    # Two short rows per thread keep as many loads in flight as one longer row.
    rows = 256 if longest <= _LONG_MEAN else 128
    _launch(
        kernels_triton.sliced_kernel,
        triton.cdiv(len(y), rows),
        matrix.slice_ptr,
        matrix.col,
        _stored(matrix),
        matrix.lengths if plan is None else plan.lengths,
        nothing if matrix.row_order is None else matrix.row_order,
        nothing if plan is None else plan.pattern,
        nothing if plan is None else plan.offsets,
        x,
        y,
        len(y),
        HEIGHT=matrix.slice_height,
        ROWS=rows,
        STEPS=max(1, longest) if longest <= UNROLLED else 4,
        UNROLLED=longest <= UNROLLED,
        PATTERNED=plan is not None,
        WIDTH=1 if plan is None else plan.offsets.shape[1],
        ORDERED=matrix.row_order is not None,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def _ell(matrix: ELL, x: Tensor, y: Tensor) -> None:
    width = len(matrix.col)
    _launch(
        kernels_triton.ell_kernel,
        triton.cdiv(len(y), 128),
        matrix.col,
        _stored(matrix),
        matrix.lengths,
        x,
        y,
        len(y),
        ROWS=128,
        STEPS=max(1, width) if width <= UNROLLED else 4,
        UNROLLED=width <= UNROLLED,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def _hybrid(matrix: HYB, x: Tensor, y: Tensor) -> None:
    if matrix.coo.nnz == 0:
        _ell(matrix.ell, x, y)
        return
    # Keep half precision in float32, so that the sum of both parts is rounded once.
    full = y.dtype in (torch.float32, torch.float64)
    wide = y if full else torch.empty(len(y), dtype=torch.float32, device=y.device)
    rest = torch.empty_like(wide)
    _ell(matrix.ell, x, wide)
    tail = as_csr(matrix.coo)
    _csr_method(tail, "auto")(tail, x, rest)
    torch.add(wide, rest, out=wide)
    if wide is not y:
        y.copy_(wide)


def _coordinates(matrix: COO, x: Tensor, y: Tensor) -> None:
    csr = as_csr(matrix)
    _csr_method(csr, "auto")(csr, x, y)


def _compact(matrix: CompactCSR, x: Tensor, y: Tensor) -> None:
    profile = stored_profile(matrix)
    common = (
        matrix.row_ptr,
        matrix.delta,
        _stored(matrix),
        x,
        y,
        len(y),
        matrix.anchor_offset,
    )
    longest, mean = profile
    if longest <= UNROLLED:
        rows, warps = _unrolled_shape(longest)
        _launch(
            kernels_triton.compact_kernel,
            triton.cdiv(len(y), rows),
            *common,
            ROWS=rows,
            STEPS=longest,
            ACC=_accumulator(y, x),
            num_warps=warps,
        )
        return
    width = min(256, max(8, triton.next_power_of_2(max(1, round(mean)))))
    rows = max(1, 1024 // width)
    _launch(
        kernels_triton.compact_vector_kernel,
        triton.cdiv(len(y), rows),
        *common,
        ROWS=rows,
        WIDTH=width,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def stored_profile(matrix: CompactCSR) -> tuple[int, float]:
    """Return the longest and mean row of a compact matrix, including fillers."""

    def build() -> tuple[int, float]:
        lengths = matrix.row_ptr[1:] - matrix.row_ptr[:-1]
        return int(lengths.max()), len(matrix.delta) / len(lengths)

    return matrix.cached("spmv.stored_profile", build)


def _blocks(matrix: BSR, x: Tensor, y: Tensor) -> None:
    block_rows, block_columns = matrix.block_size
    padded = triton.next_power_of_2(block_columns)
    rows = min(8, triton.next_power_of_2(block_rows))
    parts = triton.cdiv(block_rows, rows)
    _launch(
        kernels_triton.block_kernel,
        (len(matrix.row_ptr) - 1) * parts,
        matrix.row_ptr,
        matrix.col,
        _stored(matrix),
        x,
        y,
        len(y),
        matrix.shape[1],
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        PADDED_COLUMNS=padded,
        ROWS=rows,
        GROUP=max(1, 256 // padded),
        ACC=_accumulator(y, x),
        num_warps=4,
    )


def _groups(matrix: NM, x: Tensor, y: Tensor) -> None:
    slots = matrix.values[0].numel()
    width = min(256, triton.next_power_of_2(max(1, slots)))
    rows = max(1, 1024 // width)
    _launch(
        kernels_triton.group_kernel,
        triton.cdiv(len(y), rows),
        matrix.index,
        _stored(matrix),
        x,
        y,
        len(y),
        matrix.shape[1],
        slots,
        KEPT=matrix.n,
        GROUP=matrix.m,
        ROWS=rows,
        WIDTH=width,
        ACC=_accumulator(y, x),
        num_warps=4,
    )


_LAUNCHES: dict[type[SparseMatrix], Callable[[Any, Tensor, Tensor], None]] = {
    COO: _coordinates,
    ELL: _ell,
    SlicedELL: _sliced,
    HYB: _hybrid,
    BSR: _blocks,
    NM: _groups,
    CompactCSR: _compact,
}


def _stored(matrix: SparseMatrix) -> Tensor:
    """Return contiguous values; only values from outside may have other strides."""
    return matrix.values.contiguous()


def _scratch(count: int, y: Tensor, accumulator: tl.dtype) -> Tensor:
    dtype = torch.float64 if accumulator == tl.float64 else torch.float32
    return scratch(count, dtype, y.device)
