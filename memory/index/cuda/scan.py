"""Scan of all codes: the rows of lowest distance, regardless of their cells."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.codes import BINS, DIRECTIONS, NEVER, WORDS, asked_levels, distances
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

_SLOTS_AT_ONCE = 1 << 16

SCAN_TOP: Op[()] = Op(
    "scan_top",
    __package__,
    by_triton(module=f"{__package__}.scan_triton"),
    by_torch(module=__name__),
    gradient=False,
)


def scan_top(
    codes: Tensor,
    coordinates: Tensor,
    count: int,
    *,
    dim: int,
    rows: Tensor | None = None,
    live: Tensor | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """Return the slots with the ``count`` lowest (distance, slot); a CUDA graph can capture it.

    Args:
        codes: (slots, 16) int32, see :func:`memory.index.cuda.codes.row_codes`.
        coordinates: (queries, 256) float16 of unit vectors along the directions of the codes.
        count: slots per query.
        dim: length of the vectors.
        rows: (slots,) int32 numbers to return for the slots; ``None``: the slots themselves.
        live: (slots,) bool; ``None``: all of them.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Returns:
        (queries, count) int32 in rising order of the slots; -1 fills missing ones.

    Raises:
        ValueError: shapes do not fit.
        TypeError: a wrong dtype.
    """
    if codes.dim() != 2 or codes.shape[1] != WORDS:
        raise ValueError(f"codes must be (slots, {WORDS}), got {tuple(codes.shape)}")
    if codes.dtype != torch.int32 or coordinates.dtype != torch.float16:
        raise TypeError(
            f"codes must be int32 and coordinates float16, got {codes.dtype} and {coordinates.dtype}"
        )
    if coordinates.dim() != 2 or coordinates.shape[1] != DIRECTIONS:
        raise ValueError(f"coordinates must be (queries, {DIRECTIONS}), got {tuple(coordinates.shape)}")
    if count < 1 or dim < 1:
        raise ValueError(f"count and dim must be at least 1, got {count} and {dim}")
    slots = len(codes)
    if live is not None and (live.shape != (slots,) or live.dtype != torch.bool):
        raise ValueError(f"live must be ({slots},) bool, got {tuple(live.shape)} {live.dtype}")
    if rows is not None and (rows.shape != (slots,) or rows.dtype != torch.int32):
        raise ValueError(f"rows must be ({slots},) int32, got {tuple(rows.shape)} {rows.dtype}")
    if slots == 0 or len(coordinates) == 0:
        return torch.full((len(coordinates), count), -1, dtype=torch.int32, device=codes.device)
    if SCAN_TOP.choose(impl, codes.device) == "triton":
        found: Tensor = SCAN_TOP.load("triton").scan_top(codes, coordinates, count, dim, rows, live)
        return found
    return _reference(codes, coordinates, count, dim, rows, live)


def _reference(
    codes: Tensor, coordinates: Tensor, count: int, dim: int, rows: Tensor | None, live: Tensor | None
) -> Tensor:
    slots, device = len(codes), codes.device
    asked = asked_levels(coordinates, dim)
    out = torch.full((len(coordinates), count), -1, dtype=torch.int32, device=device)
    number = torch.arange(slots, device=device)
    near = torch.cat(
        [distances(part, asked.levels, asked.base) for part in codes.split(_SLOTS_AT_ONCE)], dim=1
    )
    if live is not None:
        near = near.masked_fill(~live, NEVER)
    for query in range(len(coordinates)):
        keys = (near[query].to(torch.int64) << 32) | number
        best = keys.topk(min(count, slots), largest=False).values
        slot = (best[best >> 32 < BINS] & 0xFFFFFFFF).sort().values
        out[query, : len(slot)] = slot.to(torch.int32) if rows is None else rows[slot]
    return out
