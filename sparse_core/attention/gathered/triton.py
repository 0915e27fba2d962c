"""Gathered attention in Triton: forward and backward, without copies of the keys and without atomics.

A program reads the rows that a query lists and keeps a running softmax. Heads that share a key head and a
list are rows of one matrix product, so the listed rows are read once for all of them. The backward pass
recomputes the weights; for the gradients of k and v it sorts the slots by key, see
:mod:`sparse_core.attention.gathered.key_kernels_triton`. Nothing waits for the device. Runs on CUDA, and on
a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from sparse_core.attention.gathered.kernels_triton import (
    delta_kernel,
    forward_kernel,
    forward_shared_kernel,
    query_gradient_kernel,
    query_gradient_shared_kernel,
)
from sparse_core.attention.gathered.key_kernels_triton import (
    further_parts_kernel,
    key_gradient_kernel,
    label_kernel,
)
from sparse_core.attention.operands import DIM_STEP, AttentionResult

_LOG2E = 1.4426950408889634
#: Bytes of a table that a warp has in flight; fewer in backward, which keeps them in registers for two uses.
_WARP_BYTES, _BACKWARD_WARP_BYTES = 4096, 2048
#: Fewest rows of a program's matrix product; missing rows are zeros.
_FEWEST_ROWS = 16
#: Most float32 sums per program. Products without tensor cores also keep their operands in registers.
_MOST_SUMS = {torch.float16: 8192, torch.bfloat16: 8192, torch.float32: 1024}
#: Fewest heads for which a shared list is read once. Float32 uses no tensor cores, so zero rows cost time.
_SHARED_FROM = {torch.float16: 2, torch.bfloat16: 2, torch.float32: _FEWEST_ROWS}
#: Most rows of q that a program sums for a row of k; see :mod:`.key_kernels_triton`.
_PART_ROWS = 512
_LABEL_BLOCK = 1024


class Gradients(NamedTuple):
    """Contiguous gradients of q, k and v; None where not needed."""

    q: Tensor | None
    k: Tensor | None
    v: Tensor | None


def forward(q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float) -> AttentionResult:
    """Return out and lse, both contiguous.

    Args:
        q: (batch, heads, queries, dim) float16, bfloat16 or float32.
        k, v: (batch, key_heads, key_length, dim).
        index: (batch, heads or 1, queries, keys_per_query) int32 or int64, any strides. A number out of range
            makes out and lse of its query NaN.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if out.numel() == 0:
        return AttentionResult(out, lse)
    q, k, v = (_readable(tensor) for tensor in (q, k, v))
    call = _QueryLaunch.of(q, k, index, _WARP_BYTES)
    steps = (*_steps(q), *_steps(k), *_steps(v), *call.index_strides)
    sizes = (q.shape[1], q.shape[2], k.shape[2], index.shape[3], call.group, scale * _LOG2E)
    kernel = forward_shared_kernel if call.shared else forward_kernel
    with _device(q):
        kernel[(call.programs,)](q, k, v, index, out, lse, *sizes, *steps, **call.tile)
    return AttentionResult(out, lse)


def backward(
    grad: Tensor | None,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """Return the gradients of the operands, summed in float32.

    Args:
        grad: of ``out``; None for zeros.
        grad_lse: of ``lse``; None for zeros.
        q, k, v, index, scale: as for :func:`forward`.
        out, lse: result of :func:`forward`.
        needs: True for each gradient to compute. Those of k and v take up to 40 bytes of temporary memory per
            index entry.
    """
    if q.numel() == 0 or index.shape[3] == 0 or k.numel() == 0 or not any(needs):
        made = (x.new_zeros(x.shape) if needed else None for x, needed in zip((q, k, v), needs, strict=True))
        return Gradients(*made)
    grad = _readable(torch.zeros_like(out) if grad is None else grad)
    q, k, v = (_readable(tensor) for tensor in (q, k, v))
    with _device(q):
        delta = _delta(out, grad, grad_lse)
        operands = (q, k, v, index, grad, lse, delta)
        grad_q = _query_gradient(*operands, scale) if needs[0] else None
        grad_k, grad_v = _key_gradients(*operands, scale, needs[1], needs[2])
    return Gradients(grad_q, grad_k, grad_v)


class _QueryLaunch(NamedTuple):
    """Launch parameters of a kernel with a program per query."""

    shared: bool
    group: int
    programs: int
    index_strides: tuple[int, ...]
    tile: dict[str, int]

    @classmethod
    def of(cls, q: Tensor, k: Tensor, index: Tensor, warp_bytes: int) -> _QueryLaunch:
        batch, heads, queries, dim = q.shape
        key_heads = k.shape[1]
        group = heads // key_heads
        shared = index.shape[1] == 1 and group >= _SHARED_FROM[q.dtype]
        width, slots = triton.next_power_of_2(dim), triton.next_power_of_2(max(1, index.shape[3]))
        strides = index.stride()
        row_bytes = width * q.element_size()
        if not shared:
            head_stride = strides[1] if index.shape[1] > 1 else 0
            tile = {"SLOTS": min(slots, max(4, warp_bytes // row_bytes)), "num_warps": 1}
            index_strides = (strides[0], head_stride, *strides[2:])
            programs = batch * heads * queries
        else:
            most_rows = min(64, _MOST_SUMS[q.dtype] // width)
            rows = max(_FEWEST_ROWS, min(triton.next_power_of_2(group), most_rows))
            most = min(64, max(16, 2 * _WARP_BYTES // row_bytes))
            chunk = min(max(slots, 16), most)
            warps = 4 if rows > _FEWEST_ROWS or chunk * row_bytes >= 2 * _WARP_BYTES else 2
            tile = {"SLOTS": chunk, "ROWS": rows, "num_warps": warps}
            tile["num_stages"] = 2 if index.shape[3] > chunk else 1
            index_strides = (strides[0], *strides[2:])
            programs = batch * key_heads * queries * -(-group // rows)
        return cls(shared, group, programs, index_strides, {"DIM": dim, "WIDTH": width, **tile})


def _delta(out: Tensor, grad: Tensor, grad_lse: Tensor | None) -> Tensor:
    _, heads, queries, dim = out.shape
    width = triton.next_power_of_2(dim)
    count = out.numel() // dim
    delta = torch.empty(out.shape[:3], dtype=torch.float32, device=out.device)
    rows = _rows_of_a_warp(out, _WARP_BYTES)
    delta_kernel[(triton.cdiv(count, rows),)](
        out, grad, None if grad_lse is None else grad_lse.contiguous(), delta, count,
        heads, queries, *_steps(grad),
        HAS_LSE=grad_lse is not None, DIM=dim, WIDTH=width, ROWS=rows, num_warps=1,
    )  # fmt: skip
    return delta


def _query_gradient(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, grad: Tensor, lse: Tensor, delta: Tensor, scale: float
) -> Tensor:
    call = _QueryLaunch.of(q, k, index, _BACKWARD_WARP_BYTES)
    made = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    sizes = (q.shape[1], q.shape[2], k.shape[2], index.shape[3], call.group, scale * _LOG2E, scale)
    steps = (*_steps(q), *_steps(k), *_steps(v), *call.index_strides, *_steps(grad))
    kernel = query_gradient_shared_kernel if call.shared else query_gradient_kernel
    kernel[(call.programs,)](q, k, v, index, grad, lse, delta, made, *sizes, *steps, **call.tile)
    return made


class _Slots(NamedTuple):
    """Slots of all lists sorted by key (stable).

    Attributes:
        order: (slots of all lists,) int64, position of a slot in the contiguous index.
        labels: (slots of all lists,) its key, numbered over all tables; ``none`` without a key.
        first: (none + 1,) first slot of each key.
        none: number of keys of all tables.
    """

    order: Tensor
    labels: Tensor
    first: Tensor
    none: int


def _slots_by_key(index: Tensor, tables: int, key_length: int) -> _Slots:
    """Sort the slots of an index by key; ``tables`` is the number of different tables of keys."""
    index = index.contiguous()
    none = tables * key_length
    # A sort of narrow keys is faster.
    widths = (torch.int16, torch.int32, torch.int64)
    dtype = next(dtype for dtype in widths if none <= torch.iinfo(dtype).max)
    labels = torch.empty(index.numel(), dtype=dtype, device=index.device)
    list_slots = index.shape[2] * index.shape[3]
    label_kernel[(triton.cdiv(index.numel(), _LABEL_BLOCK),)](
        index,
        labels,
        index.numel(),
        list_slots,
        index.numel() // list_slots // tables,
        key_length,
        none,
        BLOCK=_LABEL_BLOCK,
        num_warps=4,
    )
    labels, order = labels.sort(stable=True)
    keys = torch.arange(none + 1, dtype=dtype, device=index.device)
    first = torch.searchsorted(labels, keys, out_int32=index.numel() < 2**31)
    return _Slots(order, labels, first, none)


def _key_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    grad: Tensor,
    lse: Tensor,
    delta: Tensor,
    scale: float,
    needs_k: bool,
    needs_v: bool,
) -> tuple[Tensor | None, Tensor | None]:
    if not (needs_k or needs_v):
        return None, None
    batch, heads, queries, dim = q.shape
    key_heads, key_length = k.shape[1], k.shape[2]
    # With one list for all heads, sort its slots once; each serves the heads of a group.
    shared = index.shape[1] == 1
    members = heads // key_heads if shared else 0
    slots = _slots_by_key(index, batch if shared else batch * key_heads, key_length)
    part = max(1, _PART_ROWS // triton.next_power_of_2(max(1, members)))
    parts = triton.cdiv(len(slots.order), part)
    further = (parts - 1) * (key_heads if shared else 1)
    options = {
        "PART": part,
        "NEEDS_K": needs_k,
        "NEEDS_V": needs_v,
        "MEMBERS": members,
        "WIDE": len(slots.order) >= 2**31,
        "DIM": dim,
        "WIDTH": triton.next_power_of_2(dim),
        "ROWS": _rows_of_a_warp(q, _BACKWARD_WARP_BYTES),
        "num_warps": 1,
    }
    steps = (*_steps(q), *_steps(k), *_steps(v), *_steps(grad))

    def allocate(needed: bool, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        return torch.empty(shape, dtype=dtype, device=q.device) if needed else None

    part_k, part_v = (allocate(needed, (further, dim), torch.float32) for needed in (needs_k, needs_v))
    grad_k, grad_v = (allocate(needed, tuple(k.shape), k.dtype) for needed in (needs_k, needs_v))
    sizes = (parts, heads, key_heads, queries, key_length, index.shape[3])
    before = (q, k, v, grad, lse, delta, slots.order)
    if further:
        further_parts_kernel[(further,)](
            *before,
            slots.labels,
            slots.first,
            part_k,
            part_v,
            *sizes,
            slots.none,
            scale * _LOG2E,
            *steps,
            **options,
        )
    key_gradient_kernel[(batch * key_heads * key_length,)](
        *before, slots.first, part_k, part_v, grad_k, grad_v, *sizes, scale * _LOG2E, scale, *steps, **options
    )
    return grad_k, grad_v


def _rows_of_a_warp(table: Tensor, in_flight: int) -> int:
    row_bytes: int = triton.next_power_of_2(table.shape[3]) * table.element_size()
    return max(4, in_flight // row_bytes)


def _readable(tensor: Tensor) -> Tensor:
    """Return the tensor with contiguous rows that begin at multiples of 8, copied only if needed."""
    apart = (
        n == 1 or stride % DIM_STEP == 0 for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor if tensor.stride(3) == 1 and all([*apart][:3]) else tensor.contiguous()


def _steps(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of batch entries, heads and rows, in units of 8."""
    strides = zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
    return tuple(0 if n == 1 else stride // DIM_STEP for n, stride in strides)


def _device(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    # Triton launches on the current device.
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
