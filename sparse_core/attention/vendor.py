"""Block-sparse attention by torch's FlexAttention (Dong et al. 2024)."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import all_finite
from sparse_core.attention.operands import AttentionOptions, AttentionResult, AttentionShape, arithmetic_dtype
from sparse_core.attention.patterns.grid import FULL
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction
from sparse_core.errors import ImplementationError

#: Most scores held at once on a CPU, where FlexAttention is not compiled.
MATERIALISED_SCORES = 1 << 25

# Recompilations for new sizes; torch's default of 8 is too few for patterns of many sizes.
_RECOMPILATIONS = 256

# Shared memory of an A100 for tiles of queries, keys and values.
_SHARED_BYTES = 160_000


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute attention for checked operands and options by FlexAttention.

    On a GPU it is compiled once per combination of sizes, types and options; ``out`` and ``lse`` are
    differentiable. For blocks below 128 in 16 bits, the first training call searches tiles for the backward
    pass; for blocks that are no multiple of 32 it tries all tiles, which is slow. Short queries use the same
    kernel as long ones.

    On a CPU it runs as plain torch operations that hold all scores, up to ``MATERIALISED_SCORES``, without
    gradients.

    FlexAttention multiplies masked values by 0, which is NaN for non-finite values. On a CPU this is
    corrected. On a GPU, NaN or infinities in ``v`` and in backward operands can reach queries and keys of the
    same block.

    Dropout and lengths are not supported: FlexAttention skips the masks of full blocks, so that each sequence
    would need its own lists.

    Raises:
        ImplementationError: gradients on a CPU, or too many scores there.
    """
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
    if not q.is_cuda:
        _check_scores(shape, trained)
    if not shape.batch:
        return AttentionResult(q * 1.0, q.new_zeros(q.shape[:3], dtype=arithmetic_dtype(q.dtype)))
    if not trained:
        # On a CPU FlexAttention refuses operands that require gradients, even under torch.no_grad.
        q, k, v = q.detach(), k.detach(), v.detach()
    tiles = KernelOptions.choose(pattern, shape.dim, q.dtype, trained=trained)
    arguments = (block_mask(pattern), options.scale, shape.group > 1, tiles.kernel, options.score_mod)
    with torch.autocast(q.device.type, enabled=False):
        if torch.compiler.is_compiling():
            out, lse = _attend(q, k, v, *arguments)
        else:
            with torch._dynamo.config.patch(recompile_limit=_RECOMPILATIONS):
                attend = compiled(q.device.type, tiles.search)
                if q.is_cuda or all_finite(v):
                    out, lse = attend(q, k, v, *arguments)
                else:
                    out, lse = _attend_non_finite(attend, q, k, v, arguments)
    return AttentionResult(out, lse.to(arithmetic_dtype(q.dtype)))


def _attend_non_finite(
    attend: Any, q: Tensor, k: Tensor, v: Tensor, arguments: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """Return out and lse for non-finite values: these reach only queries that may attend to them."""
    out, lse = attend(q, k, v.nan_to_num(0.0, 0.0, 0.0), *arguments)

    def shares(chosen: Tensor, *, equal: bool = False) -> Tensor:
        """Attend to the mask ``chosen`` (batch, heads, query_length, dim), equally if ``equal``."""
        scores = (torch.zeros_like(q), torch.zeros_like(k)) if equal else (q, k)
        found: Tensor = attend(*scores, chosen.to(v.dtype), *arguments)[0]
        return found

    for sign in (1.0, -1.0):
        out = torch.where(shares(v == sign * torch.inf) > 0, out + sign * torch.inf, out)
    # An infinity with weight 0 also gives NaN.
    reached = shares(~v.isfinite(), equal=True) > 0
    return torch.where(reached & ((shares(v.isnan(), equal=True) > 0) | out.isfinite()), torch.nan, out), lse


def block_mask(pattern: BlockPattern) -> Any:
    """Return the pattern as FlexAttention's ``BlockMask``; make it at the first call.

    Blocks that cross the end of a sequence count as partial, as in ``create_block_mask``.
    """
    key = ("vendor", pattern.heads)
    cached = pattern.plans.get(key)
    if cached is None:
        cached = pattern.plans[key] = _make_block_mask(pattern)
    return cached


def _make_block_mask(pattern: BlockPattern) -> Any:
    from torch.nn.attention.flex_attention import BlockMask

    table, masks = _numbered_masks(pattern)
    partial = _lists((table != _WHOLE) & (table != _NOTHING))
    full = _lists(table == _WHOLE)
    return BlockMask.from_kv_blocks(
        partial.counts,
        partial.columns,
        full.counts,
        full.columns,
        BLOCK_SIZE=pattern.block_size,
        mask_mod=_mask_mod(table, masks, pattern.block_size),
        seq_lengths=(pattern.query_length, pattern.key_length),
    )


# Masks of every pattern: four by the edge that a block crosses (BlockGrid.edges), and an empty one.
_WHOLE, _NOTHING, _FIRST = 0, 4, 5


def _numbered_masks(pattern: BlockPattern) -> tuple[Tensor, Tensor]:
    """Return the mask index of each block, (heads, block rows, block columns) int32, and the masks."""
    head, row, column = pattern.coordinates()
    number = torch.where(
        pattern.partial == FULL, pattern.grid.edges(row, column).int(), pattern.partial + _FIRST
    )
    sizes = (pattern.heads, pattern.block_rows, pattern.block_columns)
    table = torch.full(sizes, _NOTHING, dtype=torch.int32, device=pattern.device)
    table[head, row, column] = number
    inside = pattern.grid.inside(pattern.device)
    # A power of two, so that patterns with more or fewer masks share compiled code.
    count = _FIRST + len(pattern.token_masks)
    masks = inside.new_zeros((1 << (count - 1).bit_length(), *inside.shape[1:]))
    masks[: len(inside)] = inside
    masks[_FIRST:count] = pattern.token_masks
    return table, masks


class _Lists(NamedTuple):
    """Block columns of each block row; int32."""

    counts: Tensor  # (1, heads, block rows)
    columns: Tensor  # (1, heads, block rows, block columns), stored ones ascending, then the others


def _lists(stored: Tensor) -> _Lists:
    """Make lists from bool (heads, block rows, block columns)."""
    counts = stored.sum(dim=2, dtype=torch.int32)
    columns = torch.sort(stored.to(torch.uint8), dim=2, descending=True, stable=True).indices
    return _Lists(counts[None].contiguous(), columns.int()[None].contiguous())


def _mask_mod(table: Tensor, masks: Tensor, size: int) -> Any:
    """Return FlexAttention's ``mask_mod`` for the numbered masks."""
    if table.shape[0] == 1:
        shared = table[0].contiguous()

        def mask_of_all(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return masks[shared[query // size, key // size], query % size, key % size]

        return mask_of_all

    def mask_of_head(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return masks[table[head, query // size, key // size], query % size, key % size]

    return mask_of_head


class KernelOptions(NamedTuple):
    """FlexAttention's tile settings.

    Attributes:
        kernel: ``kernel_options``.
        search: "" for FlexAttention's choice, "max_autotune" to try several, "exhaustive" to try all.
    """

    kernel: dict[str, Any]
    search: str

    @classmethod
    def choose(cls, pattern: BlockPattern, dim: int, dtype: torch.dtype, *, trained: bool) -> KernelOptions:
        """Choose tiles: powers of two that divide a block.

        The forward pass accepts explicit tiles. The backward pass first checks its own choice, made for
        blocks of 128 (of 16 for float32), and then the explicit ones.
        """
        size = pattern.block_size
        tile = size & -size
        # The decoding kernel supports other block sizes.
        kernel: dict[str, Any] = {"FORCE_USE_FLEX_ATTENTION": True}
        if pattern.query_length % size or pattern.key_length % size:
            # FlexAttention assumes whole tiles if lengths are multiples of 128; blocks of 96 do not fill
            # these.
            kernel["IS_DIVISIBLE"] = False
        search = ""
        if trained and size < 128 and dtype != torch.float32:
            search = "max_autotune" if tile >= 32 else "exhaustive"
        if tile < 64 or (size < 128 and not search):
            rows = tile * dim * dtype.itemsize
            stages = min(3, max(1, (_SHARED_BYTES - rows) // (2 * rows)))
            kernel |= {"fwd_BLOCK_M": tile, "fwd_BLOCK_N": tile}
            kernel |= {"fwd_num_stages": stages, "fwd_num_warps": 4}
        return cls(kernel, search)


def _check_scores(shape: AttentionShape, trained: bool) -> None:
    """Raise ``ImplementationError`` unless FlexAttention supports this on a CPU."""
    if trained:
        raise ImplementationError(
            "impl='vendor' has no gradients on a CPU: use impl='reference', or torch.no_grad()"
        )
    scores = shape.batch * shape.heads * shape.query_length * shape.key_length
    if scores > MATERIALISED_SCORES:
        raise ImplementationError(
            f"impl='vendor' would hold {scores} scores at once on a CPU, more than {MATERIALISED_SCORES}:"
            " use impl='reference'"
        )


@cache
def compiled(device: str, search: str) -> Any:
    """Compile FlexAttention; on a CPU only trace it, because the compiled kernel there returns no lse."""
    settings: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    if device == "cpu":
        return torch.compile(_attend, backend="eager", **settings)
    if not search:
        return torch.compile(_attend, **settings)
    options: dict[str, Any] = {"max_autotune": True}
    if search == "exhaustive":
        options["max_autotune_flex_search_space"] = "EXHAUSTIVE"
    return torch.compile(_attend, options=options, **settings)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_mask: Any,
    scale: float,
    grouped: bool,
    kernel: dict[str, Any],
    score_mod: ScoreFunction | None = None,
) -> tuple[Tensor, Tensor]:
    """Return out and lse in either API version of torch."""
    from torch.nn.attention import flex_attention as library

    arguments: dict[str, Any] = {
        "score_mod": score_mod,
        "block_mask": block_mask,
        "scale": scale,
        "enable_gqa": grouped,
        "kernel_options": kernel,
    }
    if hasattr(library, "AuxRequest"):
        out, found = library.flex_attention(q, k, v, return_aux=library.AuxRequest(lse=True), **arguments)
        return out, found.lse
    out, lse = library.flex_attention(q, k, v, return_lse=True, **arguments)
    return out, lse
