"""Hash table in Triton: open addressing with linear probing, at most half full.

Races of insertion only decide the slot of a key. Rows are ranks of the sorted keys and do not depend on
slots. Runs on CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Marks a free slot; keys are not negative.
_FREE = -1
_BLOCK = 256


@triton.jit
def first_slot(key, mask):  # type: ignore[no-untyped-def]
    """Fibonacci hashing: the high bits of a product spread runs of neighbouring keys."""
    mixed = key * 0x9E3779B97F4A7C1
    return (mixed ^ (mixed >> 32)) & mask


@triton.jit
def _insert_kernel(keys, slots, count, mask, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Claim a slot for each key; slot ``mask + 1`` is a dummy that finished lanes poke in vain."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + lane, mask=lane < count, other=-1)
    active = lane < count
    slot = first_slot(key, mask)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        target = tl.where(active, slot, mask + 1)
        # -2 is never stored, so the exchange of a finished lane cannot succeed.
        expected = tl.where(active, tl.full(slot.shape, -1, tl.int64), tl.full(slot.shape, -2, tl.int64))
        found = tl.atomic_cas(slots + target, expected, key)
        active = active & (found != -1) & (found != key)
        slot = tl.where(active, (slot + 1) & mask, slot)


@triton.jit
def _lookup_kernel(keys, slots, values, rows, count, mask, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Probe until the key or a free slot turns up; a table at most half full always has a free slot."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count
    key = tl.load(keys + lane, mask=inside, other=-1)
    active = inside & (key >= 0)
    slot = first_slot(key, mask)
    row = tl.full(slot.shape, -1, tl.int64)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        found = tl.load(slots + slot, mask=active, other=-1)
        hit = active & (found == key)
        row = tl.where(hit, tl.load(values + slot, mask=hit, other=-1), row)
        active = active & (found != key) & (found != -1)
        slot = tl.where(active, (slot + 1) & mask, slot)
    tl.store(rows + lane, row, mask=inside)


def unique_rows(keys: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return distinct keys in ascending order, the row of each key, and the table for look-ups.

    Args:
        keys: (N,) int64, not negative, N at least 1.

    Returns:
        (M,) int64 sorted keys; (N,) int64 rows; (slots, values) of the table.
    """
    keys = keys.contiguous()
    size = 1 << max(5, (2 * len(keys) - 1).bit_length())
    slots = torch.full((size + 1,), _FREE, dtype=torch.int64, device=keys.device)
    _launch(_insert_kernel, len(keys), keys, slots, len(keys), size - 1)
    taken = (slots[:size] != _FREE).nonzero()[:, 0]
    unique, order = torch.sort(slots[taken])
    values = torch.full_like(slots, -1)
    values[taken[order]] = torch.arange(len(unique), device=keys.device)
    return unique, lookup((slots, values), keys), (slots, values)


def lookup(table: tuple[Tensor, Tensor], queries: Tensor) -> Tensor:
    """Return rows of query keys of any shape; -1 if missing or negative."""
    slots, values = table
    flat = queries.reshape(-1).contiguous()
    rows = torch.empty_like(flat)
    if len(flat):
        _launch(_lookup_kernel, len(flat), flat, slots, values, rows, len(flat), len(slots) - 2)
    return rows.view(queries.shape)


def _launch(kernel: Any, count: int, *arguments: Any) -> None:
    kernel[(triton.cdiv(count, _BLOCK),)](*arguments, BLOCK=_BLOCK)
