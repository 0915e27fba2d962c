"""Rows of all levels of a pyramid in two launches.

Every level is read from the bits of an earlier one, three levels at a time, because a window of windows is a
window. With kernels of 3, strides of 2 and paddings of 1, the third level's cell ``y`` is active if any of
``8y - 7 .. 8y + 7`` is. The first kernel works on words: it joins lines under the window by OR, then
neighbouring bits, and keeps every second bit. It also counts the ones of each block of words. The second
kernel sums the counts of the blocks before its own and writes rows and cells, for all levels at once. Runs on
CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
from torch import Tensor

from sparse_core.conv.grid.layout import WORD, FixedGrid, GridLevel, carve, padded_width, word_count
from sparse_core.conv.grid.levels_triton import bits_kernel, rows_kernel, window_kernel
from sparse_core.kernels.launches import dependent
from sparse_core.kernels.launches import launch as _launch

#: (limit of words of the first level, words per program, warps). Every program sums the counts of all blocks,
#: so
#: blocks grow with the grid. Lower levels use smaller blocks, because their words read more.
_BLOCKS = ((1 << 17, 64, 4), (1 << 19, 256, 8), (1 << 31, 512, 16))
_SMALLEST_BLOCK = 32
#: Counts summed, and cells cleared, at a time.
_CHUNK = 1024
#: Levels read from the bits of one; each further level would double the unrolled lines of the window.
_REACH = 3

#: A level that a launch writes: its number, its stride, and the cells of its window before its own.
_Target = tuple[int, int, int]


def pyramid(
    bits: Tensor,
    shapes: Sequence[tuple[int, ...]],
    batch_size: int,
    capacities: Sequence[int],
    levels: Sequence[GridLevel],
) -> list[FixedGrid]:
    """Make the grids of all levels, see :func:`sparse_core.conv.grid.pyramid`, from the shape of each."""
    sizes = [word_count(shape, batch_size) for shape in shapes]
    block, warps = next((block, warps) for limit, block, warps in _BLOCKS if sizes[0] < limit)
    widths = [max(_SMALLEST_BLOCK, block >> level) for level in range(len(sizes))]
    blocks = [triton.cdiv(size, width) for size, width in zip(sizes, widths, strict=True)]
    firsts = [sum(blocks[:level]) for level in range(len(blocks))]
    parts = carve(bits.device, [*(2 * size for size in sizes), *capacities, 2 * len(sizes), sum(blocks)])
    words, cells = tuple(parts[: len(sizes)]), tuple(parts[len(sizes) : -2])
    totals, counts = parts[-2:]

    bits = bits.contiguous()
    for base, group in _groups(shapes, levels):
        source, stride = (words[base], 2) if base else (bits, 1)
        if group is None:
            _launch_window(
                source, stride, words[base + 1], counts[firsts[base + 1] :],
                shapes[base : base + 2], sizes[base + 1], levels[base], widths[base + 1],
            )  # fmt: skip
            continue
        targets, geometry, programs = [], [], 0
        for target, strides, before in group:
            fields = level_fields(shapes[base], shapes[target], strides, before, stride)
            geometry += [programs, sizes[target], firsts[target], *fields, widths[target]]
            programs += blocks[target]
            targets.append(target)
        _launch(
            bits_kernel, programs, (source,) * len(targets), tuple(words[target] for target in targets),
            counts, tuple(geometry), len(targets), num_warps=warps, **dependent(counts),
        )  # fmt: skip
    _launch(
        rows_kernel, sum(blocks), bits, words, cells, totals, counts, tuple(capacities),
        tuple(number for level in zip(firsts, sizes, widths, strict=True) for number in level),
        len(sizes), CHUNK=_CHUNK, num_warps=warps, **dependent(counts),
    )  # fmt: skip
    return [
        FixedGrid(
            shape,
            batch_size,
            capacities[level],
            words[level].view(-1, 2),
            cells[level],
            totals[2 * level : 2 * level + 1],
            totals[2 * level + 1 : 2 * level + 2],
        )
        for level, shape in enumerate(shapes)
    ]


def _groups(
    shapes: Sequence[tuple[int, ...]], levels: Sequence[GridLevel]
) -> list[tuple[int, list[_Target] | None]]:
    """Return the launches: the level to read, and the levels to write as (level, stride, cells before).

    The first level is only counted, in the first launch. None stands for one level of another kind.
    """
    groups: list[tuple[int, list[_Target] | None]] = [(0, [(0, 1, 0)])]
    reached = True
    for target, level in enumerate(levels, start=1):
        dimensions = len(level.stride)
        fast = (level.kernel_size, level.stride, level.padding) == tuple(
            (size,) * dimensions for size in (3, 2, 1)
        )
        group = groups[-1][1]
        if not fast:
            groups.append((target - 1, None))
            reached = False
            continue
        if not reached or group is None or group[-1][1] == 1 << _REACH:
            group = []
            groups.append((target - 1, group))
            reached = True
        stride, before = group[-1][1:] if group else (1, 0)
        group.append((target, 2 * stride, before + stride * level.dilating))
    return groups


def level_fields(
    source: tuple[int, ...], target: tuple[int, ...], stride: int, before: int, source_stride: int
) -> list[int]:
    """Return sizes of both grids and the window along each axis, as constants of the kernel."""
    depth, height, width = (1, 1, *target)[-3:]
    source_depth, source_height, source_width = (1, 1, *source)[-3:]
    window_y = (stride, before) if len(target) > 1 else (1, 0)
    window_z = (stride, before) if len(target) > 2 else (1, 0)
    tail = sum(1 << bit for bit in range(WORD) if bit % stride >= stride - before)
    top = sum(1 << bit for bit in range(WORD - before, WORD))
    return [
        padded_width(width) // WORD, width, height, depth,
        source_stride, padded_width(source_width) // WORD, source_height, source_depth,
        stride, before, *window_y, *window_z,
        *(mask - 2**32 if mask >= 2**31 else mask for mask in (tail, top)),
    ]  # fmt: skip


def _launch_window(
    source: Tensor,
    source_stride: int,
    words: Tensor,
    counts: Tensor,
    shapes: Sequence[tuple[int, ...]],
    size: int,
    level: GridLevel,
    block: int,
) -> None:
    """Compute the bits of one level of any kind from those of the level before."""
    source_shape, shape = ((1, 1, *part)[-3:] for part in shapes)
    steps = (1, 1, *level.stride)[-3:]
    if level.dilating:
        shifts, reaches = (0, 0, *level.padding)[-3:], (1, 1, *level.kernel_size)[-3:]
    else:
        shifts = (0, 0, 0)
        reaches = tuple(
            max(step, before - (after - 1) * step)
            for step, before, after in zip(steps, source_shape, shape, strict=True)
        )
    _launch(
        window_kernel, triton.cdiv(size, block), source, words, counts, source_stride, size,
        padded_width(shape[2]) // WORD, shape[1], shape[0], shape[2],
        padded_width(source_shape[2]) // WORD, source_shape[1], source_shape[0], source_shape[2],
        *steps, *shifts, *reaches, level.dilating, BLOCK=block, num_warps=8,
    )  # fmt: skip
