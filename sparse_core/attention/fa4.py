"""Block-sparse attention by FlashAttention-4 (package ``flash-attn-4``), for whole blocks on Hopper."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.operands import AttentionOptions, AttentionResult, AttentionShape
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.errors import ImplementationError

#: Queries and keys of a block: the tile of the library's kernels for Hopper.
BLOCK = 128
_LARGEST_DIM = 128
_KEY = "fa4"


class BlockTables(NamedTuple):
    """Columns of the blocks of each block row, as the library reads them.

    Attributes:
        none: (1, heads, block rows) int32 zeros: there are no blocks with a mask.
        nowhere: (1, heads, block rows, 1) int32 zeros, their columns.
        counts: (1, heads, block rows) int32, blocks of a row.
        columns: (1, heads, block rows, most blocks of a row) int32; zeros after the last block.
    """

    none: Tensor
    nowhere: Tensor
    counts: Tensor
    columns: Tensor

    @classmethod
    def of(cls, pattern: BlockPattern) -> BlockTables:
        """Return the tables of a pattern; make them at the first call, which waits for the device."""
        tables = pattern.plans.get(_KEY)
        if not isinstance(tables, BlockTables):
            with torch.inference_mode(False), torch.no_grad():
                tables = pattern.plans[_KEY] = cls._build(pattern)
        return tables

    @classmethod
    def _build(cls, pattern: BlockPattern) -> BlockTables:
        lengths = pattern.row_lengths().int()
        head, row, column = pattern.coordinates()
        sizes = (pattern.heads, pattern.block_rows)
        most = max(1, int(lengths.max())) if lengths.numel() else 1
        # The place of a block within its row; blocks are stored row by row.
        starts = lengths.flatten().long().cumsum(0) - lengths.flatten()
        place = torch.arange(len(column), device=column.device) - starts[head * pattern.block_rows + row]
        columns = torch.zeros((*sizes, most), dtype=torch.int32, device=pattern.device)
        columns[head, row, place] = column.int()
        none = torch.zeros_like(lengths)
        return cls(*(part[None].contiguous() for part in (none, none[..., None], lengths, columns)))


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute attention for checked operands and options.

    The gradient of the queries is added up in any order on Hopper, so it repeats only to rounding.

    Raises:
        ImplementationError: the pattern, the operands or the GPU do not fit.
    """
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
    reason = _reason_not_to_fit(pattern, shape, trained=trained)
    if reason is None and torch.cuda.get_device_capability(q.device)[0] != 9:
        reason = "a GPU of the Hopper generation"
    if reason is not None:
        raise ImplementationError(f"sparse_attention: impl='fa4' needs {reason}")
    transposed = BlockTables.of(pattern.transposed()) if trained else None
    out, lse = flash_with_tables(q, k, v, BlockTables.of(pattern), options.scale, transposed)
    return AttentionResult(out, lse)


def flash_with_tables(
    q: Tensor, k: Tensor, v: Tensor, tables: BlockTables, scale: float, transposed: BlockTables | None = None
) -> tuple[Tensor, Tensor]:
    """Call the library.

    Args:
        q: (batch, heads, query_length, dim) float16 or bfloat16.
        k, v: (batch, key_heads, key_length, dim) like q.
        tables: blocks of the rows of q.
        scale: of the scores.
        transposed: blocks of the rows of k, for gradients.

    Returns:
        The output, like q, and the logarithms of the sums, (batch, heads, query_length) float32.
    """
    from flash_attn.cute import flash_attn_func

    arguments: dict[str, Any] = {"block_sparse_tensors": _as_library(tables)}
    if transposed is not None:
        arguments["block_sparse_tensors_bwd"] = _as_library(transposed)
    operands = (part.transpose(1, 2) for part in (q, k, v))
    with torch.cuda.device_of(q), torch.autocast(q.device.type, enabled=False):
        out, lse = flash_attn_func(*operands, softmax_scale=scale, return_lse=True, **arguments)[:2]
    return out.transpose(1, 2), lse


def _reason_not_to_fit(pattern: BlockPattern, shape: AttentionShape, *, trained: bool) -> str | None:
    """Return what the library needs and a call lacks."""
    if pattern.block_size != BLOCK or shape.query_length % BLOCK or shape.key_length % BLOCK:
        return f"blocks of {BLOCK}, and lengths that are multiples of {BLOCK}"
    if len(pattern.token_masks):
        return "whole blocks, because the library has no token masks: build the pattern from blocks"
    if shape.dim > _LARGEST_DIM:
        return f"a dim of up to {_LARGEST_DIM}, got {shape.dim}"
    if trained and torch.are_deterministic_algorithms_enabled():
        return "torch.use_deterministic_algorithms(False), because it adds gradients in any order"
    return None


def _as_library(tables: BlockTables) -> Any:
    """Return tables as the library's record."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    return BlockSparseTensorsTorch(
        mask_block_cnt=tables.none,
        mask_block_idx=tables.nowhere,
        full_block_cnt=tables.counts,
        full_block_idx=tables.columns,
        block_size=(BLOCK, BLOCK),
    )
