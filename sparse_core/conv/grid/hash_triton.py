"""Grids of any size in Triton: a hash table instead of a bit per cell.

Open addressing with linear probing, at most half full. The first input that takes a slot for its key writes
the key to its own place of a list; other places stay empty, and the list is sorted. Rows are ranks of keys,
independent of the insertion order. Runs on CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.conv.coordinates.common import MARGIN
from sparse_core.conv.coordinates.triton import first_slot
from sparse_core.conv.grid.layout import FixedHash, GridLevel
from sparse_core.kernels.launches import launch as _launch

_BLOCK = 128
_MARGIN = tl.constexpr(MARGIN)
#: Sorts behind every key.
_LAST = tl.constexpr(2**63 - 1)


@triton.jit
def row_of_hash(slots, values, key, inside, mask):
    """Row of each key of a :class:`~sparse_core.conv.grid.FixedHash`.

    Args:
        slots, values: pointers to the hash's ``slots`` and ``values``.
        key: int64 keys of any shape, see :func:`key_of`.
        inside: which of them to look up.
        mask: slots of the table less one.

    Returns:
        int32 of the shape of ``key``: -1 where not inside, not active or beyond the capacity.
    """
    active = inside
    slot = first_slot(key, mask)
    row = tl.where(active, -1, -1)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        found = tl.load(slots + slot, mask=active, other=-1)
        row = tl.where(active & (found == key), tl.load(values + slot, mask=active, other=-1), row)
        active = active & (found != key) & (found != -1)
        slot = (slot + 1) & mask
    return row


@triton.jit
def key_of(batch, z, y, x, DEPTH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Linear keys, int64, of coordinates of a grid; a size of 0 is an axis that the grid lacks."""
    key = batch.to(tl.int64)
    if DEPTH > 0:
        key = key * (DEPTH + 2 * _MARGIN) + (z + _MARGIN)
    if HEIGHT > 0:
        key = key * (HEIGHT + 2 * _MARGIN) + (y + _MARGIN)
    return key * (WIDTH + 2 * _MARGIN) + (x + _MARGIN)


@triton.jit
def place_of(key, DEPTH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Inverse of :func:`key_of`: int32 ``batch, z, y, x``, with 0 on an axis that the grid lacks."""
    x = (key % (WIDTH + 2 * _MARGIN)).to(tl.int32) - _MARGIN
    key = key // (WIDTH + 2 * _MARGIN)
    y = tl.zeros_like(x)
    z = tl.zeros_like(x)
    if HEIGHT > 0:
        y = (key % (HEIGHT + 2 * _MARGIN)).to(tl.int32) - _MARGIN
        key = key // (HEIGHT + 2 * _MARGIN)
    if DEPTH > 0:
        z = (key % (DEPTH + 2 * _MARGIN)).to(tl.int32) - _MARGIN
        key = key // (DEPTH + 2 * _MARGIN)
    return key.to(tl.int32), z, y, x


@triton.jit
def _insert_kernel(keys, slots, firsts, count, mask, BLOCK: tl.constexpr):
    """Claim a slot for each key; slot ``mask + 1`` is a dummy that finished lanes poke in vain."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + lane, mask=lane < count, other=-1)
    active = key >= 0
    first = tl.full([BLOCK], _LAST, tl.int64)
    slot = first_slot(key, mask)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        target = tl.where(active, slot, mask + 1)
        # -2 is never stored, so the exchange of a finished lane cannot succeed.
        expected = tl.where(active, tl.full([BLOCK], -1, tl.int64), tl.full([BLOCK], -2, tl.int64))
        found = tl.atomic_cas(slots + target, expected, key)
        first = tl.where(active & (found == -1), key, first)
        active = active & (found != -1) & (found != key)
        slot = (slot + 1) & mask
    tl.store(firsts + lane, first, mask=lane < count)


@triton.jit
def _number_kernel(distinct, slots, values, keys, totals, count, capacity, mask, BLOCK: tl.constexpr):
    """Give sorted keys their rows, and count them: only the lane of the last one writes the totals."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(distinct + lane, mask=lane < count, other=_LAST)
    after = tl.load(distinct + lane + 1, mask=lane + 1 < count, other=_LAST)
    active = key != _LAST
    tl.store(keys + lane, tl.where(active, key, -1), mask=lane < capacity)
    ends = active & (after == _LAST)
    empty = (lane == 0) & (key == _LAST)
    number = tl.where(active, lane + 1, 0)
    zero = tl.zeros([BLOCK], tl.int32)
    tl.store(totals + zero, tl.minimum(number, capacity), mask=ends | empty)
    tl.store(totals + 1 + zero, number, mask=ends | empty)
    slot = first_slot(key, mask)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        found = tl.load(slots + slot, mask=active, other=-1)
        hit = active & (found == key)
        tl.store(values + slot, tl.where(lane < capacity, lane, -1), mask=hit)
        active = active & (found != key)
        slot = (slot + 1) & mask


@triton.jit
def _strided_kernel(
    keys, reached, capacity,
    SOURCE_DEPTH: tl.constexpr, SOURCE_HEIGHT: tl.constexpr, SOURCE_WIDTH: tl.constexpr,
    DEPTH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr,
    STEP_Z: tl.constexpr, STEP_Y: tl.constexpr, STEP_X: tl.constexpr,
    PAD_Z: tl.constexpr, PAD_Y: tl.constexpr, PAD_X: tl.constexpr,
    DILATING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Key of the output that reads each key through one tap, or -1; without dilation the cell around it."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tap = tl.program_id(1)
    key = tl.load(keys + lane, mask=lane < capacity, other=-1)
    inside = key >= 0
    batch, z, y, x = place_of(key, SOURCE_DEPTH, SOURCE_HEIGHT, SOURCE_WIDTH)
    if DILATING:
        x += PAD_X - tap % KERNEL_X
        y += PAD_Y - tap // KERNEL_X % KERNEL_Y
        z += PAD_Z - tap // (KERNEL_X * KERNEL_Y)
        inside &= (x >= 0) & (y >= 0) & (z >= 0)
        inside &= (x % STEP_X == 0) & (y % STEP_Y == 0) & (z % STEP_Z == 0)
        inside &= (x // STEP_X < WIDTH) & (y // STEP_Y < tl.maximum(HEIGHT, 1))
        inside &= z // STEP_Z < tl.maximum(DEPTH, 1)
    x = tl.minimum(x // STEP_X, WIDTH - 1)
    y = tl.minimum(y // STEP_Y, tl.maximum(HEIGHT, 1) - 1)
    z = tl.minimum(z // STEP_Z, tl.maximum(DEPTH, 1) - 1)
    found = tl.where(inside, key_of(batch, z, y, x, DEPTH, HEIGHT, WIDTH), -1)
    tl.store(reached + tl.cast(tap, tl.int64) * capacity + lane, found, mask=lane < capacity)


def hash_from_keys(keys: Tensor, spatial_shape: tuple[int, ...], batch_size: int, capacity: int) -> FixedHash:
    """Give rows to the distinct keys of (N,) int64; negative keys are ignored."""
    count, device = len(keys), keys.device
    size = 1 << max(5, (2 * count - 1).bit_length() if count else 0)
    slots = torch.full((size + 1,), -1, dtype=torch.int64, device=device)
    firsts = torch.empty(count, dtype=torch.int64, device=device)
    if count:
        _launch(
            _insert_kernel, triton.cdiv(count, _BLOCK), keys.contiguous(), slots, firsts, count, size - 1,
            BLOCK=_BLOCK,
        )  # fmt: skip
    distinct = torch.sort(firsts).values
    values = torch.empty(size, dtype=torch.int32, device=device)
    kept = torch.empty(capacity, dtype=torch.int64, device=device)
    totals = torch.empty(2, dtype=torch.int32, device=device)
    _launch(
        _number_kernel, triton.cdiv(max(count, capacity), _BLOCK), distinct, slots, values, kept, totals,
        count, capacity, size - 1, BLOCK=_BLOCK,
    )  # fmt: skip
    return FixedHash(spatial_shape, batch_size, capacity, kept, slots[:size], values, totals[:1], totals[1:])


def strided_keys(inputs: FixedHash, level: GridLevel, out_shape: tuple[int, ...]) -> Tensor:
    """Return keys of the outputs that a strided convolution reaches, with repeats; -1 for none."""
    kernel = (1, 1, *level.kernel_size)[-3:]
    taps = kernel[0] * kernel[1] * kernel[2] if level.dilating else 1
    reached = torch.empty(taps * inputs.capacity, dtype=torch.int64, device=inputs.keys.device)
    _launch(
        _strided_kernel, (triton.cdiv(inputs.capacity, _BLOCK), taps), inputs.keys, reached, inputs.capacity,
        *(0, 0, *inputs.spatial_shape)[-3:], *(0, 0, *out_shape)[-3:], *kernel[1:],
        *(1, 1, *level.stride)[-3:], *(0, 0, *level.padding)[-3:], level.dilating, BLOCK=_BLOCK,
    )  # fmt: skip
    return reached
