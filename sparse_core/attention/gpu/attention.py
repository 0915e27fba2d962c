"""Block-sparse attention on a GPU: Triton kernels, and a CUDA forward kernel for the operands it supports.

:func:`attend` is differentiable; :func:`forward` and :func:`backward` launch the kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.dropout import drawn_seed, starting_words
from sparse_core.attention.gpu import forward_triton, gradients_triton, hopper
from sparse_core.attention.gpu.plan import Lists, WorkList, lists_of
from sparse_core.attention.operands import AttentionOptions, AttentionResult, AttentionShape
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.errors import ImplementationError
from sparse_core.kernels import launches
from sparse_core.kernels.gradients import needs_autograd, once_differentiable

_ONE = 2**32
#: Kernels compute offsets within a block in 32 bits.
_LARGEST_ROW_STRIDE = 2**23


class AttentionTile(NamedTuple):
    """Queries and keys of a tile, warps and pipeline stages of a program."""

    rows: int
    keys: int
    warps: int
    stages: int


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute attention for checked operands and options."""
    if options.dropout_p and options.seed is None:
        options = options._replace(seed=drawn_seed())
    needs_gradient = needs_autograd(q, k, v)
    lists = lists_of(pattern)
    transposed = None
    if needs_gradient and (k.requires_grad or v.requires_grad):
        transposed = lists_of(pattern.transposed())
    q, k, v = readable(q), readable(k), readable(v)
    with torch.cuda.device_of(q):
        if needs_gradient:
            out, lse = _BlockAttention.apply(q, k, v, lists, transposed, shape, options)
        else:
            out, lse = forward(q, k, v, lists, shape, options)
    return AttentionResult(out, lse)


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lists: Lists,
        transposed: Lists | None,
        shape: AttentionShape,
        options: AttentionOptions,
    ) -> tuple[Tensor, Tensor]:
        return forward(q, k, v, lists, shape, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, ctx.lists, ctx.transposed, ctx.shape, ctx.options = inputs
        ctx.save_for_backward(q, k, v, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, lse_gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        if gradient is None:
            if lse_gradient is None:
                return (None,) * 7
            gradient = torch.zeros_like(out)
        with torch.cuda.device_of(q):
            found = backward(
                gradient, lse_gradient, q, k, v, out, lse, ctx.lists, ctx.transposed, ctx.shape, ctx.options
            )
        return *found, None, None, None, None


def forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, shape: AttentionShape, options: AttentionOptions
) -> tuple[Tensor, Tensor]:
    """Return out like q, and lse (batch, heads, query_length) float32.

    Args:
        q: (batch, heads, query_length, dim) float16, bfloat16 or float32, the last dimension contiguous.
        k, v: (batch, key_heads, key_length, dim) likewise.
        options: ``impl="auto"`` takes the CUDA kernel for the operands that it supports.

    Raises:
        ImplementationError: ``impl="cuda"``, and the CUDA kernel does not support the operands.
    """
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return out, lse
    size, dim = lists.block_size, shape.dim
    tile = forward_tile(q.dtype, size, dim, unmasked=_unmasked(lists, options))
    work = lists.work_list(shape.batch, shape.heads)
    scratch, part_lse = _scratch(work, size, dim, 1, q)
    if options.impl != "triton" and options.plain and hopper.supports(q, k, v, lists, options.scale):
        hopper.forward(q, k, v, lists, work, shape, options.scale, out, lse, scratch, part_lse)
    elif options.impl == "cuda":
        raise ImplementationError(
            "impl='cuda' needs Hopper, float16 or bfloat16, blocks of 64 or 128, dim 64 or 128, a positive"
            " scale, and neither dropout nor lengths of sequences"
        )
    else:
        programs = _programs(work, lists, shape.batch * shape.heads) * (size // tile.rows)
        launches.launch(
            forward_triton.forward_kernel, programs,
            q, k, v, out, lse,
            *_strides(q, k, v, out),
            *_list_arguments(lists, work), scratch, part_lse,
            *_option_arguments(options, q), options.scale * 1.4426950408889634,
            shape.query_length, shape.key_length, shape.heads, shape.group, lists.pattern_heads,
            lists.block_rows,
            ROWS=tile.rows, KEYS=tile.keys, **_constants(lists, work, options, shape, q.dtype),
            STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
    if work is not None and work.slots:
        join(scratch, part_lse, work, out, lse, lists, shape, options)
    return out, lse


def join(
    scratch: Tensor,
    part_lse: Tensor,
    work: WorkList,
    out: Tensor,
    lse: Tensor,
    lists: Lists,
    shape: AttentionShape,
    options: AttentionOptions,
) -> None:
    """Combine the parts of cut rows into out and lse.

    Args:
        scratch: (slots, block_size, dim) float32.
        part_lse: (slots, block_size) float32, natural logarithms.
    """
    size = lists.block_size
    rows = min(_largest_power(size), 32)
    launches.launch(
        forward_triton.join_kernel, len(work.joins) * (size // rows),
        scratch, part_lse, work.joins, out, lse, *out.stride()[:3],
        part_lse if options.query_lengths is None else options.query_lengths,
        shape.query_length, shape.heads, lists.block_rows,
        BLOCK=size, ROWS=rows, DIM=shape.dim, WIDE=_wide(shape.dim),
        RAGGED_QUERIES=options.query_lengths is not None,
    )  # fmt: skip


def backward(
    gradient: Tensor,
    lse_gradient: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    lists: Lists,
    transposed: Lists | None,
    shape: AttentionShape,
    options: AttentionOptions,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of q, k and v.

    Args:
        gradient: of out, with its shape and type.
        lse_gradient: of lse, or ``None``.
        transposed: lists of the transposed pattern; ``None`` skips the gradients of k and v.
    """
    of_q = torch.empty_like(q)
    of_k = of_v = None
    if transposed is not None:
        of_k, of_v = torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0 or k.numel() == 0:
        for part in (of_q, of_k, of_v):
            if part is not None:
                part.zero_()
        return of_q, of_k, of_v
    gradient = readable(gradient)
    delta = launches.scratch(lse.shape, lse.dtype, lse.device)
    _query_gradient((q, k, v, out, gradient, lse, lse_gradient, delta, of_q), lists, shape, options)
    if transposed is not None:
        assert of_k is not None
        assert of_v is not None
        _key_gradients((q, k, v, gradient, lse, delta), of_k, of_v, transposed, shape, options)
    return of_q, of_k, of_v


def _query_gradient(
    operands: tuple[Any, ...], lists: Lists, shape: AttentionShape, options: AttentionOptions
) -> None:
    """Write the gradient of the queries and delta, the last two operands."""
    q, k, v, out, gradient, lse, lse_gradient, delta, of_q = operands
    size, dim = lists.block_size, shape.dim
    tile = query_tile(q.dtype, size, dim, unmasked=_unmasked(lists, options))
    work = lists.work_list(shape.batch, shape.heads)
    scratch, _ = _scratch(work, size, dim, 1, q)
    launches.launch(
        gradients_triton.query_gradient_kernel,
        _programs(work, lists, shape.batch * shape.heads) * (size // tile.rows),
        q, k, v, out, gradient, lse, lse if lse_gradient is None else lse_gradient.contiguous(), delta, of_q,
        *_strides(q, k, v, out, gradient, of_q),
        *_list_arguments(lists, work), scratch,
        *_option_arguments(options, q), options.scale,
        shape.query_length, shape.key_length, shape.heads, shape.group, lists.pattern_heads, lists.block_rows,
        ROWS=tile.rows, KEYS=tile.keys, **_constants(lists, work, options, shape, q.dtype),
        HAS_LSE=lse_gradient is not None, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    if work is not None and work.slots:
        _add_pieces(scratch, work, of_q, size, 0, shape.query_length, shape.heads, lists, dim)


def _key_gradients(
    operands: tuple[Tensor, ...],
    of_k: Tensor,
    of_v: Tensor,
    lists: Lists,
    shape: AttentionShape,
    options: AttentionOptions,
) -> None:
    q, k, v, gradient, _, _ = operands
    size, dim = lists.block_size, shape.dim
    tile = key_tile(q.dtype, size, dim)
    work = lists.work_list(shape.batch, shape.heads, shape.group)
    scratch, _ = _scratch(work, size, dim, 2, q)
    launches.launch(
        gradients_triton.key_gradient_kernel,
        _programs(work, lists, shape.batch * shape.key_heads) * (size // tile.keys),
        *operands, of_k, of_v,
        *_strides(q, k, v, gradient, of_k, of_v),
        *_list_arguments(lists, work), scratch,
        *_option_arguments(options, q), options.scale,
        shape.query_length, shape.key_length, shape.key_heads, shape.group, lists.pattern_heads,
        lists.block_rows,
        ROWS=tile.rows, KEYS=tile.keys, **_constants(lists, work, options, shape, q.dtype),
        STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    if work is not None and work.slots:
        for first, result in ((0, of_k), (size, of_v)):
            _add_pieces(scratch, work, result, 2 * size, first, shape.key_length, shape.key_heads, lists, dim)


def _add_pieces(
    scratch: Tensor,
    work: WorkList,
    result: Tensor,
    slot_rows: int,
    first_row: int,
    length: int,
    heads: int,
    lists: Lists,
    dim: int,
) -> None:
    rows = min(_largest_power(lists.block_size), 32)
    launches.launch(
        gradients_triton.sum_kernel, len(work.joins) * (lists.block_size // rows),
        scratch, work.joins, result, *result.stride()[:3], slot_rows, first_row, length, heads,
        lists.block_rows,
        BLOCK=lists.block_size, ROWS=rows, DIM=dim, WIDE=_wide(dim),
    )  # fmt: skip


def forward_tile(dtype: torch.dtype, size: int, dim: int, *, unmasked: bool = False) -> AttentionTile:
    """Return the tile of the forward kernel; those for 16 bits were measured on an H200.

    Kernels without code for masks have registers for larger tiles.
    """
    most = _largest_power(size)
    if dtype == torch.float32:
        return AttentionTile(min(most, 64), min(most, 32), 4, 2)
    if dim > 128:
        return AttentionTile(min(most, 64), min(most, 64), 4, 2)
    if most == 128:
        return AttentionTile(128, 64, 4 if dim > 64 else 8, 3)
    keys = 64 if unmasked and dim <= 64 else 32
    return AttentionTile(most, min(most, keys), 4, 3)


def query_tile(dtype: torch.dtype, size: int, dim: int, *, unmasked: bool = False) -> AttentionTile:
    """Return the tile of the kernel for the gradient of the queries."""
    most = _largest_power(size)
    if dtype == torch.float32:
        return AttentionTile(min(most, 32), min(most, 32), 4, 2)
    if dim > 128:
        return AttentionTile(min(most, 64), min(most, 32), 4, 2)
    if unmasked:
        return AttentionTile(min(most, 64), min(most, 64), 4, 2 if dim > 64 else 3)
    if most == 128 and dim > 64:
        return AttentionTile(64, 64, 4, 3)
    return AttentionTile(min(most, 64), min(most, 32), 4, 2 if dim > 64 else 3)


def key_tile(dtype: torch.dtype, size: int, dim: int) -> AttentionTile:
    """Return the tile of the kernel for the gradients of keys and values."""
    most = _largest_power(size)
    if dtype == torch.float32:
        return AttentionTile(min(most, 32), min(most, 32), 4, 2)
    if dim > 128:
        return AttentionTile(min(most, 32), min(most, 64), 4, 2)
    return AttentionTile(min(most, 64), min(most, 64), 4, 2)


def readable(tensor: Tensor) -> Tensor:
    """Return the tensor in a layout that the kernels read, copied only if needed."""
    fits = tensor.stride(-1) == 1 and tensor.stride(-2) <= _LARGEST_ROW_STRIDE
    return tensor if fits else tensor.contiguous()


def _largest_power(size: int) -> int:
    """Return the largest power of two that divides ``size``."""
    return size & -size


def _wide(dim: int) -> int:
    """Return the smallest power of two that is at least ``dim``."""
    return 1 << (dim - 1).bit_length()


def _programs(work: WorkList | None, lists: Lists, heads: int) -> int:
    return heads * lists.block_rows if work is None else len(work.parts)


def _scratch(work: WorkList | None, size: int, dim: int, results: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return buffers for the parts of cut rows: (slots, results * size, dim) and (slots, size) float32.

    Without cut rows, return ``like`` twice; kernels do not write to it.
    """
    if work is None or not work.slots:
        return like, like
    rows = torch.empty((work.slots, results * size, dim), dtype=torch.float32, device=like.device)
    return rows, torch.empty((work.slots, size), dtype=torch.float32, device=like.device)


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _list_arguments(lists: Lists, work: WorkList | None) -> tuple[Tensor, ...]:
    parts = lists.row_ptr if work is None else work.parts
    return lists.row_ptr, lists.full_end, lists.columns, lists.mask, lists.mask_bytes, parts


def _option_arguments(options: AttentionOptions, like: Tensor) -> tuple[Any, ...]:
    words = starting_words(options.seed or 0) if options.dropout_p else (0, 0)
    return (
        like if options.query_lengths is None else options.query_lengths,
        like if options.key_lengths is None else options.key_lengths,
        *words,
        min(round(options.dropout_p * _ONE), _ONE - 1),
        1.0 / (1.0 - options.dropout_p),
    )


def _unmasked(lists: Lists, options: AttentionOptions) -> bool:
    """Return True if every block is computed whole."""
    return lists.unmasked and options.query_lengths is None and options.key_lengths is None


def _constants(
    lists: Lists, work: WorkList | None, options: AttentionOptions, shape: AttentionShape, dtype: torch.dtype
) -> dict[str, Any]:
    precision = "ieee"
    if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        precision = "tf32"
    return {
        "BLOCK": lists.block_size,
        "DIM": shape.dim,
        "WIDE": _wide(shape.dim),
        "LISTED": work is not None,
        "UNMASKED": _unmasked(lists, options),
        "RAGGED_QUERIES": options.query_lengths is not None,
        "RAGGED_KEYS": options.key_lengths is not None,
        "DROPOUT": options.dropout_p > 0,
        "PRECISION": precision,
    }
