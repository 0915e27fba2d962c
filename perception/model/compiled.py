"""C++ code that sorts points by pillar and crops points to boxes on a CPU, bit for bit as torch does.

The functions return None until the code is compiled, or without a compiler; callers then use torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.kernels import native
from sparse_core.kernels.native import int64_array

_NUMBER, _REAL, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
POINTS = native.BackgroundLibrary(
    Path(__file__).with_name("points.cpp"),
    {
        "sort_points": (
            _NUMBER,
            [
                _POINTER,
                _NUMBER,
                _POINTER,
                _NUMBER,
                _POINTER,
                _REAL,
                *[_POINTER] * 2,
                _NUMBER,
                *[_POINTER] * 10,
            ],
        ),
        "crop_points": (_NUMBER, [_POINTER, _NUMBER, *[_POINTER] * 6, *[_NUMBER] * 3, *[_POINTER] * 4]),
    },
    "points are sorted with arrays",
)


class SortedPoints(NamedTuple):
    """Points in range, sorted by pillar, then by a digest of the point.

    Attributes:
        points: (N, C) float32.
        frames, rows: (N,) int64 frame and pillar of each point.
        unsorted: (N,) int64 pillar of each point in range, in input order.
        counts, keys: (M,) int64 points and key of each pillar.
        cells: (M, 3) int32 frame, row and column.
        invalid: (B,) int64 points with NaN or infinite values.
    """

    points: Tensor
    frames: Tensor
    rows: Tensor
    unsorted: Tensor
    counts: Tensor
    keys: Tensor
    cells: Tensor
    invalid: Tensor


def sort_points(
    points: Tensor,
    sizes: Sequence[int],
    range_m: Sequence[float],
    cell_m: float,
    shape: Sequence[int],
    strides: Sequence[int],
    margin: int,
) -> SortedPoints | None:
    """Sort points by pillar; return None also if different points of a pillar have the same digest.

    Args:
        points: (N, C) float32 contiguous, frame by frame; x, y and z first.
        sizes: points of each frame.
        range_m: x, y, z minimum, then maximum of the grid.
        cell_m: edge of a pillar.
        shape: rows and columns of the grid.
        strides: key strides of frame, row and column.
        margin: cells with keys before the first row and column.
    """
    library = POINTS.library()
    if library is None:
        return None
    count, frames = len(points), len(sizes)
    whole = [torch.empty(count, dtype=torch.int64) for _ in range(5)]
    frame_of, row_of, unsorted, counts, keys = whole
    sorted_, cells = torch.empty_like(points), torch.empty((count, 3), dtype=torch.int32)
    invalid, (pillars, clash) = torch.empty(frames, dtype=torch.int64), (_NUMBER(), _NUMBER())
    kept = library.sort_points(
        points.data_ptr(), points.shape[1], int64_array(*sizes), frames, (ctypes.c_float * 6)(*range_m),
        cell_m, int64_array(*shape), int64_array(*strides), margin, invalid.data_ptr(), sorted_.data_ptr(),
        frame_of.data_ptr(), row_of.data_ptr(), unsorted.data_ptr(), counts.data_ptr(), keys.data_ptr(),
        cells.data_ptr(), ctypes.byref(pillars), ctypes.byref(clash),
    )  # fmt: skip
    if clash.value:
        return None
    made = pillars.value
    return SortedPoints(
        sorted_[:kept], frame_of[:kept], row_of[:kept], unsorted[:kept], counts[:made], keys[:made],
        cells[:made], invalid,
    )  # fmt: skip


def crop_points(
    points: Tensor, boxes: Tensor, half: Tensor, start: Tensor, length: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Find the points in boxes.

    Args:
        points: (N, C) float32 contiguous.
        boxes: (R, 7) float32; half: (R, 3) half sizes including a margin.
        start, length: (R, S) int64 runs of candidate points.
        most: largest number of candidates per box; more are thinned to every second, third and so on.

    Returns:
        Points (P, C), their positions in the box frame (P, 3), their boxes (P,) int64, and the number of
        points per box (R,) int64.
    """
    library = POINTS.library()
    if library is None:
        return None
    boxes, half, start, length = (part.contiguous() for part in (boxes, half, start, length))
    count, runs = start.shape
    candidates = int(length.sum(1).clamp(max=most).sum())
    inside = points.new_empty((candidates, points.shape[1]))
    local, rows = points.new_empty((candidates, 3)), length.new_empty(candidates)
    counts = length.new_empty(count)
    yaw = boxes[:, 6]
    cosine, sine = torch.cos(yaw).contiguous(), torch.sin(yaw).contiguous()
    made = library.crop_points(
        points.data_ptr(), points.shape[1], boxes.data_ptr(), cosine.data_ptr(), sine.data_ptr(),
        half.data_ptr(), start.data_ptr(), length.data_ptr(), count, runs, most, inside.data_ptr(),
        local.data_ptr(), rows.data_ptr(), counts.data_ptr(),
    )  # fmt: skip
    return inside[:made], local[:made], rows[:made], counts
