"""Exact top-k peaks in Triton: two launches, all multiprocessors at work, nothing sorted.

Scores and positions make 64-bit keys that are all different, larger for what comes first. The first kernel
writes the peaks of blocks of the map side by side and the largest key of each block. A key below the largest
keys of k blocks is not among the k largest; the second kernel gives every other its rank by counting the
peaks above it, each block its own. Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.fast.head.layout import Peaks

__all__ = ["find_kernel", "peaks", "rank_kernel"]

#: Largest frame, in scores, that is cut into blocks of so many; the last serves all.
_BLOCKS = ((2**17, 128), (2**21, 512), (2**31, 1024))
_WIDEST_PART = 2048
#: Peaks of a block that are compared at a time, own ones and those of so many other blocks.
_DEEP, _OWN, _OTHERS = 16, 8, 128


@triton.jit
def find_kernel(
    heat, keys, maxima, counts, total, height, width, minimum, BLOCK: tl.constexpr, DEEP: tl.constexpr
):  # fmt: skip
    """Keys of a block's peaks side by side, how many, and the largest; 0 is the key of nothing."""
    block, frame = tl.program_id(0), tl.program_id(1)
    at = frame.to(tl.int64) * tl.num_programs(0) + block
    flat = block * BLOCK + tl.arange(0, BLOCK)
    inside = flat < total
    x = flat % width
    y = flat // width % height
    source = heat + frame.to(tl.int64) * total
    score = tl.load(source + flat, mask=inside, other=0.0)
    peak = (score > 0.0) & (score >= minimum)
    for tap in tl.static_range(9):
        if tap != 4:
            beside_y, beside_x = y + (tap // 3 - 1), x + (tap % 3 - 1)
            read = inside & (beside_y >= 0) & (beside_y < height) & (beside_x >= 0) & (beside_x < width)
            step = (tap // 3 - 1) * width + (tap % 3 - 1)
            # Not "<" and not: beside a NaN nothing is a peak, as in the maximum over the window.
            peak = peak & (score >= tl.load(source + flat + step, mask=read, other=0.0))
    # Positive floats rise as their bits do.
    bits = score.to(tl.int32, bitcast=True).to(tl.int64)
    key = tl.where(peak, (bits << 32) | (0x7FFFFFFF - flat).to(tl.int64), 0)
    rank = tl.cumsum(peak.to(tl.int32), 0)
    tl.store(keys + at * BLOCK + rank - 1, key, mask=peak)
    tl.store(maxima + at, tl.max(key, 0))
    tl.store(counts + at, tl.sum(peak.to(tl.int32), 0))
    # The first few are read without asking how many there are.
    lane = tl.arange(0, BLOCK)
    empty = (lane >= tl.sum(peak.to(tl.int32), 0)) & (lane < DEEP)
    tl.store(keys + at * BLOCK + lane, tl.zeros([BLOCK], tl.int64), mask=empty)


@triton.jit
def rank_kernel(
    keys,
    maxima,
    counts,
    scores,
    labels,
    cells,
    blocks,
    top_k,
    area,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
    DEEP: tl.constexpr,
    OWN: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Write a block's keys that are among the ``top_k`` to their ranks; block 0 fills what no key takes."""
    block, frame = tl.program_id(0), tl.program_id(1).to(tl.int64)
    maxima += frame * blocks
    counts += frame * blocks
    keys += frame * blocks * BLOCK
    largest = tl.load(maxima + block)
    count = tl.load(counts + block)
    above, found, deepest = 0, 0, 0
    for begin in range(0, blocks, PART):
        place = begin + tl.arange(0, PART)
        inside = place < blocks
        above += tl.sum((tl.load(maxima + place, mask=inside, other=0) > largest).to(tl.int32), 0)
        numbers = tl.load(counts + place, mask=inside, other=0)
        found += tl.sum(numbers, 0)
        deepest = tl.maximum(deepest, tl.max(numbers, 0))
    out = frame * top_k
    if block == 0:
        for begin in range(0, top_k, PART):
            row = begin + tl.arange(0, PART)
            absent = (row >= found) & (row < top_k)
            tl.store(scores + out + row, tl.zeros([PART], tl.float32), mask=absent)
            tl.store(labels + out + row, tl.full([PART], -1, tl.int32), mask=absent)
            tl.store(cells + out + row, tl.zeros([PART], tl.int32), mask=absent)
    if (count > 0) & (above < top_k):
        other_block = tl.arange(0, OTHERS * DEEP) // DEEP
        deep = tl.arange(0, OTHERS * DEEP) % DEEP
        for begin in range(0, count, OWN):
            row = begin + tl.arange(0, OWN)
            mine = tl.load(keys + block * BLOCK + row, mask=row < count, other=0)
            rank = tl.zeros([OWN], tl.int32)
            for start in range(0, blocks, OTHERS):
                near = start + other_block
                first = tl.load(keys + near * BLOCK + deep, mask=near < blocks, other=0)
                rank += tl.sum((first[None, :] > mine[:, None]).to(tl.int32), 1)
                for depth in range(DEEP, deepest, DEEP):
                    number = tl.load(counts + near, mask=near < blocks, other=0)
                    further = tl.load(keys + near * BLOCK + depth + deep, mask=depth + deep < number, other=0)
                    rank += tl.sum((further[None, :] > mine[:, None]).to(tl.int32), 1)
            taken = (row < count) & (rank < top_k)
            place = 0x7FFFFFFF - (mine & 0x7FFFFFFF).to(tl.int32)
            tl.store(scores + out + rank, (mine >> 32).to(tl.int32).to(tl.float32, bitcast=True), mask=taken)
            tl.store(labels + out + rank, place // area, mask=taken)
            tl.store(cells + out + rank, place % area, mask=taken)


def peaks(heat: Tensor, top_k: int, minimum: float) -> Peaks:
    """See :func:`perception.fast.head.fixed_peaks`."""
    heat = heat.contiguous()
    frames, classes, rows, columns = heat.shape
    total = classes * rows * columns
    block = next(size for most, size in _BLOCKS if total <= most)
    blocks = triton.cdiv(total, block)
    device = heat.device
    keys = torch.empty(frames * blocks * block, dtype=torch.int64, device=device)
    maxima = torch.empty(frames * blocks, dtype=torch.int64, device=device)
    counts = torch.empty(frames * blocks, dtype=torch.int32, device=device)
    scores = torch.empty((frames, top_k), dtype=torch.float32, device=device)
    labels, cells = torch.empty((2, frames, top_k), dtype=torch.int32, device=device)
    grid = (blocks, frames)
    find_kernel[grid](
        heat,
        keys,
        maxima,
        counts,
        total,
        rows,
        columns,
        minimum,
        BLOCK=block,
        DEEP=min(_DEEP, block),
        num_warps=max(1, block // 128),
    )
    rank_kernel[grid](
        keys,
        maxima,
        counts,
        scores,
        labels,
        cells,
        blocks,
        top_k,
        rows * columns,
        BLOCK=block,
        PART=min(_WIDEST_PART, max(128, triton.next_power_of_2(blocks))),
        DEEP=min(_DEEP, block),
        OWN=_OWN,
        OTHERS=_OTHERS,
        num_warps=4,
    )
    return Peaks(scores, labels, cells)
