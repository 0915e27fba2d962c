"""Exact top-k peaks in Triton: two launches on all multiprocessors, without sorting.

A 64-bit key joins score and position, so all keys differ, and better peaks have larger keys. The first kernel
lists the keys of all peaks, in any order. The second finds each rank by counting the larger keys. Runs
on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.stages.head.types import Peaks
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch

#: Most scores of a frame, and its block size; the last entry holds for all larger frames.
_BLOCKS = ((2**17, 128), (2**21, 512), (2**31, 1024))
#: Keys that a program ranks per step, and keys that it compares them with per step. Short code is faster,
#: because the kernel runs once per frame and its instructions are never cached.
_OWN, _OTHERS = 8, 256
_PROGRAMS = 128
#: With more peaks, the kernel first excludes peaks that cannot be among the largest.
_MANY = 2048


@triton.jit
def find_kernel(
    heat, keys, maxima, counters, total, height, width, minimum, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """List the keys of a block's peaks behind what other blocks listed; the largest, 0 if there is none."""
    wait_for_launch(DEPENDENT)
    block, frame = tl.program_id(0), tl.program_id(1)
    start = frame.to(tl.int64) * total
    flat = block * BLOCK + tl.arange(0, BLOCK)
    inside = flat < total
    x = flat % width
    y = flat // width % height
    source = heat + start
    score = tl.load(source + flat, mask=inside, other=0.0)
    least = tl.load(minimum + flat // (width * height), mask=inside, other=0.0)
    peak = (score > 0.0) & (score >= least)
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
    number = tl.sum(peak.to(tl.int32), 0)
    begin_next(DEPENDENT)
    if number > 0:
        place = tl.atomic_add(counters + 2 * frame, number, sem="relaxed") - 1
        place += tl.cumsum(peak.to(tl.int32), 0)
        tl.store(keys + start + place, key, mask=peak)
    tl.store(maxima + frame * tl.num_programs(0) + block, tl.max(key, 0))


@triton.jit
def rank_kernel(
    keys,
    maxima,
    counters,
    scores,
    labels,
    cells,
    total,
    blocks,
    top_k,
    area,
    OWN: tl.constexpr,
    OTHERS: tl.constexpr,
    MANY: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Write the keys that are among the ``top_k`` to their ranks; the counters become zero again."""
    wait_for_launch(DEPENDENT)
    program, frame = tl.program_id(0), tl.program_id(1)
    programs = tl.num_programs(0)
    found = tl.load(counters + 2 * frame)
    keys += frame.to(tl.int64) * total
    maxima += frame * blocks
    out = frame * top_k
    other = tl.arange(0, OTHERS)
    if program == 0:
        for begin in range(0, top_k, OTHERS):
            row = begin + other
            absent = (row >= found) & (row < top_k)
            tl.store(scores + out + row, tl.zeros([OTHERS], tl.float32), mask=absent)
            tl.store(labels + out + row, tl.full([OTHERS], -1, tl.int32), mask=absent)
            tl.store(cells + out + row, tl.zeros([OTHERS], tl.int32), mask=absent)
    for begin in range(program * OWN, found, programs * OWN):
        row = begin + tl.arange(0, OWN)
        mine = tl.load(keys + row, mask=row < found, other=0)
        rank = tl.zeros([OWN], tl.int32)
        least = 0
        if found > MANY:
            # A key below the largest keys of k blocks is not among the k largest.
            above = tl.zeros([OWN], tl.int32)
            for start in range(0, blocks, OTHERS):
                largest = tl.load(maxima + start + other, mask=start + other < blocks, other=0)
                above += tl.sum((largest[None, :] > mine[:, None]).to(tl.int32), 1)
            least = tl.min(above, 0)
        if least < top_k:
            for start in range(0, found, OTHERS):
                beside = tl.load(keys + start + other, mask=start + other < found, other=0)
                rank += tl.sum((beside[None, :] > mine[:, None]).to(tl.int32), 1)
            taken = (row < found) & (rank < top_k)
            place = 0x7FFFFFFF - (mine & 0x7FFFFFFF).to(tl.int32)
            tl.store(scores + out + rank, (mine >> 32).to(tl.int32).to(tl.float32, bitcast=True), mask=taken)
            tl.store(labels + out + rank, place // area, mask=taken)
            tl.store(cells + out + rank, place % area, mask=taken)
    begin_next(DEPENDENT)
    # The last program to come here knows that all have read the counter.
    if tl.atomic_add(counters + 2 * frame + 1, 1, sem="acq_rel") == programs - 1:
        tl.store(counters + 2 * frame, 0)
        tl.store(counters + 2 * frame + 1, 0)


def peaks(heat: Tensor, top_k: int, minimum: Tensor, counters: Tensor | None) -> Peaks:
    """See :func:`perception.stages.head.fixed_peaks`."""
    heat = heat.contiguous()
    frames, classes, rows, columns = heat.shape
    total = classes * rows * columns
    block = next(size for most, size in _BLOCKS if total <= most)
    blocks = triton.cdiv(total, block)
    device = heat.device
    if counters is None:
        counters = torch.zeros((frames, 2), dtype=torch.int32, device=device)
    keys = torch.empty(frames * total, dtype=torch.int64, device=device)
    maxima = torch.empty(frames * blocks, dtype=torch.int64, device=device)
    scores = torch.empty((frames, top_k), dtype=torch.float32, device=device)
    labels, cells = torch.empty((2, frames, top_k), dtype=torch.int32, device=device)
    find_kernel[blocks, frames](
        heat,
        keys,
        maxima,
        counters,
        total,
        rows,
        columns,
        minimum,
        BLOCK=block,
        num_warps=max(1, block // 128),
        **dependent(heat),
    )
    rank_kernel[min(_PROGRAMS, triton.cdiv(total, _OWN)), frames](
        keys,
        maxima,
        counters,
        scores,
        labels,
        cells,
        total,
        blocks,
        top_k,
        rows * columns,
        OWN=_OWN,
        OTHERS=_OTHERS,
        MANY=_MANY,
        num_warps=4,
        **dependent(keys),
    )
    return Peaks(scores, labels, cells)
