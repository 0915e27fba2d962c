"""Importance of each block of attention for the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import CHUNK_SCORES
from sparse_core.attention.operands import (
    AttentionShape,
    arithmetic_dtype,
    check_operands,
    check_pattern,
    check_ragged,
    default_scale,
)
from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

Measure = Literal["score", "weight"]


@torch.no_grad()
def block_importance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    grad_out: Tensor,
    lse: Tensor | None = None,
    *,
    block_size: int = 64,
    scale: float | None = None,
    pattern: BlockPattern | None = None,
    allowed: BlockPattern | None = None,
    key_lengths: Tensor | None = None,
    measure: Measure = "score",
) -> Tensor:
    """Return the sum of ``|s * dL/ds|`` over the pairs of each block, with ``s`` the scaled scores.

    This is a first-order estimate of the change of the loss L without the block (Michel et al. 2019, "Are
    sixteen heads really better than one?", for heads; Molchanov et al. 2017 for filters). With ``p`` the
    softmax weights, ``dL/ds = p * (dL/dp - sum of out * dL/dout)``, and ``dL/dp`` is the product of
    ``dL/dout`` and a value. Pairs outside ``pattern`` have no weight. They count with the weight that each
    would have alone, ``exp(s) / (exp(s) + exp(lse))``, so that their blocks can return.

    It computes every pair, a few block rows at a time: about the work of a dense backward pass, with bounded
    memory. It ignores dropout and never waits for the device.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        v: like k.
        out: result of the attention, like q.
        grad_out: gradient of the loss with respect to ``out``, like q.
        lse: (batch, heads, query_length) of the attention; computed when not given.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        scale: of the scores; 1 / sqrt(dim) by default.
        pattern: of the attention; all of ``allowed`` by default.
        allowed: pairs that count; all by default.
        key_lengths: (batch,) int32 or int64, true lengths of keys padded at the end, which do not count. For
            padded queries ``grad_out`` must be zero.
        measure: ``"score"`` as above, ``"weight"`` for ``|p * dL/dp|``.

    Returns:
        (heads, block rows, block columns) float32 (float64 for float64), summed over the batch.

    Raises:
        TypeError: dtypes do not match, or a pattern is not a BlockPattern.
        ValueError: shapes, lengths, block sizes or devices do not match, or the measure is unknown.
    """
    shape = check_operands(q, k, v)
    check_measure(measure)
    for name, tensor, expected in (
        ("out", out, q.shape),
        ("grad_out", grad_out, q.shape),
        ("lse", lse, q.shape[:3]),
    ):
        if tensor is not None and (tensor.shape != expected or tensor.device != q.device):
            raise ValueError(
                f"{name} must have shape {tuple(expected)} on {q.device}, got {tuple(tensor.shape)} on"
                f" {tensor.device}"
            )
    grid = BlockGrid(shape.heads, shape.query_length, shape.key_length, block_size)
    grid.check()
    for name, value in (("pattern", pattern), ("allowed", allowed)):
        if value is not None:
            check_pattern(value, shape, q.device)
            if value.block_size != block_size:
                raise ValueError(f"{name} has blocks of {value.block_size} but block_size is {block_size}")
    operands = _ImportanceOperands(
        q,
        k,
        v,
        out,
        grad_out,
        lse,
        default_scale(scale, shape.dim),
        _Tokens.of(pattern),
        _Tokens.of(allowed),
        check_ragged(key_lengths, shape.batch, shape.key_length, q.device, name="key_lengths"),
    )
    dtype = arithmetic_dtype(q.dtype)
    found = torch.zeros((shape.heads, grid.rows, grid.columns), dtype=dtype, device=q.device)
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(shape, grid, CHUNK_SCORES["cuda" if q.is_cuda else "cpu"]):
            effects = _pair_effects(operands, part, shape.group, block_size, measure).abs()
            effects = _block_sums(effects, block_size)
            found[part.head * shape.group : part.last_head * shape.group, part.row : part.last_row] += effects
    return found


def check_measure(measure: str) -> None:
    """Raise ``ValueError`` for an unknown measure."""
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be one of {', '.join(get_args(Measure))}; got {measure!r}")


class _Tokens(NamedTuple):
    """A pattern as a table, for fast reads of the pairs of a few block rows."""

    number: Tensor  # (heads, block rows, block columns) int64 index of a mask
    masks: Tensor  # (masks, block_size, block_size) bool

    @classmethod
    def of(cls, pattern: BlockPattern | None) -> _Tokens | None:
        if pattern is None:
            return None
        tokens = pattern.plans.get(("pruning",))
        if isinstance(tokens, cls):
            return tokens
        size = pattern.block_size
        two = torch.zeros((2, size, size), dtype=torch.bool, device=pattern.device)
        two[1] = True
        sizes = (pattern.heads, pattern.block_rows, pattern.block_columns)
        number = torch.zeros(sizes, dtype=torch.long, device=pattern.device)
        number[pattern.coordinates()] = torch.where(pattern.partial == FULL, 1, pattern.partial.long() + 2)
        found = pattern.plans[("pruning",)] = cls(number, torch.cat([two, pattern.token_masks]))
        return found

    def pairs(self, part: _RowPart, group: int, queries: int, keys: int) -> Tensor:
        """Return bool (key heads or 1, group or 1, queries, keys)."""
        number = self.number[:, part.row : part.last_row]
        if len(number) > 1:
            number = number[part.head * group : part.last_head * group]
        heads, rows, columns = number.shape
        size = self.masks.shape[1]
        blocks = self.masks[number].transpose(2, 3)
        tokens = blocks.reshape(heads, rows * size, columns * size)[:, :queries, :keys]
        return tokens[None] if heads == 1 and len(self.number) == 1 else tokens.unflatten(0, (-1, group))


class _ImportanceOperands(NamedTuple):
    """Inputs of the measurement; ``pattern`` and ``allowed`` are None if all pairs count."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    grad_out: Tensor
    lse: Tensor | None
    scale: float
    pattern: _Tokens | None
    allowed: _Tokens | None
    key_lengths: Tensor | None  # (batch,)


class _RowPart(NamedTuple):
    """A range of batch entries, key heads and block rows."""

    entry: int
    last_entry: int
    head: int
    last_head: int
    row: int
    last_row: int


def _parts(shape: AttentionShape, grid: BlockGrid, scores: int) -> Iterator[_RowPart]:
    """Yield ranges with at most ``scores`` scores, or the smallest possible ones."""
    row_scores = shape.group * grid.block_size * shape.key_length
    heads = min(shape.key_heads, max(1, scores // row_scores))
    entries = min(max(1, shape.batch), max(1, scores // (row_scores * heads)))
    rows = min(grid.rows, max(1, scores // (row_scores * heads * entries)))
    for entry in range(0, shape.batch, entries):
        for head in range(0, shape.key_heads, heads):
            for row in range(0, grid.rows, rows):
                yield _RowPart(
                    entry,
                    min(entry + entries, shape.batch),
                    head,
                    min(head + heads, shape.key_heads),
                    row,
                    min(row + rows, grid.rows),
                )


def _pair_effects(
    operands: _ImportanceOperands, part: _RowPart, group: int, size: int, measure: Measure
) -> Tensor:
    """Return the effect of each pair, (entries, key heads, group, queries, keys); zero if not allowed."""
    queries = slice(part.row * size, part.last_row * size)
    entries = slice(part.entry, part.last_entry)
    heads = slice(part.head * group, part.last_head * group)
    dtype = arithmetic_dtype(operands.q.dtype)

    def of_queries(rows: Tensor) -> Tensor:
        chosen = rows[entries, heads, queries].to(dtype)
        return chosen.reshape(len(chosen), -1, group, *chosen.shape[2:])

    def of_keys(rows: Tensor) -> Tensor:
        return rows[entries, part.head : part.last_head, None].to(dtype)

    scores = of_queries(operands.q) * operands.scale @ of_keys(operands.k).mT
    grad_out = of_queries(operands.grad_out)
    grad = grad_out @ of_keys(operands.v).mT
    lengths = scores.shape[-2:]
    allowed = operands.allowed.pairs(part, group, *lengths) if operands.allowed else None
    present = operands.pattern.pairs(part, group, *lengths) if operands.pattern else allowed
    if operands.key_lengths is not None:
        place = torch.arange(lengths[1], device=scores.device)
        exists = (place < operands.key_lengths[entries, None])[:, None, None, None, :]
        allowed, present = (exists if pairs is None else exists & pairs for pairs in (allowed, present))
    if operands.lse is not None:
        lse = of_queries(operands.lse)[..., None]
    else:
        seen = scores if present is None else scores.masked_fill(~present, float("-inf"))
        lse = seen.logsumexp(dim=-1, keepdim=True)
    weights = torch.exp(scores - lse)
    if present is not None:
        weights = torch.where(present, weights, torch.sigmoid(scores - lse))
    if measure == "score":
        grad = scores * (grad - (grad_out * of_queries(operands.out)).sum(dim=-1, keepdim=True))
    effects: Tensor = weights * grad
    if allowed is not None:
        effects = effects.masked_fill(~allowed, 0.0)
    return effects


def _block_sums(effects: Tensor, size: int) -> Tensor:
    """Sum (entries, key heads, group, queries, keys) to (heads, block rows, block columns)."""
    queries, keys = effects.shape[-2:]
    padded = torch.nn.functional.pad(effects, (0, -keys % size, 0, -queries % size))
    sums: Tensor = padded.unflatten(4, (-1, size)).unflatten(3, (-1, size)).sum(dim=(0, 4, 6))
    return sums.flatten(0, 1)
